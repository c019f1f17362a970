package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
)

const (
	// failureShows limits the wait until gRPC's state shows why a call failed.
	failureShows = 250 * time.Millisecond
	// staleEvery is the time between two checks of a connection that waits to be
	// accepted.
	staleEvery = time.Second
)

// DialResult is the outcome of a connect(2) to the runtime's socket.
type DialResult struct {
	// At is when it ended, Duration how long it took.
	At       time.Time
	Duration time.Duration
	// Err is nil when the connection was made, which does not prove yet that the peer
	// reads from it.
	Err error
	// Cause and Detail are what Options.Explain returns of Err.
	Cause  facts.Cause
	Detail string
	// PeerPID is the process that called listen(2) on the socket (SO_PEERCRED);
	// 0 when the connection failed, or when that is in another pid namespace.
	// For a socket that systemd made it is 1.
	PeerPID int
}

// newConn returns a connection that is not made yet.
func (s *session) newConn() *grpc.ClientConn {
	var conn *grpc.ClientConn
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		// gRPC continues to try by itself, but the next call makes a connection of
		// its own: this one would only be left behind in the accept queue.
		if conn.GetState() == connectivity.TransientFailure {
			return nil, errFailed
		}
		return s.dial(ctx)
	}
	limit := s.client.rpcTimeout()
	s.limit = limit
	conn, err := grpc.NewClient("passthrough:///runtime",
		// The windows are as large as the largest answer: the runtime never waits for
		// permission to send more, and gRPC does not measure the connection with pings.
		grpc.WithInitialWindowSize(MaxMessageBytes),
		grpc.WithInitialConnWindowSize(MaxMessageBytes),
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithUnaryInterceptor(unaryReadOnly),
		grpc.WithStreamInterceptor(streamReadOnly),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.ForceCodecV2(codec{})),
		grpc.WithConnectParams(grpc.ConnectParams{
			// Each call replaces a connection that has failed (see connection): gRPC's own
			// attempts would only race with it.
			Backoff: backoff.Config{BaseDelay: limit, Multiplier: 1, MaxDelay: limit},
			// The kubelet gives up a silent connection after 5 s. Each of these would stay in
			// the accept queue of a stuck runtime, so plegd waits with one.
			MinConnectTimeout: limit,
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		panic(err) // the target and the options are always the same
	}
	return conn
}

// dial makes the connection of a grpc.ClientConn.
func (s *session) dial(ctx context.Context) (net.Conn, error) {
	connect := s.client.opts.Dial
	if connect == nil {
		connect = DialPath(s.path)
	}
	start := time.Now()
	file, _ := os.Stat(s.path) // before the connection: a newer one is another socket
	conn, err := connect(ctx)
	end := time.Now()
	result := &DialResult{At: end, Duration: end.Sub(start), Err: err, PeerPID: PeerPID(conn)}
	if explain := s.client.opts.Explain; explain != nil {
		result.Cause, result.Detail = explain(err, s.path) // here, since it may read the file system
	}
	s.lastDial.Store(result)
	if err != nil {
		return nil, err
	}
	if file == nil { // it has come in between
		file, _ = os.Stat(s.path)
	}
	open, closed := context.WithCancel(context.Background())
	watched := &watchedConn{Conn: conn, arrivals: &s.arrivals, closed: closed}
	if _, isUnix := conn.(*unixConn); isUnix {
		go func() {
			_ = bounded.Recovered(func() error { // a panic is reported
				watched.endStale(open, s.path, file)
				return nil
			})
		}()
	}
	return watched, nil
}

// PeerPID returns the process that called listen(2) on the unix socket at the other
// end (SO_PEERCRED), 0 where that is not known, as of a process in another pid
// namespace. It needs nothing of the other end: a stopped process is named too.
func PeerPID(conn net.Conn) int {
	cred := peer(conn)
	if cred == nil {
		return 0
	}
	return int(cred.Pid)
}

var errFailed = errors.New("the connection failed")

// connection returns the connection to call on. One that failed to connect is
// replaced by a fresh one, so that a runtime that is back is found at once.
func (s *session) connection() (*grpc.ClientConn, error) {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	if s.client.closed {
		return nil, status.Error(codes.Canceled, "plegd is stopping")
	}
	if s.conn == nil {
		return nil, status.Error(codes.Unavailable, "no runtime socket has been found")
	}
	state := s.conn.GetState()
	outdated := state == connectivity.Idle && s.limit != s.client.rpcTimeout()
	if state == connectivity.TransientFailure || outdated {
		_ = s.conn.Close() // nothing is under way on a connection that is not up
		s.conn = s.newConn()
	}
	return s.conn, nil
}

// endStale closes a connection that can never be accepted: it is in the accept queue
// of a listener whose path now leads to another socket than file. The kernel usually ends such
// connections when the runtime dies, but not while another process holds a copy of
// the listener's descriptor, as a child does between fork and exec. The kubelet gives up
// any connection that is not answered for 5 s; plegd only this one, so a runtime
// that is stuck gets no second one. It returns when the connection is accepted or closed:
// the kubelet keeps an accepted connection, and so does plegd.
func (c *watchedConn) endStale(open context.Context, path string, file os.FileInfo) {
	for waits := true; waits && !c.received.Load(); waits = bounded.Sleep(open, staleEvery) {
		present, err := os.Stat(path)
		if file != nil && err == nil && present.Mode()&os.ModeSocket != 0 && !os.SameFile(file, present) {
			_ = c.Close() // its calls end with Unavailable
		}
	}
}
