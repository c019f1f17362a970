package cri

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	contentType = "application/grpc" // as the codec's
	freshStream = 1                  // the id of the only stream of a fresh connection
	// maxFreshFrame is the largest frame that a server may send unasked (RFC 9113, 4.2).
	maxFreshFrame = 16 << 10
	// maxFreshAnswer bounds an answer and its headers: plegd never widens the window, which is as large.
	maxFreshAnswer = 64 << 10
	// messagePrefix is the size of what precedes a message of gRPC: a flag and its length.
	messagePrefix = 5
)

// AskVersion makes one call of Version over a connection that has just been made, as any client
// does: it speaks first, since CRI-O answers only then. answered is called when the other end has
// sent its SETTINGS; the call must be answered within limit after that. The error is a
// *facts.CallError.
//
// It does without grpc.ClientConn: a connection a call costs several goroutines there, which are
// a sixth of plegd's CPU time in the steady state.
func AskVersion(ctx context.Context, conn net.Conn, limit time.Duration, observer Observer, answered func()) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // the read returns
	defer stop()
	e := &exchange{conn: conn, frames: http2.NewFramer(conn, bufio.NewReader(conn))}
	e.frames.SetMaxReadFrameSize(maxFreshFrame)
	e.frames.MaxHeaderListSize = maxFreshAnswer
	e.frames.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil) // the size that a server assumes
	// A server of another protocol answers the first bytes and closes: its answer counts.
	_, _ = conn.Write(versionRequest())
	err := e.readSettings()
	if err != nil {
		return e.failure(ctx, err)
	}
	started := time.Now()
	answered()
	_ = conn.SetReadDeadline(started.Add(limit)) // it fails for a closed connection, which the read shows
	done := Call{Operation: OpVersion, Start: started, Code: CodeOK}
	err = e.failure(ctx, e.readAnswer())
	done.Duration = time.Since(started)
	done.Bytes = len(e.body)
	if err != nil {
		done.Code = AsError(err).Code
	}
	if observer != nil {
		observer.CallDone(done)
	}
	return err
}

// versionRequest returns all that a client sends for one call of Version (RFC 9113, 3.4; gRPC over HTTP/2).
var versionRequest = sync.OnceValue(func() []byte {
	message, err := proto.Marshal(&runtimeapi.VersionRequest{Version: kubeAPIVersion})
	if err != nil {
		panic(err) // the message is always the same
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) //nolint:gosec // a few bytes
	var fields, out bytes.Buffer
	encoder := hpack.NewEncoder(&fields)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: methods[OpVersion]},
		{Name: ":authority", Value: "localhost"},
		{Name: "content-type", Value: contentType},
		{Name: "user-agent", Value: "plegd"},
		{Name: "te", Value: "trailers"},
	} {
		_ = encoder.WriteField(f) // a buffer takes all
	}
	out.WriteString(http2.ClientPreface)
	frames := http2.NewFramer(&out, nil)
	_ = frames.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: freshStream, BlockFragment: fields.Bytes(), EndHeaders: true})
	_ = frames.WriteData(freshStream, true, append(body, message...))
	return out.Bytes()
})

// exchange is the one call of a fresh connection.
type exchange struct {
	conn    net.Conn
	frames  *http2.Framer
	headers map[string]string // those at the end of the answer win
	body    []byte
}

var (
	errNoSettings = errors.New("the first frame is not a settings frame")
	errDraining   = errors.New("the connection is draining")
	errTooLong    = fmt.Errorf("the answer to Version has more than %d bytes", maxFreshAnswer)
)

// answerHeaders are the headers that show how a call went.
var answerHeaders = []string{":status", "content-type", "grpc-status", "grpc-message"}

// readSettings reads the first frame.
func (e *exchange) readSettings() error {
	frame, err := e.frames.ReadFrame()
	if err != nil {
		return err
	}
	if _, ok := frame.(*http2.SettingsFrame); !ok {
		return errNoSettings
	}
	_ = e.frames.WriteSettingsAck() // where it fails the read shows why
	return nil
}

// readAnswer reads until the answer is complete. The error is one of the connection, or the
// status of the call.
func (e *exchange) readAnswer() error {
	e.headers = map[string]string{}
	for {
		frame, err := e.frames.ReadFrame()
		if err != nil {
			return err
		}
		isComplete, err := e.add(frame)
		if err != nil {
			return err
		}
		if isComplete {
			return e.status()
		}
	}
}

// add adds a frame to the answer, and reports whether that is complete.
func (e *exchange) add(frame http2.Frame) (isComplete bool, err error) {
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		for _, field := range f.Fields {
			if slices.Contains(answerHeaders, field.Name) {
				e.headers[field.Name] = field.Value
			}
		}
		return f.StreamEnded(), nil
	case *http2.DataFrame:
		if len(e.body)+len(f.Data()) > maxFreshAnswer {
			return false, errTooLong
		}
		e.body = append(e.body, f.Data()...)
		return f.StreamEnded(), nil
	case *http2.PingFrame:
		_ = e.frames.WritePing(true, f.Data)
	case *http2.RSTStreamFrame:
		return false, status.Errorf(codes.Unavailable, "stream terminated by RST_STREAM with error code: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		if f.LastStreamID < freshStream {
			return false, errDraining
		}
	}
	return false, nil
}

// status returns the status of the answer, and an error where its message cannot be read.
func (e *exchange) status() error {
	if code := e.headers[":status"]; code != "200" {
		return status.Errorf(codes.Unknown, "unexpected HTTP status code received from server: %s", code)
	}
	if got := e.headers["content-type"]; !strings.HasPrefix(got, contentType) {
		return status.Errorf(codes.Unknown, "received unexpected content-type %q", got)
	}
	code, err := strconv.ParseUint(e.headers["grpc-status"], 10, 32)
	if err != nil {
		return status.Error(codes.Internal, "the answer has no status of gRPC")
	}
	if codes.Code(code) != codes.OK {
		message, err := url.PathUnescape(e.headers["grpc-message"])
		if err != nil {
			message = e.headers["grpc-message"]
		}
		return status.Error(codes.Code(code), message)
	}
	err = proto.Unmarshal(e.body[min(messagePrefix, len(e.body)):], &runtimeapi.VersionResponse{})
	if err != nil {
		return status.Errorf(codes.Internal, "%s: %v", unmarshalFailed, err)
	}
	return nil
}

// failure returns the error of an exchange that ended with err.
func (e *exchange) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return errorOf(OpVersion, ctx.Err())
	}
	timeout, isNet := errors.AsType[net.Error](err)
	if isNet && timeout.Timeout() {
		return errorOf(OpVersion, context.DeadlineExceeded)
	}
	if _, ok := status.FromError(err); ok {
		return errorOf(OpVersion, err)
	}
	return errorOf(OpVersion, status.Error(codes.Unavailable, err.Error()))
}
