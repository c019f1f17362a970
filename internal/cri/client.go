package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/plegd/plegd/internal/health"
)

const (
	// MaxMessageBytes is the largest answer that the kubelet accepts
	// (k8s.io/cri-client pkg/internal, maxMsgSize).
	MaxMessageBytes = 16 << 20
	// smallBytes is the maximum size of an answer about one container or pod, of which
	// several may be read at once. A usual one has a few KB.
	smallBytes = 1 << 20
	// DefaultRPCTimeout is the kubelet's --runtime-request-timeout.
	DefaultRPCTimeout = 2 * time.Minute

	// lostEvery is how often Connect looks whether the connection came up and
	// was lost again before anybody could see it up.
	lostEvery = 250 * time.Millisecond
)

// Observer is called for every finished call, from the caller's goroutine. It must not
// block.
type Observer interface {
	CallDone(Call)
}

// Options configure a Client.
type Options struct {
	// Path is the absolute path of the runtime's unix socket.
	Path string
	// NoPath makes a client without a socket: every call fails until SetPath.
	NoPath bool
	// Dial connects to the runtime; nil dials the path.
	Dial func(context.Context) (net.Conn, error)
	// RPCTimeout limits each call; 0 means DefaultRPCTimeout.
	RPCTimeout time.Duration
	// Observer is called for every call; nil for no observer.
	Observer Observer
}

// Client is one held connection to a runtime. Its calls may be made from
// several goroutines, except that each of the two lists may be under way only
// once.
type Client struct {
	opts     Options
	timeout  atomic.Int64 // of each call, in nanoseconds
	lastDial atomic.Pointer[DialResult]
	arrivals *arrivals
	// socket is the connection that was made last, nil while one is being made.
	socket atomic.Pointer[watchedConn]

	mu       sync.Mutex // guards the following fields; never held across a call
	path     string
	conn     *grpc.ClientConn    // nil while there is no socket
	trackers map[string]*tracker // by operation, of the calls to path
	closed   bool

	sandboxes  *listReader[Sandbox]
	containers *listReader[Container]
}

// DialResult is the outcome of a connect(2) to the runtime's socket.
type DialResult struct {
	// At is when it ended, Duration how long it took.
	At       time.Time
	Duration time.Duration
	// Err is nil when the connection was made, which does not prove yet that the peer
	// reads from it.
	Err error
	// PeerPID is the process that called listen(2) on the socket (SO_PEERCRED);
	// 0 when the connection failed, or when that is in another pid namespace.
	// For a socket that systemd made it is 1.
	PeerPID int
}

// New returns a client. It does not connect: the first call does.
func New(opts Options) (*Client, error) {
	if opts.RPCTimeout == 0 {
		opts.RPCTimeout = DefaultRPCTimeout
	}
	c := &Client{
		opts: opts, trackers: newTrackers(), arrivals: newArrivals(),
		sandboxes: newSandboxReader(), containers: newContainerReader(),
	}
	c.timeout.Store(int64(opts.RPCTimeout))
	if opts.NoPath {
		return c, nil
	}
	return c, c.SetPath(opts.Path)
}

// SetPath makes the client call the runtime at another socket. The calls under way fail,
// and the history of calls begins again.
func (c *Client) SetPath(path string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh, err := c.newConn(path)
	if err != nil {
		return err
	}
	old := c.conn
	c.path, c.conn = path, fresh
	c.lastDial.Store(nil)
	c.socket.Store(nil)
	if old != nil {
		_ = old.Close()
		c.trackers = newTrackers() // calls that end later belong to the old path
	}
	return nil
}

// DialPath returns a dial of the unix socket at path, for Options.Dial.
func DialPath(path string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
}

// newConn returns a connection to path that is not made yet.
func (c *Client) newConn(path string) (*grpc.ClientConn, error) {
	var conn *grpc.ClientConn
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		// gRPC continues to try by itself, but the next call makes a connection of
		// its own: this one would only be left behind in the accept queue.
		if conn.GetState() == connectivity.TransientFailure {
			return nil, errFailed
		}
		return c.dial(ctx, path, conn)
	}
	conn, err := grpc.NewClient("passthrough:///runtime", append(Transport(),
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(unaryReadOnly),
		grpc.WithStreamInterceptor(streamReadOnly),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.ForceCodecV2(codec{})),
		grpc.WithConnectParams(grpc.ConnectParams{
			// The kubelet's connection tries again by itself, after 100 ms to 3 s.
			// Here every call replaces a connection that has failed (see
			// connection), so gRPC's own attempts would only race with it.
			Backoff: backoff.Config{BaseDelay: c.opts.RPCTimeout, Multiplier: 1, MaxDelay: c.opts.RPCTimeout},
			// The kubelet gives up a connection that stays silent after 5 s and
			// makes another one. Each of these would stay in the accept queue of
			// a stuck runtime, so plegd waits with one, for as long as a call
			// may take: it is answered the moment the runtime is back.
			MinConnectTimeout: c.opts.RPCTimeout,
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	)...)
	if err != nil {
		return nil, fmt.Errorf("set up a connection to %s: %w", path, err)
	}
	return conn, nil
}

// Transport returns the options that make receiving lists cheaper. The windows
// are as large as the largest answer: the runtime then never waits for permission
// to send more, and gRPC does not measure the connection with pings.
func Transport() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithInitialWindowSize(MaxMessageBytes), grpc.WithInitialConnWindowSize(MaxMessageBytes)}
}

// dial makes the connection of a grpc.ClientConn.
func (c *Client) dial(ctx context.Context, path string, of *grpc.ClientConn) (net.Conn, error) {
	connect := c.opts.Dial
	if connect == nil {
		connect = DialPath(path)
	}
	start := time.Now()
	c.socket.Store(nil)
	socket := statSocket(path) // before the connection: a newer one is another socket
	conn, err := connect(ctx)
	now, pid := time.Now(), PeerPID(conn)
	c.lastDial.Store(&DialResult{At: now, Duration: now.Sub(start), Err: err, PeerPID: pid})
	if err != nil {
		return nil, err
	}
	if socket == nil { // it has come in between
		socket = statSocket(path)
	}
	watched := c.arrivals.watch(conn)
	c.socket.Store(watched)
	if isUnix(conn) {
		go c.endStale(of, watched, path, socket)
	}
	return watched, nil
}

// PeerPID returns the process that called listen(2) on the unix socket at the other
// end (SO_PEERCRED), 0 where that is not known, as of a process in another pid
// namespace. It needs nothing of the other end: a stopped process is named too.
func PeerPID(conn net.Conn) int {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// LastDial returns the last connect(2), nil before the first.
func (c *Client) LastDial() *DialResult { return c.lastDial.Load() }

// Waiting reports whether the connection has been made and the runtime has sent
// nothing on it yet, as while it waits in the accept queue; and since when.
func (c *Client) Waiting() (since time.Time, waiting bool) {
	s, dial := c.socket.Load(), c.LastDial()
	if s == nil || dial == nil || dial.Err != nil || s.received.Load() {
		return time.Time{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return dial.At, !c.closed && c.conn != nil && c.conn.GetState() == connectivity.Connecting
}

// Peer returns the process at the other end of the connection that is up, as
// DialResult.PeerPID; up is false while there is none.
func (c *Client) Peer() (pid int, up bool) {
	dial := c.LastDial()
	c.mu.Lock()
	defer c.mu.Unlock()
	if dial == nil || dial.Err != nil || c.closed || c.conn == nil || c.conn.GetState() != connectivity.Ready {
		return 0, false
	}
	return dial.PeerPID, true
}

func (c *Client) tracker(op string) *tracker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.trackers[op]
}

// History returns the results of the recent calls of an operation.
func (c *Client) History(op string) health.Call { return c.tracker(op).get() }

var errFailed = errors.New("the connection failed")

// connection returns the connection to call on. One that failed to connect is
// replaced by a fresh one: the call then waits for a connect of its own instead
// of inheriting an old failure and its backoff, and so finds a runtime that is
// back at once.
func (c *Client) connection() (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, status.Error(codes.Canceled, "plegd is stopping")
	}
	if c.conn == nil {
		return nil, status.Error(codes.Unavailable, "no runtime socket has been found")
	}
	if c.conn.GetState() == connectivity.TransientFailure {
		fresh, err := c.newConn(c.path)
		if err != nil {
			return nil, err
		}
		_ = c.conn.Close() // nothing is under way on a connection that is not up
		c.socket.Store(nil)
		c.conn = fresh
	}
	return c.conn, nil
}

// Connect makes the connection where it is not up and waits until the runtime
// has sent its HTTP/2 SETTINGS, the connection has failed, or ctx ends.
func (c *Client) Connect(ctx context.Context) error {
	conn, err := c.connection()
	if err != nil {
		return err
	}
	before := c.LastDial()
	conn.Connect()
	for begun := false; ; {
		switch s := conn.GetState(); {
		case s == connectivity.Ready:
			return nil
		case s == connectivity.TransientFailure, s == connectivity.Shutdown,
			s == connectivity.Idle && (begun || c.LastDial() != before): // it was up, and is lost already
			return errFailed
		default:
			limited, cancel := context.WithTimeout(ctx, lostEvery)
			begun = conn.WaitForStateChange(limited, s) || begun
			cancel()
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
}

// Close ends the connection and every call under way.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// call makes one measured call. The error is a *health.CallError.
func (c *Client) call(ctx context.Context, op, method string, req proto.Message, a *answer) error {
	t, start := c.tracker(op), time.Now()
	t.begin(start)
	done, failed := c.ask(ctx, op, start, method, req, a, MaxMessageBytes)
	t.end(&done, failed)
	return orNil(failed)
}

// callBeside makes one measured call for a small answer, which leaves no trace
// in the operation's history. The error is a *health.CallError.
func (c *Client) callBeside(ctx context.Context, op, method string, req proto.Message, a *answer) error {
	_, failed := c.ask(ctx, op, time.Now(), method, req, a, smallBytes)
	return orNil(failed)
}

func (c *Client) ask(
	ctx context.Context, op string, start time.Time, method string, req proto.Message, a *answer, limit int,
) (Call, *health.CallError) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.timeout.Load()))
	defer cancel()
	conn, err := c.connection()
	if err == nil {
		err = conn.Invoke(ctx, method, req, a, grpc.MaxCallRecvMsgSize(limit))
	}
	done := Call{Operation: op, Start: start, Duration: time.Since(start), Bytes: a.bytes, Code: CodeOK}
	var failed *health.CallError
	if err != nil {
		failed = c.failure(op, err)
		done.Code = failed.Code
		if failed.Bytes > 0 {
			done.Bytes = failed.Bytes
		}
	}
	if c.opts.Observer != nil {
		c.opts.Observer.CallDone(done)
	}
	return done, failed
}

// orNil returns an error that is nil if e is.
func orNil(e *health.CallError) error {
	if e == nil {
		return nil
	}
	return e
}

// SetRPCTimeout sets the limit of each call that begins from now on.
func (c *Client) SetRPCTimeout(d time.Duration) { c.timeout.Store(int64(d)) }
