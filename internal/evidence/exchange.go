package evidence

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// maxAnswer is more than a probe reads of any answer, in bytes.
const maxAnswer = 4 << 10

// exchange is a request and the check of its answer: whether that is complete, and the
// fault that it shows.
type exchange struct {
	request string
	check   func(answer []byte) (complete bool, cause health.Cause, detail string)
}

// dockerPing is a request that every Docker daemon answers without doing anything.
var dockerPing = exchange{
	request: "GET /_ping HTTP/1.1\r\nHost: docker\r\nUser-Agent: plegd\r\nConnection: close\r\n\r\n",
	check: func(answer []byte) (complete bool, cause health.Cause, detail string) {
		line, _, complete := strings.Cut(string(answer), "\n")
		rest, ok := strings.CutPrefix(line, "HTTP/1.")
		switch ok = ok && len(rest) >= 5 && rest[1] == ' '; {
		case !ok:
			return complete, health.CauseProtocol, "the other end does not speak HTTP"
		case rest[2:5] != "200":
			return complete, health.CauseError, cut("/_ping was answered with" + strings.TrimSpace(rest[1:]))
		}
		return complete, health.CauseNone, ""
	},
}

// grpcHello begins an HTTP/2 connection, which every gRPC server answers with its
// SETTINGS. It calls nothing: the CRI plugin of dockerd's containerd may be off.
var grpcHello = exchange{
	request: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	check: func(answer []byte) (complete bool, cause health.Cause, detail string) {
		const header, settings = 9, 4 // RFC 9113, 4.1 and 6.5
		if complete = len(answer) >= header; !complete || answer[3] != settings {
			return complete, health.CauseProtocol, "the other end does not speak HTTP/2"
		}
		return true, health.CauseNone, ""
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

// Connect makes the connection, sends the request and reads until the answer is complete.
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
	for buf := make([]byte, maxAnswer); ; {
		n, err := s.conn.Read(buf)
		s.answer = append(s.answer, buf[:n]...)
		complete, _, _ := s.exchange.check(s.answer)
		switch {
		case complete, len(s.answer) >= maxAnswer:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return err
		}
	}
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
	ends := []error{io.EOF, syscall.ECONNRESET, syscall.EPIPE, os.ErrClosed}
	switch {
	case err == nil || len(s.answer) > 0:
		_, cause, detail := s.exchange.check(s.answer)
		return cause, detail
	case isTimeout(err):
		return health.CauseTimeout, ""
	case slices.ContainsFunc(ends, func(end error) bool { return errors.Is(err, end) }):
		return health.CauseClosed, "the other end closed the connection"
	}
	return health.CauseError, cut(err.Error())
}
