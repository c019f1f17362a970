//go:build e2e

package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// shapes are faults as CRI-O and cri-dockerd show them, made by processes that
// behave as these do, and those in which only a call or only the kubelet fails,
// on `plegd simulate` and a fake kubelet.
var shapes = []fault{
	{
		// It connects, and nobody accepts: for as long as that takes.
		name: "CRI-O listens before it restores", want: health.RuntimeStarting, goal: 4 * time.Second, restarts: true,
		start:    crio(0),
		onTheWay: []string{health.RuntimeSocketMissing, health.RuntimeNotListening}, // before it listens
		inject: func(b *bench) func() {
			b.crio.Kill()
			b.must(os.WriteFile(b.crio.Restoring, nil, 0o600))
			b.crio.Launch()
			return func() {
				b.must(os.Remove(b.crio.Restoring))
				b.crio.AwaitAnswer()
			}
		},
	},
	{
		name: "CRI-O waits for the storage's lock", want: health.RuntimeStorageLocked, goal: 5 * time.Second, restarts: true,
		start: crio(0),
		// Until it has waited for a second.
		onTheWay:     []string{health.RuntimeSocketMissing, health.RuntimeStarting},
		onTheWayBack: []string{health.RuntimeSocketMissing, health.RuntimeStarting},
		inject: func(b *bench) func() {
			release := b.crio.HoldLock()
			b.crio.Kill()
			b.crio.Launch()
			return func() {
				release()
				b.crio.AwaitAnswer()
			}
		},
	},
	{
		name: "CRI-O without a descriptor, a core burnt", want: health.AcceptFDExhausted, goal: 4 * time.Second,
		start:    crio(40),
		onTheWay: noDescriptor,
		evidence: func(*bench) string { return "busy" }, // the core
		inject: func(b *bench) func() {
			open := b.connect(100)
			return func() { closeAll(open) }
		},
	},
	{
		name: "conmon stopped", want: health.ShimStuck, goal: 5 * time.Second,
		start: crio(0),
		inject: func(b *bench) func() {
			pid := b.crio.Conmon()
			b.must(syscall.Kill(pid, syscall.SIGSTOP))
			return func() { b.must(syscall.Kill(pid, syscall.SIGCONT)) }
		},
	},
	{
		// cri-dockerd answers, in its own words.
		name: "dockerd accepts nothing, behind cri-dockerd", want: health.RuntimeUnresponsive, goal: 6 * time.Second,
		start: func(b *bench) {
			b.socket = filepath.Join(lab.Dir(b.t), "cri-dockerd.sock")
			simulate(b.t, b.socket, []string{"--pods=5"})
			b.docker = lab.NewFakeDocker(b.t)
			b.flags = []string{"--docker-socket=" + b.docker.Socket}
		},
		inject: func(b *bench) func() {
			b.docker.Accept(false)
			b.failpoints("*=error(Unknown: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?);Version=off")
			return func() {
				b.docker.Accept(true)
				b.failpoints("")
			}
		},
	},
	callFault("ListPodSandbox hangs", health.RuntimeListStall, 3*time.Second, "ListPodSandbox=hang"),
	callFault("ListContainers hangs", health.RuntimeListStall, 3*time.Second, "ListContainers=hang"),
	callFault("both lists hang", health.RuntimeListStall, 3*time.Second, "ListPodSandbox=hang;ListContainers=hang"),
	callFault("every call hangs", health.RuntimeUnresponsive, 3*time.Second, "*=hang"),
	callFault("Status hangs", health.RuntimeNotReady, 8*time.Second, "Status=hang"),
	callFault("ListPodSandbox fails", health.Unknown, 5*time.Second, "ListPodSandbox=error(Internal: no such bucket)"),
	callFault("ListContainers fails", health.Unknown, 5*time.Second, "ListContainers=error(Internal: no such bucket)"),
	{
		name: "the kubelet stalls, the runtime is well", want: health.KubeletStalled, goal: 18 * time.Second, phase: 5 * time.Second,
		back: 6 * time.Second, backLimit: 8 * time.Second, // it is asked every 5 s
		simulate: []string{"--pods=5"}, start: fakeKubelet,
		inject: func(b *bench) func() {
			b.kubelet.Store(false)
			return func() { b.kubelet.Store(true) }
		},
	},
	{
		// Its own health check fails minutes into such a fault: here at once.
		name: "the runtime stalls, and the kubelet says so", want: health.RuntimeListStall, goal: 3 * time.Second,
		hold:     15 * time.Second,
		simulate: []string{"--pods=5"}, start: fakeKubelet,
		inject: func(b *bench) func() {
			b.kubelet.Store(false)
			b.failpoints("ListContainers=hang")
			return func() {
				b.kubelet.Store(true)
				b.failpoints("")
			}
		},
	},
	{
		name: "accept queue full, and memory pressure", want: health.AcceptStalled, goal: 4 * time.Second,
		also:         []string{health.NodePressure},
		onTheWay:     []string{health.NodePressure}, // whichever is found first
		onTheWayBack: []string{health.NodePressure}, // looked at every 5 s
		back:         6 * time.Second, backLimit: 8 * time.Second,
		simulate: []string{"--pods=5"},
		start: func(b *bench) {
			b.pressure = filepath.Join(lab.Dir(b.t), "memory")
			b.press(0)
			b.files = map[string]string{"/proc/pressure/memory": b.pressure}
		},
		inject: func(b *bench) func() {
			b.press(80)
			b.failpoints("socket=noaccept;ListContainers=delay(500ms)") // as slow as all is then
			open := b.connect(10000)
			return func() {
				closeAll(open)
				b.failpoints("")
				b.press(0)
			}
		},
	},
}

// crio starts a fake CRI-O with so many descriptors; 0: with enough.
func crio(openFiles uint64) func(*bench) {
	return func(b *bench) {
		b.crio = lab.NewCRIO(b.t, openFiles, 3)
		b.socket = b.crio.Socket
	}
}

// callFault is a fault of calls on the fake runtime.
func callFault(name, want string, goal time.Duration, failpoints string) fault {
	return fault{
		name: name, want: want, goal: goal, simulate: []string{"--pods=5"},
		inject: func(b *bench) func() {
			b.failpoints(failpoints)
			return func() { b.failpoints("") }
		},
	}
}

// fakeKubelet serves a healthz.
func fakeKubelet(b *bench) {
	b.kubelet = &atomic.Bool{}
	b.kubelet.Store(true)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !b.kubelet.Load() {
			http.Error(w, "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, "ok")
	}))
	b.t.Cleanup(s.Close)
	b.flags = []string{"--kubelet-healthz-url=" + s.URL + "/healthz"}
}

// press says in the file that stands for /proc/pressure/memory for how many per
// cent of the time tasks wait for memory. It is written in place: it is mounted.
func (b *bench) press(percent int) {
	b.t.Helper()
	text := fmt.Sprintf("some avg10=%d.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=%d.00 avg60=0.00 avg300=0.00 total=1\n", percent, percent)
	b.must(os.WriteFile(b.pressure, []byte(text), 0o644))
}
