package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// DefaultDockerSocket is where dockerd listens unless it was told otherwise.
const DefaultDockerSocket = "/run/docker.sock"

const (
	dockerTimeout = time.Second
	// pingBytes is far above any answer's first line.
	pingBytes = 4 << 10
)

// pingRequest is a request that every Docker daemon answers, and that it does
// nothing for.
const pingRequest = "GET /_ping HTTP/1.1\r\nHost: docker\r\nUser-Agent: plegd\r\nConnection: close\r\n\r\n"

// Docker is the source about the Docker daemon behind cri-dockerd: what a fresh
// connection to its socket meets, its process, and the containerd that it leaves
// its containers to. cri-dockerd keeps connections to dockerd open, and answers
// while dockerd accepts nobody.
type Docker struct {
	// Ping makes the fresh connections, Processes looks at the processes.
	Ping      *Watch[health.Docker]
	Processes *Watch[DockerProcesses]

	containerd func() string
}

// NewDocker returns the source. socket returns the path of dockerd's socket, ""
// while there is none; active reports whether the runtime is cri-dockerd. While
// it is not, nothing is dialed and the source has nothing to say. A dial that
// fails is an answer.
func NewDocker(table *node.Table, procfs, sysfs string, socket func() string, active func() bool) *Docker {
	path := func() string {
		if !active() {
			return ""
		}
		return socket()
	}
	ping := &docker{socket: path, timeout: dockerTimeout, queuedFor: queuedFor}
	processes := newDockerProcesses(table, procfs, sysfs, path, ping.peerPID)
	return &Docker{Ping: newDocker(ping), Processes: watchDockerProcesses(processes), containerd: processes.containerdSocket}
}

// ContainerdSocket is the address of dockerd's containerd, as the arguments of
// Docker's shims have it; "" while it is not known. It never waits.
func (d *Docker) ContainerdSocket() string { return d.containerd() }

func newDocker(d *docker) *Watch[health.Docker] {
	// A look at the connection that waits, a new one, and a moment: a stage that
	// times out is an answer, and must not run into the watch's limit.
	return NewWatch(Spec[health.Docker]{
		Name: "docker", Every: 1, Timeout: 3*d.timeout + time.Second,
		// A connection that waits to be answered is only looked at again, and one
		// that is refused leaves nothing behind.
		Again: func(v *health.Docker) bool { return !v.OK },
		Gather: func(ctx context.Context) (*health.Docker, error) {
			p, err := d.gather(ctx)
			if err != nil {
				return nil, err
			}
			return &health.Docker{Probe: *p, Socket: d.path, AnsweredAt: d.answeredAt, OKSince: d.okSince}, nil
		},
		Store: func(e *health.Evidence, v *health.Docker) { e.Docker = v },
	})
}

// docker is the state between two probes. gather is never called twice at once.
type docker struct {
	socket             func() string
	timeout, queuedFor time.Duration

	last       health.Probe
	path       string
	answeredAt time.Time
	okSince    time.Time
	peer       atomic.Int64
	// queued is a connection that dockerd has yet to answer. It stays in
	// dockerd's accept queue whether it is closed or not; kept, it tells when
	// dockerd is back, and spares it the next one.
	queued net.Conn
}

// peerPID is the process that called listen(2) on the socket, as the newest
// connection shows; 0 while there is none, 1 where systemd made the socket.
func (d *docker) peerPID() int { return int(d.peer.Load()) }

func (d *docker) gather(ctx context.Context) (*health.Probe, error) {
	path := d.socket()
	if path != d.path {
		d.drop()
		d.path, d.last, d.answeredAt, d.okSince = path, health.Probe{}, time.Time{}, time.Time{}
		d.peer.Store(0)
	}
	if path == "" {
		return nil, ErrNoData
	}
	if d.queued != nil {
		if p := d.again(ctx); p != nil {
			return p, nil
		}
	}
	return d.probe(ctx)
}

// again looks whether the connection that waits has been answered; nil when it
// is useless and another is to be made.
func (d *docker) again(ctx context.Context) *health.Probe {
	p := d.last
	status, err := readStatus(ctx, d.queued, d.timeout)
	switch {
	case err == nil:
		p.RPC = time.Since(p.At) - p.Connect
		d.drop()
		return d.answered(p, status)
	case isTimeout(err) && time.Since(p.At) < d.queuedFor:
		return &p // still the same probe
	}
	d.drop()
	return nil
}

// probe makes a new connection.
func (d *docker) probe(ctx context.Context) (*health.Probe, error) {
	p := health.Probe{At: time.Now()}
	dialer := net.Dialer{Timeout: d.timeout}
	conn, err := dialer.DialContext(ctx, "unix", d.path)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p.Stage = health.StageConnect
		p.Cause, p.Detail = ConnectCause(err, d.path)
		return d.failed(p), nil
	}
	p.Connect = time.Since(p.At)
	d.peer.Store(int64(cri.PeerPID(conn)))
	start := time.Now()
	status, err := ping(ctx, conn, d.timeout)
	if isTimeout(err) {
		d.queued = conn
	} else {
		_ = conn.Close()
	}
	if err == nil {
		p.RPC = time.Since(start)
		return d.answered(p, status), nil
	}
	p.Stage = health.StageRPC
	p.Cause, p.Detail = pingCause(err, d.timeout)
	return d.failed(p), nil
}

// answered is the probe that got an answer with this first line.
func (d *docker) answered(p health.Probe, status string) *health.Probe {
	p.Stage, p.Cause, p.Detail = "", health.CauseNone, ""
	code, ok := statusCode(status)
	switch {
	case !ok:
		p.Stage, p.Cause, p.Detail = health.StageRPC, health.CauseProtocol, "the other end does not speak HTTP"
	case code != "200":
		p.Stage, p.Cause, p.Detail = health.StageRPC, health.CauseError, cut("/_ping was answered with "+strings.TrimSpace(status[len("HTTP/1.1"):]))
	default:
		p.OK, p.FailedSince, p.Failures = true, time.Time{}, 0
		d.last, d.answeredAt = p, time.Now()
		if d.okSince.IsZero() {
			d.okSince = d.answeredAt
		}
		return &p
	}
	return d.failed(p)
}

// failed is a probe that failed, with those before it.
func (d *docker) failed(p health.Probe) *health.Probe {
	p.FailedSince, p.Failures = p.At, 1
	if !d.last.FailedSince.IsZero() {
		p.FailedSince, p.Failures = d.last.FailedSince, d.last.Failures
		if !p.At.Equal(d.last.At) { // not the one that was counted while it waited
			p.Failures++
		}
	}
	d.last, d.okSince = p, time.Time{}
	return &p
}

func (d *docker) drop() {
	if d.queued != nil {
		_ = d.queued.Close()
		d.queued = nil
	}
}

// ping asks, and returns the first line of the answer.
func ping(ctx context.Context, conn net.Conn, timeout time.Duration) (string, error) {
	if err := conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, pingRequest); err != nil {
		return "", err
	}
	return readStatus(ctx, conn, timeout)
}

// readStatus returns the first line of an answer. It gives up what it has read
// of a line that does not come in time.
func readStatus(ctx context.Context, conn net.Conn, timeout time.Duration) (string, error) {
	deadline := time.Now().Add(timeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	if err := conn.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	buf, n := make([]byte, pingBytes), 0
	for n < len(buf) {
		m, err := conn.Read(buf[n:])
		n += m
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return string(buf[:i]), nil
		}
		switch {
		case err == nil:
		case n > 0 && !isTimeout(err):
			return string(buf[:n]), nil // whatever that is
		default:
			return "", err
		}
	}
	return string(buf), nil
}

// statusCode returns the three figures of an HTTP/1 status line.
func statusCode(line string) (code string, ok bool) {
	rest, ok := strings.CutPrefix(line, "HTTP/1.")
	if !ok || len(rest) < 5 || rest[1] != ' ' || strings.Trim(rest[2:5], "0123456789") != "" {
		return "", false
	}
	return rest[2:5], true
}

// pingCause tells why a connection to dockerd came to nothing.
func pingCause(err error, timeout time.Duration) (health.Cause, string) {
	switch {
	case isTimeout(err):
		return health.CauseTimeout, fmt.Sprintf("connected, and /_ping was not answered within %s", timeout)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed):
		return health.CauseClosed, "the other end closed the connection"
	default:
		return health.CauseError, err.Error()
	}
}
