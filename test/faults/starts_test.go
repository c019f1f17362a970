//go:build e2e

package faults

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// startFaults are those that only starts of pods show, to a kubelet whose metrics are read.
var startFaults = []fault{
	{
		// It has read the request, and waits for nothing: which of its clients' requests it owes an answer cannot be seen.
		name: "a snapshotter does not answer", on: onContainerd, want: health.PodStartsFailing, goal: 20 * time.Second, limit: 40 * time.Second, fresh: true,
		configure: func(b *bench) { b.serveSnapshots() },
		prepare: func(b *bench) {
			b.useSnapshots()
			b.serveKubeletMetrics()
		},
		make: func(b *bench) func() {
			wait := b.startHostPod()
			b.kubelet.Store(false)
			return func() {
				b.kubelet.Store(true)
				b.snapshots.Stop()
				wait()
			}
		},
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindRuntime, PID: b.Pid()} },
		next: func(b *bench) string {
			return fmt.Sprintf("it may wait for an answer of pid %d (faults", os.Getpid())
		},
	},
	{
		// It waits for a lock of another process with the request.
		name: "a snapshotter waits for a lock", on: onContainerd, want: health.PodStartsFailing, goal: 20 * time.Second, limit: 40 * time.Second, fresh: true,
		prepare: func(b *bench) {
			b.startLockedSnapshots()
			b.serveKubeletMetrics()
		},
		make:    func(b *bench) func() { return b.lockSnapshots(func(isHeld bool) { b.kubelet.Store(!isHeld) }) },
		culprit: theOther, next: pidOfOther,
	},
	{
		// The runtime's calls to it fail at once. containerd 2 connects with the first pod.
		name: "a snapshotter has ended", on: onContainerd1, want: health.RuntimePeerStuck, goal: 25 * time.Second, limit: 40 * time.Second, fresh: true,
		configure: func(b *bench) { b.serveSnapshots() },
		prepare:   func(b *bench) { b.useSnapshots() },
		make: func(b *bench) func() {
			b.snapshots.Stop()
			return b.serveSnapshots
		},
		back:    15 * time.Second, // it is looked at each 10 s
		culprit: func(b *bench) facts.Link { return facts.Link{Kind: facts.KindNode, Name: b.file("mute.sock")} },
		next:    func(b *bench) string { return b.file("mute.sock") },
	},
}

// snapshotsEnv is set for a snapshotter of its own, which serves the socket of its first argument. It takes the lock of the file
// of the second one to prepare something, and fails then.
const snapshotsEnv = "PLEGD_FAULTS_SNAPSHOTS"

var _ = lab.AddRole(snapshotsEnv, func() int {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		return 1
	}
	fmt.Println("ready")
	_ = newSnapshots(func(grpc.ServerStream) {
		lock, err := os.Open(os.Args[2])
		if err != nil {
			return
		}
		defer func() { _ = lock.Close() }()
		for unix.Flock(int(lock.Fd()), unix.LOCK_EX) == unix.EINTR {
		}
	}).Serve(listener)
	return 0
})

// serveSnapshots serves a snapshotter that has nothing and is to prepare nothing: it leaves such requests unanswered.
func (b *bench) serveSnapshots() {
	b.t.Helper()
	listener, err := net.Listen("unix", b.file("mute.sock"))
	b.must(err)
	b.snapshots = newSnapshots(func(stream grpc.ServerStream) { <-stream.Context().Done() })
	go func() { _ = b.snapshots.Serve(listener) }() // until Stop
	b.t.Cleanup(b.snapshots.Stop)
}

// newSnapshots returns a snapshotter that has nothing and is called to prepare something.
func newSnapshots(prepare func(grpc.ServerStream)) *grpc.Server {
	return grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		switch {
		case strings.HasSuffix(method, "/List"):
			return nil
		case strings.HasSuffix(method, "/Prepare"):
			prepare(stream)
		}
		return status.Error(codes.NotFound, "not there")
	}))
}

// startLockedSnapshots restarts the runtime with a snapshotter that waits for a lock with each request.
func (b *bench) startLockedSnapshots() {
	b.t.Helper()
	b.must(os.WriteFile(b.file("mute.lock"), nil, 0o600))
	server := lab.Again(b.t, snapshotsEnv, 1)
	server.Args = append(server.Args, b.file("mute.sock"), b.file("mute.lock"))
	out, err := server.StdoutPipe()
	b.must(err)
	lab.StartCommand(b.t, server)
	_, err = out.Read(make([]byte, 1)) // it is ready
	b.must(err)
	b.useSnapshots()
}

// lockSnapshots has another process take the lock for which that snapshotter waits, starts a pod, and tells the kubelet of it.
func (b *bench) lockSnapshots(tell func(isHeld bool)) (unlock func()) {
	b.t.Helper()
	holder, release := b.HoldLock("flock", b.file("mute.lock"))
	b.other = holder
	wait := b.startHostPod()
	tell(true)
	return func() {
		tell(false)
		inTurn(release, wait)()
	}
}

// useSnapshots restarts the runtime with that snapshotter.
func (b *bench) useSnapshots() {
	b.t.Helper()
	b.Terminate()
	b.ReplaceInConfig(firstPlugin, strings.ReplaceAll(missingSnapshotter, "nydus", "mute")+
		fmt.Sprintf("[proxy_plugins.mute]\n  type = \"snapshot\"\n  address = %q\n", b.file("mute.sock"))+firstPlugin)
	b.Start()
}

// serveKubeletMetrics serves the metrics of a kubelet: while it is not well each of its calls that start pods runs into a
// deadline, and while it waits none has ended.
func (b *bench) serveKubeletMetrics() {
	b.kubelet = &atomic.Bool{}
	b.kubelet.Store(true)
	b.kubeletWaits = &atomic.Bool{}
	b.kubeletTime = &atomic.Int64{}
	var failed, ended, took atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		waiting := 0
		if b.kubeletWaits.Load() {
			waiting = 1
		} else {
			ended.Add(1)
			took.Add(b.kubeletTime.Load())
		}
		n := ended.Load()
		if !b.kubelet.Load() {
			failed.Add(1)
			waiting = 3
		}
		const operation = `{operation_type="run_podsandbox"}`
		fmt.Fprintf(w, "kubelet_pleg_last_seen_seconds %d\n", time.Now().Unix())
		fmt.Fprintf(w, "kubelet_working_pods{config=\"desired\",lifecycle=\"sync\"} %d\n", waiting)
		fmt.Fprintf(w, "kubelet_runtime_operations_total%s %d\n", operation, n)
		fmt.Fprintf(w, "kubelet_runtime_operations_errors_total%s %d\n", operation, failed.Load())
		fmt.Fprintf(w, "kubelet_runtime_operations_duration_seconds_sum%s %g\n", operation, 240*float64(failed.Load())+time.Duration(took.Load()).Seconds())
	}))
	b.t.Cleanup(s.Close)
	b.flags = []string{"--kubelet-metrics-url=" + s.URL + "/metrics"}
}
