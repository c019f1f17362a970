package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// subject makes relists.
type subject interface {
	// relist makes one.
	relist(context.Context) error
	// bytes is the size of the last two answers together; pods and events are
	// what was counted so far.
	bytes() int
	pods() int
	events() int
	close()
}

// The names of the subjects.
const (
	floorName  = "floor"
	plainName  = "plain"
	relistName = "relist"
)

func subjects() []string { return []string{floorName, plainName, relistName} }

func newSubject(name, socket string) (subject, error) {
	switch name {
	case floorName:
		return newFloor(socket)
	case plainName:
		return newPeer(socket)
	case relistName:
		return newOwnRelist(socket)
	}
	return nil, fmt.Errorf("there is no subject %q", name)
}

// dial connects as the kubelet does (k8s.io/cri-client pkg/remote_runtime.go).
func dial(socket string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", addr)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}, more...)...)
}

const (
	maxMessage = 16 << 20
	rpcTimeout = 2 * time.Minute
)

// measure lets a subject make n relists, one each period however long one takes, and
// says what they cost this process. The CPU time is that of the whole round: the
// collector and the transport work between relists too.
func measure(ctx context.Context, s subject, n int, period time.Duration) (round, error) {
	r := round{Relists: n, Latencies: make([]time.Duration, 0, min(n, 1000))}
	// While the others had their turn the runtime may have changed: that is not
	// this round's.
	if err := s.relist(ctx); err != nil {
		return r, err
	}
	events := s.events()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	cpu := cpuTime()
	next := time.Now()
	for range n {
		start := time.Now()
		if err := s.relist(ctx); err != nil {
			return r, err
		}
		if len(r.Latencies) < cap(r.Latencies) {
			r.Latencies = append(r.Latencies, time.Since(start))
		}
		next = next.Add(period)
		time.Sleep(time.Until(next))
	}
	r.CPU = cpuTime() - cpu
	runtime.ReadMemStats(&m1)
	r.AllocBytes, r.AllocObjects = m1.TotalAlloc-m0.TotalAlloc, m1.Mallocs-m0.Mallocs
	r.Bytes, r.Pods, r.Events, r.RSS = s.bytes(), s.pods(), s.events()-events, resident(os.Getpid())
	r.Goroutines = runtime.NumGoroutine()
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		r.FDs = len(fds)
	}
	return r, nil
}

// cpuTime is the user and system time of this process, all threads together.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the resident set of a process, in bytes.
func resident(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}
