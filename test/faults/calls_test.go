//go:build e2e

package faults

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// callFaults are those of what the runtime, or the kubelet, answers. A list fails
// within a relist period and is named within 3 s, Status within 8 s.
var callFaults = []fault{
	{
		name: "no CNI configuration", on: onContainerd,
		want: health.NetworkNotReady, goal: 8 * time.Second, phase: 5 * time.Second, make: withoutNetwork,
		steps: []pasted{{holds: "lastCNILoadStatus", want: "cni"}},
	},
	{
		name: "list above the server's limit", on: []string{"containerd", "cri-dockerd"},
		want: health.ListResponseTooLarge, goal: 3 * time.Second, onTheWay: []string{health.TooManyContainers}, prepare: manyHeavy, make: oneTooHeavy,
	},
	{
		name: "list above the client's limit", on: []string{"containerd", "CRI-O"},
		want: health.ListResponseTooLarge, goal: 3 * time.Second, onTheWay: []string{health.TooManyContainers},
		configure: func(b *bench) { b.LiftListLimit() }, prepare: manyHeavy, make: oneTooHeavy,
		steps: []pasted{
			{holds: "ps -a -q | wc -l", want: "ResourceExhausted", status: 1},
			{holds: "pods -q | wc -l", want: fmt.Sprint(podCount)},
			{holds: "--pod $p", want: " "},
		},
	},
	{
		name: "a list of 14 MB", want: health.TooManyContainers, goal: 5 * time.Second,
		onTheWay: []string{health.NodePressure, health.RelistSlow}, // 145 containers are made at once
		make: func(b *bench) func() {
			undo := b.nearLimit()
			b.injected = time.Now()
			return undo
		},
		steps: []pasted{{holds: "ps -a -q --state", want: "0"}, {holds: "pods -q --state", want: "0"}},
	},
	{
		name: "server is not initialized yet", want: health.RuntimeStarting, goal: 3 * time.Second, simulate: []string{"--pods=110"},
		make: func(b *bench) func() { return b.failpoints("*=error(Unknown: server is not initialized yet)") },
	},
	failing("ListPodSandbox hangs", health.RuntimeListStall, 3*time.Second, "ListPodSandbox=hang"),
	failing("ListContainers hangs", health.RuntimeListStall, 3*time.Second, "ListContainers=hang"),
	failing("both lists hang", health.RuntimeListStall, 3*time.Second, "ListPodSandbox=hang;ListContainers=hang"),
	failing("every call hangs", health.RuntimeUnresponsive, 3*time.Second, "*=hang",
		pasted{holds: "ps -L", want: "plegd"}, pasted{holds: "/proc/pressure/{cpu,io,memory}", want: "full avg10="}),
	failing("Status hangs", health.RuntimeNotReady, 8*time.Second, "Status=hang", pasted{holds: " info", want: "DeadlineExceeded", status: 1}),
	failing("Version hangs", health.NodeStatusStalled, 20*time.Second, "Version=hang", pasted{holds: " version", want: "DeadlineExceeded", status: 1}),
	failing("ListPodSandbox fails", health.Unknown, 5*time.Second, "ListPodSandbox=error(Internal: no such bucket)"),
	failing("ListContainers fails", health.Unknown, 5*time.Second, "ListContainers=error(Internal: no such bucket)",
		pasted{holds: "plegd status", want: "no such bucket", status: -1}),
	failing("nobody accepts", health.AcceptStalled, 6*time.Second, "socket=noaccept", pasted{holds: "ss -xlp", want: "plegd"}),
	{
		name: "the kubelet stalls, the runtime is well", want: health.KubeletStalled, goal: 18 * time.Second, phase: 5 * time.Second,
		back:     12 * time.Second, // it is asked every 5 s
		simulate: fewPods, start: fakeKubelet,
		make: func(b *bench) func() {
			b.kubelet.Store(false)
			return func() { b.kubelet.Store(true) }
		},
	},
	{
		// Its own health check fails minutes into such a fault: here at once.
		name: "the runtime stalls, and the kubelet says so", want: health.RuntimeListStall, goal: 3 * time.Second, hold: 15 * time.Second,
		simulate: fewPods, start: fakeKubelet,
		make: func(b *bench) func() {
			b.kubelet.Store(false)
			undo := b.failpoints("ListContainers=hang")
			return func() {
				b.kubelet.Store(true)
				undo()
			}
		},
	},
	{
		name: "inspections hang, pods change", want: health.PodInspectionStall, goal: 5 * time.Second, simulate: []string{"--pods=20", "--churn=0.2"},
		onTheWayBack: []string{health.RelistSlow}, // so long has the relist taken that has just ended
		make:         func(b *bench) func() { return b.failpoints("PodSandboxStatus=hang") },
		steps: []pasted{
			{holds: "plegd status", want: "under way", status: -1},
			{holds: "ps -eo pid", want: "shim"},
		},
	},
	{
		name: "inspections fail, pods change", want: health.PodInspectionStall, goal: 10 * time.Second, simulate: []string{"--pods=20", "--churn=0.2"},
		make:  func(b *bench) func() { return b.failpoints("PodSandboxStatus=error(Internal: no such file)") },
		steps: []pasted{{holds: "plegd status", want: "no such file", status: -1}},
	},
	{
		name: "inspections of 1 s", want: health.RelistSlow, goal: 20 * time.Second, simulate: []string{"--pods=120", "--churn=0.5"},
		back: 30 * time.Second,
		make: func(b *bench) func() { return b.failpoints("PodSandboxStatus=delay(1s);ContainerStatus=delay(1s)") },
	},
}

// failing is a fault of calls on the fake runtime.
func failing(name, want string, goal time.Duration, failpoints string, steps ...pasted) fault {
	return fault{
		name: name, want: want, goal: goal, simulate: fewPods, steps: steps,
		make: func(b *bench) func() { return b.failpoints(failpoints) },
	}
}

func withoutNetwork(b *bench) func() {
	b.must(os.Remove(b.CNIConfig))
	return b.WriteCNIConfig
}

// manyHeavy makes containers whose list takes 12 MB, and oneTooHeavy one that takes the
// list beyond 16 MiB.
func manyHeavy(b *bench) {
	runtime.Two(120, func(int) { b.pods[0].CreateHeavyContainer(100_000) })
}

func oneTooHeavy(b *bench) func() {
	c := b.pods[1].CreateHeavyContainer(6_000_000)
	b.injected = time.Now() // CRI-O takes seconds to create it
	return c.Remove
}

// nearLimit makes the list 14 MB long.
func (b *bench) nearLimit() (undo func()) {
	made := make([]*runtime.Container, 145)
	runtime.Two(len(made), func(i int) { made[i] = b.pods[0].CreateHeavyContainer(100_000) })
	return func() { runtime.Two(len(made), func(i int) { made[i].Remove() }) }
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

// twoFaults are faults that stand beside another one.
var twoFaults = []fault{
	{
		name: "400 idle connections, and no CNI configuration", on: onContainerd,
		want: health.AcceptFDExhausted, goal: 4 * time.Second, also: []string{health.NetworkNotReady}, options: runtime.ContainerdOptions{OpenFiles: 256},
		onTheWay: append([]string{health.NetworkNotReady}, noDescriptor...),
		// In this order: from 1.7 on Status fails without a descriptor, and then the
		// state of the network is not known.
		make: func(b *bench) func() {
			network := withoutNetwork(b)
			b.awaitActive(health.NetworkNotReady)
			b.injected = time.Now()
			end := b.connect(400)
			return func() {
				end()
				time.Sleep(1500 * time.Millisecond) // it takes a descriptor to read the file
				network()
			}
		},
	},
	{
		name: "accept queue full, and memory pressure", want: health.AcceptStalled, goal: 4 * time.Second, also: []string{health.NodePressure},
		onTheWay: []string{health.NodePressure}, onTheWayBack: []string{health.NodePressure, health.RelistSlow},
		back:     20 * time.Second, // pressure is read every 5 s
		simulate: fewPods,
		start: func(b *bench) {
			b.pressure = filepath.Join(lab.Dir(b.t), "memory")
			b.press(0)
			b.files = map[string]string{"/proc/pressure/memory": b.pressure}
		},
		make: func(b *bench) func() {
			b.press(80)
			undo := noAccept(b, ";ListContainers=delay(1500ms)")
			return func() {
				undo()
				b.press(0)
			}
		},
	},
}

// press writes the share of time in which tasks wait for memory into the file that
// stands for /proc/pressure/memory, in place: it is mounted.
func (b *bench) press(percent int) {
	b.t.Helper()
	text := fmt.Sprintf("some avg10=%d.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=%[1]d.00 avg60=0.00 avg300=0.00 total=1\n", percent)
	b.must(os.WriteFile(b.pressure, []byte(text), 0o644))
}

// awaitActive waits until a reason is active.
func (b *bench) awaitActive(id string) {
	b.t.Helper()
	lab.Eventually(b.t, 60*time.Second, id+" is active", func() error {
		s, err := b.plegd.Status()
		if sight := (lab.Sight{Status: s}); err != nil || !sight.Active(id) {
			return fmt.Errorf("%s %s: %w", s.State, s.Reason, err)
		}
		return nil
	})
}

// pluginFaults are those of a containerd that was restarted and did not load its CRI plugin.
// plegd is started before, so that it has seen the plugin serve.
var pluginFaults = []fault{
	{
		name: "restarted with a snapshotter that is not there", on: onContainerd, restarts: true,
		want: health.CRIPluginNotLoaded, goal: 6 * time.Second, evidence: constant("nydus"), next: constant("Start the snapshotter"),
		onTheWay: restartedContainerd, onTheWayBack: restartedContainerd, back: 20 * time.Second,
		make: restartedWith(firstPlugin, missingSnapshotter+firstPlugin),
	},
	{
		name: "restarted with the CRI plugin disabled", on: onContainerd, restarts: true,
		want: health.CRIPluginNotLoaded, goal: 6 * time.Second, evidence: constant("has no CRI plugin"), next: constant("disabled_plugins"),
		onTheWay: restartedContainerd, onTheWayBack: restartedContainerd, back: 20 * time.Second,
		make: restartedWith("version = ", "disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\nversion = "),
	},
}

var restartedContainerd = []string{
	health.RuntimeSocketMissing, health.RuntimeNotListening, health.RuntimeStarting, health.Unknown, health.RuntimeRestarting,
}

const (
	firstPlugin = `[plugins."io.containerd.internal.v1.opt"]`
	// missingSnapshotter names one in the sections of containerd 1.6 and of 2.x, which ignore
	// each other's.
	missingSnapshotter = `[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "nydus"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "nydus"
`
)

func constant(text string) func(*bench) string { return func(*bench) string { return text } }

// restartedWith restarts containerd with a changed configuration.
func restartedWith(old, changed string) func(*bench) func() {
	return func(b *bench) func() {
		b.Terminate()
		b.ReplaceInConfig(old, changed)
		b.Launch()
		return func() {
			b.Terminate()
			b.ReplaceInConfig(changed, old)
			b.Start()
		}
	}
}
