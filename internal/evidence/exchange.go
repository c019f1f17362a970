package evidence

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// maxAnswer is how much of an answer a probe reads, in bytes.
const maxAnswer = 256

// exchange is a request, the length from which an answer can be checked, and the check:
// the fault that it shows.
type exchange struct {
	request string
	length  int
	check   func(answer string) (cause health.Cause, detail string)
}

// dockerPing is a request that every Docker daemon answers without doing anything.
var dockerPing = exchange{
	request: "GET /_ping HTTP/1.1\r\nHost: docker\r\nUser-Agent: plegd\r\nConnection: close\r\n\r\n",
	length:  len("HTTP/1.1 200"),
	check: func(answer string) (cause health.Cause, detail string) {
		rest, ok := strings.CutPrefix(answer, "HTTP/1.")
		switch ok = ok && len(rest) >= 5 && rest[1] == ' '; {
		case !ok:
			return health.CauseProtocol, "the other end does not speak HTTP"
		case rest[2:5] != "200":
			status, _, _ := strings.Cut(rest[2:], "\r\n")
			return health.CauseError, cut("/_ping was answered with " + status)
		}
		return health.CauseNone, ""
	},
}

// grpcHello begins an HTTP/2 connection, which every gRPC server answers with its
// SETTINGS. It calls nothing: the CRI plugin of dockerd's containerd may be off.
var grpcHello = exchange{
	request: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	length:  9, // of a frame's header, RFC 9113, 4.1
	check: func(answer string) (cause health.Cause, detail string) {
		if len(answer) < 9 || answer[3] != 4 { // SETTINGS, 6.5
			return health.CauseProtocol, "the other end does not speak HTTP/2"
		}
		return health.CauseNone, ""
	},
}

// plainSession is a connection to a hop behind the runtime with an exchange on it.
type plainSession struct {
	path     string
	exchange *exchange
	conn     net.Conn
	dial     *cri.DialResult
	answer   []byte
}

// Connect makes the connection, sends the request and reads the beginning of the answer.
func (s *plainSession) Connect(ctx context.Context) error {
	if s.conn == nil {
		start := time.Now()
		conn, err := cri.DialPath(s.path)(ctx)
		now := time.Now()
		s.dial = &cri.DialResult{At: now, Duration: now.Sub(start), Err: err, PeerPID: cri.PeerPID(conn)}
		if err != nil {
			return err
		}
		s.conn = conn
		if _, err = io.WriteString(conn, s.exchange.request); err != nil { // it fits into the socket's buffer
			return err
		}
	}
	_ = s.conn.SetReadDeadline(time.Time{}) // that of the call before has passed
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for buf := make([]byte, maxAnswer); len(s.answer) < s.exchange.length; {
		n, err := s.conn.Read(buf)
		s.answer = append(s.answer, buf[:n]...)
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// LastDial implements session.
func (s *plainSession) LastDial() *cri.DialResult { return s.dial }

// Close implements session.
func (s *plainSession) Close() error {
	if s.conn == nil {
		return nil
	}
	return s.conn.Close()
}

// result is what the exchange came to; err is Connect's.
func (s *plainSession) result(err error) (health.Cause, string) {
	ends := []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE}
	switch {
	case err == nil || len(s.answer) > 0:
		return s.exchange.check(string(s.answer))
	case errors.Is(err, context.DeadlineExceeded):
		return health.CauseTimeout, ""
	case slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) }):
		return health.CauseClosed, "the other end closed the connection"
	}
	return health.CauseError, cut(err.Error())
}
