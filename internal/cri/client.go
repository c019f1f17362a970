package cri

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/plegd/plegd/internal/facts"
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
)

// Observer is called for every finished call, from the caller's goroutine. It must not
// block.
type Observer interface {
	CallDone(Call)
}

// Options configure a Client.
type Options struct {
	// Path is the absolute path of the runtime's unix socket, "" while there is none:
	// every call fails until SetPath.
	Path string
	// Dial connects to the runtime; nil dials the path.
	Dial func(context.Context) (net.Conn, error)
	// Explain returns why a connect(2) to a path failed, in the goroutine of that connection:
	// it may look at the file. nil leaves DialResult without a cause.
	Explain func(err error, path string) (facts.Cause, string)
	// RPCTimeout limits each call; 0 means DefaultRPCTimeout.
	RPCTimeout time.Duration
	// Observer is called for every call; nil for no observer.
	Observer Observer
}

// Client is one held connection to a runtime. Its calls may be made from
// several goroutines.
type Client struct {
	opts    Options
	timeout atomic.Int64            // of each call, in nanoseconds
	session atomic.Pointer[session] // replaced with mu held

	mu     sync.Mutex // never held across a call
	closed bool
}

// session is all that belongs to one socket. Calls under way keep theirs.
type session struct {
	client *Client
	path   string
	conn   *grpc.ClientConn // guarded by the client's mu; nil while there is no socket
	limit  time.Duration    // of an attempt to connect conn, guarded likewise

	sandboxes  *listReader
	containers *listReader
	trackers   map[string]*tracker // by operation
	arrivals   arrivals
	starts     starts
	lastDial   atomic.Pointer[DialResult]
}

func newSession(c *Client, path string) *session {
	sandboxes := sandboxReader()
	s := &session{
		client: c, path: path, sandboxes: sandboxes, containers: containerReader(sandboxes), trackers: map[string]*tracker{},
	}
	s.arrivals.last.Store(&time.Time{})
	for _, op := range Operations() {
		s.trackers[op] = &tracker{}
	}
	if path != "" {
		s.conn = s.newConn()
	}
	return s
}

// New returns a client. It does not connect: the first call does.
func New(opts Options) *Client {
	if opts.RPCTimeout == 0 {
		opts.RPCTimeout = DefaultRPCTimeout
	}
	c := &Client{opts: opts}
	c.timeout.Store(int64(opts.RPCTimeout))
	c.session.Store(newSession(c, opts.Path))
	return c
}

// SetPath makes the client call the runtime at another socket. The calls under way fail,
// and the history of calls and the last lists begin again.
func (c *Client) SetPath(path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if old := c.session.Swap(newSession(c, path)); old.conn != nil {
		_ = old.conn.Close()
	}
}

// LastDial returns the last connect(2), nil before the first.
func (c *Client) LastDial() *DialResult { return c.session.Load().lastDial.Load() }

// Peer returns the process at the other end of the connection that is up, as
// DialResult.PeerPID; up is false while there is none.
func (c *Client) Peer() (pid int, up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.session.Load()
	dial := s.lastDial.Load()
	if dial == nil || dial.Err != nil || s.conn.GetState() != connectivity.Ready {
		return 0, false
	}
	return dial.PeerPID, true
}

// History returns the results of the recent calls of an operation.
func (c *Client) History(op string) facts.Call { return c.session.Load().trackers[op].get() }

// Arriving is when many bytes of an answer last came in, 64 KiB within half a
// second; zero for never.
func (c *Client) Arriving() time.Time {
	return *c.session.Load().arrivals.last.Load()
}

// Close ends the connection and every call under way.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.session.Load().conn
	if c.closed || conn == nil {
		c.closed = true
		return nil
	}
	c.closed = true
	return conn.Close()
}

// ask makes one measured call for the answer m. The error is a *facts.CallError.
func (c *Client) ask(ctx context.Context, op string, req, m proto.Message) error {
	s := c.session.Load()
	return s.call(ctx, op, req, into(m), s.trackers[op])
}

// call makes one measured call, for a small answer where t is nil: it then leaves no
// trace in an operation's history. The error is a *facts.CallError.
func (s *session) call(ctx context.Context, op string, req proto.Message, a *answer, t *tracker) error {
	limit := MaxMessageBytes
	if t == nil {
		limit = smallBytes
		t = &tracker{}
	}
	start := time.Now()
	t.start(start)
	ctx, cancel := context.WithTimeout(ctx, s.client.rpcTimeout())
	defer cancel()
	conn, err := s.connection()
	if err == nil {
		err = conn.Invoke(ctx, methods[op], req, a, grpc.MaxCallRecvMsgSize(limit))
	}
	end := time.Now()
	if conn != nil && status.Code(err) == codes.Unavailable {
		awaitFailed(ctx, conn)
	}
	if !a.received.IsZero() {
		end = a.received // decoding is plegd's own time
	}
	done := Call{Operation: op, Start: start, Duration: end.Sub(start), Bytes: a.bytes, Code: CodeOK}
	var failed *facts.CallError
	if err != nil {
		failed = errorOf(op, err)
		done.Code = failed.Code
		done.Bytes = max(a.bytes, failed.Bytes)
	}
	if observer := s.client.opts.Observer; observer != nil {
		observer.CallDone(done)
	}
	t.end(&done, failed)
	if failed == nil {
		return nil
	}
	return failed
}

// awaitFailed waits until the state of a connection whose call failed shows it, by which the next
// call replaces the connection: gRPC fails the call first, by microseconds. Another call may be
// connecting again by then, so the wait is short.
func awaitFailed(ctx context.Context, conn *grpc.ClientConn) {
	limited, cancel := context.WithTimeout(ctx, failureShows)
	defer cancel()
	conn.WaitForStateChange(limited, connectivity.Connecting)
}

// SetRPCTimeout sets the limit of each call and of each connection attempt that begins from
// now on.
func (c *Client) SetRPCTimeout(d time.Duration) { c.timeout.Store(int64(d)) }

func (c *Client) rpcTimeout() time.Duration { return time.Duration(c.timeout.Load()) }
