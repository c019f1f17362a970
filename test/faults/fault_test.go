//go:build e2e

package faults

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
	"github.com/plegd/plegd/test/lab/waiting"
)

// fault is a row of the table: the injected fault, and the verdict that plegd must reach.
type fault struct {
	name string
	// incident is the public incident that the row makes again, with its number; "" for none.
	incident string
	// want is the primary reason, goal the time within which it must be named. limit is
	// when the test gives up; 0: twice the goal.
	want        string
	goal, limit time.Duration
	// also must be active beside it, symptom is the symptom behind it.
	also    []string
	symptom string
	// evidence must stand in the evidence of want. culprit is the last link of the
	// chain (zero fields are not compared), next must stand in the next step.
	evidence, next func(*bench) string
	culprit        func(*bench) facts.Link
	// onTheWay may be primary beside want until the fix, onTheWayBack from the fix on:
	// reasons that are true at that moment. Any other primary reason fails the run.
	onTheWay, onTheWayBack []string
	// back is the limit for a healthy verdict after the fix; 0: 8 s.
	back time.Duration
	// phase is the period of the source that finds the fault: the fault is made at a
	// random moment of it. 0: a second.
	phase time.Duration
	// hold is how long the fault lasts after it was named; 0: 1 to 4 s.
	hold time.Duration
	// on are the runtimes that the row is made on, as RuntimeColumn names them or a
	// prefix of that; nil: all.
	on []string

	options runtime.ContainerdOptions
	plegd   lab.PlegdOptions
	// simulate are the arguments of `plegd simulate`, which then stands in for the
	// runtime; start starts other stand-ins.
	simulate []string
	start    func(*bench)
	// fresh is true for a fault that the runtime does not survive as it was: each run
	// has a runtime of its own. restarts is true for one that ends the runtime: each
	// run has a plegd of its own, or the third would be RuntimeRestarting.
	fresh, restarts bool
	// configure is called before the runtime's first start, prepare once it has pods.
	configure, prepare func(*bench)
	// make makes the fault and returns what undoes it.
	make func(*bench) (undo func())
	// steps are commands of reasons' steps, pasted while the fault stands.
	steps []pasted
	// restart is true for a fault in which a restart of the runtime must help and lose
	// no container: see TestRestart.
	restart bool
}

const (
	podCount = 4
	// calm is how long all must stay well after a fault.
	calm = 1500 * time.Millisecond
)

// bench is a runtime to break.
type bench struct {
	t *testing.T
	*runtime.Containerd
	// simulated is the fake runtime of a fault that has one.
	simulated *lab.Simulated
	cri       *runtime.CRI
	pods      []*runtime.Pod
	socket    string
	group     *lab.ControlGroup
	disk      *runtime.FileSystem
	plegd     *lab.Plegd
	// victim is the container into which a fault is injected.
	victim *runtime.Container
	// logged is a container with a log.
	logged loggedContainer
	// dockerd is the Docker daemon, behind cri-dockerd alone.
	dockerd *runtime.Dockerd
	// kubelet is whether the fake kubelet is well, pressure the file that plegd reads
	// in place of /proc/pressure/memory.
	kubelet *atomic.Bool
	// kubeletWaits is true while it waits for a start that does not end.
	kubeletWaits *atomic.Bool
	// kubeletTime is how long its last start took.
	kubeletTime *atomic.Int64
	pressure    string
	// snapshots is a snapshotter that does not answer.
	snapshots *grpc.Server
	// flags are plegd's, beside those of the fault; files as in PlegdOptions.
	flags []string
	files map[string]string
	// second is another runtime, other the pid of another process of the fault.
	second *runtime.Containerd
	other  int
	// injected is the moment from which the naming counts.
	injected time.Time
}

func newBench(t *testing.T, f *fault) *bench {
	t.Helper()
	b := &bench{t: t}
	if f.simulate != nil {
		b.simulated = lab.NewSimulated(t, f.simulate...)
		b.socket = b.simulated.Socket
		if f.start != nil {
			f.start(b)
		}
		return b
	}
	options := f.options
	options.NotStarted = true
	b.Containerd = runtime.NewContainerd(t, options)
	b.socket, b.dockerd = b.Socket, b.Dockerd()
	if f.configure != nil {
		f.configure(b)
	}
	b.Start()
	b.cri = b.CRI(t)
	b.pods = b.cri.RunPods(podCount, 1)
	if f.prepare != nil {
		f.prepare(b)
	}
	return b
}

// helper starts a process of a fault, and returns what ends it.
func (b *bench) helper(mode, argument string) (end func()) {
	b.t.Helper()
	p := waiting.Program(b.t, mode, argument)
	b.other = p.PID
	return p.End
}

// failpoints replaces the failpoints of `plegd simulate`, and returns what removes them.
func (b *bench) failpoints(spec string) (undo func()) {
	b.t.Helper()
	b.simulated.Fail(spec)
	return func() { b.simulated.Fail("") }
}

func (b *bench) must(err error) {
	b.t.Helper()
	lab.Must(b.t, err)
}

// connect opens idle connections to the runtime until there are n or none can be made.
func (b *bench) connect(n int) (end func()) { return connectTo(b.socket, n) }

func connectTo(socket string, n int) (end func()) {
	var open []net.Conn
	for range n {
		c, err := net.Dial("unix", socket)
		if err != nil {
			break
		}
		open = append(open, c)
	}
	return func() {
		for _, c := range open {
			_ = c.Close()
		}
	}
}

// file returns a path beside the runtime's socket.
func (b *bench) file(names ...string) string {
	return filepath.Join(append([]string{filepath.Dir(b.socket)}, names...)...)
}

// watch starts a plegd, unless the one of the run before continues.
func (b *bench) watch(f *fault) {
	b.t.Helper()
	if b.plegd != nil {
		return
	}
	options := f.plegd
	options.Flags = slices.Concat([]string{"--log.level=info"}, b.flags, options.Flags)
	options.Files = b.files
	b.plegd = lab.NewPlegd(b.t, b.socket, options)
	b.plegd.AwaitState(time.Minute, string(facts.StateHealthy))
}

// unwatch ends plegd: the next run starts another one.
func (b *bench) unwatch() {
	b.plegd.Stop()
	b.plegd = nil
}

// inTurn calls functions one after another.
func inTurn(all ...func()) func() {
	return func() {
		for _, f := range all {
			f()
		}
	}
}

// inBackground makes a call that hangs, and returns a function that waits for its end.
func inBackground(call func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	return func() { <-done }
}

// pidOf returns the oldest process whose command line holds all words, -1 while there
// is none.
func pidOf(words ...string) int {
	oldest := -1
	for pid, text := range lab.CommandLines() {
		missing := slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
		if !missing && (oldest < 0 || pid < oldest) {
			oldest = pid
		}
	}
	return oldest
}
