package evidence

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// askAgain is the time between two probes that ask for the Version while all is well.
// Those in between only greet, which is several times cheaper.
const askAgain = 15 * time.Second

// maxSettings is as much as a first frame may hold, in bytes: what every HTTP/2 peer
// takes (RFC 9113, SETTINGS_MAX_FRAME_SIZE).
const maxSettings = 16 << 10

// greets reports whether the next probe may end with the runtime's SETTINGS.
func (d *Dialer) greets(now time.Time) bool {
	return d.opts.Calm != nil && d.opts.Calm() && d.Last().OK && now.Sub(d.asked) < askAgain
}

// greet makes a connection, speaks first, as a probe does, and waits for the runtime's
// SETTINGS. It reports false where a probe is to say what there is to say: a connection
// that failed, another answer, one that came late.
func (d *Dialer) greet(ctx context.Context, path string) (done bool) {
	dial := d.opts.Dial
	if dial == nil {
		dial = cri.DialPath(path)
	}
	select {
	case <-d.moved: // before this probe
	default:
	}
	p := health.Probe{At: time.Now(), OK: true}
	limited, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	conn, err := dial(limited)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	made := &cri.DialResult{At: time.Now(), PeerPID: cri.PeerPID(conn)}
	made.Duration = made.At.Sub(p.At)
	d.current.Store(nil)
	d.peer.Store(made)
	answer := make(chan error, 1)
	go func() { answer <- greeting(conn) }()
	select {
	case err = <-answer:
		if err != nil {
			return false
		}
		p.Connect, p.Settings = made.Duration, time.Since(made.At)
		d.publish(ctx, p)
		return true
	case <-limited.Done():
	}
	p.OK, p.Stage, p.Cause = false, health.StageSettings, health.CauseTimeout
	d.publish(ctx, p)
	return d.waitOn(ctx, func(ctx context.Context) error {
		select {
		case err := <-answer:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}) != nil
}

// greeting sends what a client begins with and waits for the runtime's SETTINGS, until
// the connection is closed.
func greeting(conn net.Conn) error {
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	framer.SetMaxReadFrameSize(maxSettings)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	frame, err := framer.ReadFrame()
	if err != nil {
		return err
	}
	if s, ok := frame.(*http2.SettingsFrame); !ok || s.IsAck() {
		return fmt.Errorf("the first frame is %s", frame.Header().Type)
	}
	return nil
}
