//go:build e2e

package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// fault is one line of the matrix: what goes wrong, and what plegd must say.
type fault struct {
	name string
	// want is the primary reason, goal how soon it is to be named.
	want string
	goal time.Duration
	// limit is when the test gives up; 0: twice the goal.
	limit time.Duration
	// also must be active beside it.
	also []string
	// evidence must stand in the evidence of want.
	evidence func(*bench) string
	// explained looks at what plegd says of the cause once want is named, and returns
	// what is wrong with it; nil where that is not looked at.
	explained func(*bench) (wrong string)
	// onTheWay may be primary beside want until the fix, onTheWayBack from
	// the fix on: reasons that are true of the node at that moment, each for
	// the cause that stands beside it. Any other primary reason fails the run.
	onTheWay, onTheWayBack []string
	// back is how soon all is to be well, backLimit when the test fails; 0: 2 s
	// and 5 s.
	back, backLimit time.Duration
	// phase is the period of what finds the fault: it is made at a random moment
	// of it. 0: a second.
	phase time.Duration
	// hold is how long the fault lasts after it was named; 0: between 1 and 6 s,
	// in most of which a Status is asked for too.
	hold time.Duration

	// on are the runtimes that the fault is made on, as RuntimeColumn names them
	// or a word that several begin with; nil: all. why is said of the others.
	on  []string
	why string

	options lab.ContainerdOptions
	plegd   lab.PlegdOptions
	// start starts what stands in for containerd, in place of simulate.
	start func(*bench)
	// simulate are the arguments of `plegd simulate`, which then stands in for
	// containerd.
	simulate []string
	// fresh is true for a fault that the runtime does not survive as it was: each
	// run then has a runtime of its own.
	fresh bool
	// restarts is true for one that ends the runtime: each run then has a plegd
	// of its own, or the third would rightly be RuntimeRestarting.
	restarts bool
	// configure is done before containerd is started for the first time, prepare
	// after it has its pods.
	configure, prepare func(*bench)
	// inject makes the fault and returns what fixes it, which returns when it is
	// fixed.
	inject func(*bench) (fix func())
}

const (
	podCount = 5
	// calm is how long all must stay well to count as such.
	calm = 1500 * time.Millisecond
)

// bench is a runtime to break.
type bench struct {
	t *testing.T
	*lab.Containerd
	cri    *lab.CRI
	pods   []*lab.Pod
	socket string
	group  *lab.ControlGroup
	disk   *lab.FileSystem
	plegd  *lab.Plegd
	// victim is the container into which a fault is injected.
	victim *lab.Container
	crio   *lab.CRIO
	docker *lab.FakeDocker
	// dockerd is the real Docker daemon, behind cri-dockerd alone.
	dockerd *lab.Dockerd
	// kubelet is whether the fake kubelet is well, pressure the file that plegd
	// sees in place of /proc/pressure/memory.
	kubelet  *atomic.Bool
	pressure string
	// flags are plegd's, beside those of the fault; files as in PlegdOptions.
	flags []string
	files map[string]string
	// second is another runtime, impostor the pid of a program that is none.
	second   *lab.Containerd
	impostor int
	// volume is a mounted file system of a container.
	volume *lab.Volume
	// holder is the pid of who has a lock.
	holder int
	// injected is the moment from which the naming counts.
	injected time.Time
}

func newBench(t *testing.T, f *fault) *bench {
	t.Helper()
	b := &bench{t: t}
	if f.simulate != nil {
		b.socket = filepath.Join(lab.Dir(t), "sim.sock")
		simulate(t, b.socket, f.simulate)
		if f.start != nil {
			f.start(b)
		}
		return b
	}
	if f.start != nil {
		f.start(b)
		return b
	}
	options := f.options
	options.NotStarted = true
	b.Containerd = lab.NewContainerd(t, options)
	b.socket = b.Socket
	if b.dockerd = b.Dockerd(); b.dockerd != nil {
		b.flags = []string{"--docker-socket=" + b.dockerd.Socket}
	}
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

// simulate runs plegd's fake runtime until the test ends.
func simulate(t *testing.T, socket string, args []string) {
	t.Helper()
	cmd := exec.Command(lab.Binary(t), append([]string{"simulate", "--socket=" + socket}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lab.Eventually(t, 10*time.Second, "plegd simulate serves", func() error {
		_, err := fakeruntime.ReadFailpoints(t.Context(), socket)
		return err
	})
}

// failpoints puts failpoints in place of those of `plegd simulate`.
func (b *bench) failpoints(spec string) {
	b.t.Helper()
	if _, err := fakeruntime.WriteFailpoints(b.t.Context(), b.socket, spec); err != nil {
		b.t.Fatal(err)
	}
}

// connect opens idle connections to the runtime until there are n or none
// can be made.
func (b *bench) connect(n int) []net.Conn { return connectTo(b.socket, n) }

func closeAll(open []net.Conn) {
	for _, c := range open {
		_ = c.Close()
	}
}

// result is what one run showed. A time below 0 never came.
type result struct {
	named, back time.Duration
	others      []string
	wrong       string
}

// sight is what plegd said at one moment, asked or in its log.
type sight struct {
	at            time.Time
	state, reason string
	active        []string // nil in the log
	// evidence is the primary reason's, "" in the log.
	evidence string
	// busy is true when the machine was, by its own account, short of CPU.
	busy bool
}

// eye keeps what plegd says.
type eye struct {
	plegd *lab.Plegd

	mu     sync.Mutex
	sights []sight
	lines  int
	busy   bool
	stop   chan struct{}
	done   chan struct{}
}

// look begins to ask plegd for its verdict every 50 ms.
func look(p *lab.Plegd) *eye {
	e := &eye{plegd: p, stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			if s, err := p.Status(); err == nil {
				seen := sight{at: time.Now(), state: s.State, reason: s.Reason, active: []string{}}
				for _, r := range s.Reasons {
					seen.active = append(seen.active, r.ID)
					if r.ID == s.Reason {
						seen.evidence = strings.Join(r.Evidence, "; ")
					}
				}
				e.mu.Lock()
				e.busy = lab.CPUPressure() >= lab.Pressed
				seen.busy = e.busy
				e.sights = append(e.sights, seen)
				e.mu.Unlock()
			}
			select {
			case <-e.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return e
}

func (e *eye) close() {
	close(e.stop)
	<-e.done
}

// since returns what was seen and logged after a moment, in its order.
func (e *eye) since(from time.Time) []sight {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := e.plegd.Log.Since(e.lines)
	e.lines += len(lines)
	for _, l := range lines {
		if l.Message() == "verdict changed" {
			e.sights = append(e.sights, sight{at: l.At, state: l.String("state"), reason: l.String("reason"), busy: e.busy})
		}
	}
	slices.SortStableFunc(e.sights, func(a, b sight) int { return a.at.Compare(b.at) })
	i := slices.IndexFunc(e.sights, func(s sight) bool { return s.at.After(from) })
	if i < 0 {
		return nil
	}
	return slices.Clone(e.sights[i:])
}

// await returns the first sight after a moment that is as asked for.
func (e *eye) await(from time.Time, limit time.Duration, is func(sight) bool) (sight, bool) {
	for {
		late := time.Since(from) > limit
		sights := e.since(from)
		if i := slices.IndexFunc(sights, is); i >= 0 {
			return sights[i], true
		}
		if late {
			return sight{}, false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// story tells how the verdict changed, with the seconds since a moment.
func story(sights []sight, from time.Time) string {
	var parts []string
	last := ""
	for _, s := range sights {
		now := strings.TrimSuffix(s.state+"/"+s.reason, "/")
		if now != last {
			parts = append(parts, fmt.Sprintf("%.2fs %s", s.at.Sub(from).Seconds(), now))
			last = now
		}
	}
	return strings.Join(parts, ", ")
}

func reasons(sights []sight, but string) (ids []string) {
	for _, s := range sights {
		if s.reason != "" && s.reason != but && !slices.Contains(ids, s.reason) {
			ids = append(ids, s.reason)
		}
	}
	return ids
}

// watch starts a plegd, unless the one of the run before continues.
func (b *bench) watch(f *fault) {
	b.t.Helper()
	if b.plegd != nil {
		return
	}
	options := f.plegd
	options.Flags = slices.Concat([]string{"--log.level=info", "--kubelet-healthz-url="}, b.flags, options.Flags)
	options.Files = b.files
	b.plegd = lab.NewPlegd(b.t, b.socket, options)
	b.plegd.AwaitState(time.Minute, string(health.StateHealthy))
	time.Sleep(2500 * time.Millisecond) // the sources of evidence have looked
}

// unwatch ends plegd: the next run starts another one.
func (b *bench) unwatch() {
	b.plegd.Stop()
	b.plegd = nil
}

// run makes the fault once.
func (b *bench) run(f *fault) (r result) {
	b.t.Helper()
	b.watch(f)
	first := len(b.plegd.Log.Since(0))
	defer func() {
		if f.restarts || r.wrong != "" {
			b.unwatch()
		}
	}()
	well := time.Now()
	e := look(b.plegd)
	defer e.close()
	b.plegd.AwaitRelists(time.Minute, 3) // a list that hung in the run before is not among the last
	time.Sleep(rand.N(f.phase))          // the moment is none in particular

	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	before := slices.DeleteFunc(e.since(well), func(s sight) bool { return s.busy && s.reason == health.NodePressure })
	if ids := reasons(before, ""); len(ids) > 0 {
		complain("%v before the fault", ids)
	}
	began := time.Now()
	b.injected = began
	fix := sync.OnceFunc(f.inject(b))
	defer fix()
	if f.explained != nil {
		if text := f.explained(b); text != "" {
			complain("%s", text)
		}
	}
	named, ok := e.await(b.injected, f.limit, func(s sight) bool { return s.reason == f.want })
	r.named = -1
	if ok {
		r.named = named.at.Sub(b.injected)
		hold := f.hold
		if hold == 0 {
			hold = time.Second + rand.N(5*time.Second)
		}
		time.Sleep(hold)
	} else {
		complain("never named %s", f.want)
	}
	for _, id := range f.also {
		if _, ok := e.await(began, 12*time.Second, func(s sight) bool {
			return s.reason == f.want && slices.Contains(s.active, id)
		}); !ok && r.named >= 0 {
			complain("%s never active beside it", id)
		}
	}

	if f.evidence != nil && r.named >= 0 {
		want, last := f.evidence(b), ""
		if _, ok := e.await(began, 5*time.Second, func(s sight) bool {
			if s.reason == f.want && s.evidence != "" {
				last = s.evidence
			}
			return s.reason == f.want && strings.Contains(s.evidence, want)
		}); !ok {
			complain("the evidence is %q, without %q", last, want)
		}
	}

	mending := time.Now()
	fix()
	fixed := time.Now()
	r.back = e.awaitCalm(fixed, f.backLimit)
	if r.back < 0 {
		complain("not healthy within %s", f.backLimit)
	}
	all := e.since(began)
	for _, s := range all {
		allowed := append([]string{f.want, ""}, f.onTheWay...)
		if s.busy {
			allowed = append(allowed, health.NodePressure) // which is not the fault, and true
		}
		if s.at.After(mending) {
			allowed = append(allowed, f.onTheWayBack...)
		}
		if !slices.Contains(allowed, s.reason) {
			complain("%s was primary %.2f s after the fault, %.2f s after the fix", s.reason, s.at.Sub(began).Seconds(), s.at.Sub(fixed).Seconds())
			break
		}
	}
	r.others = reasons(all, f.want)
	r.wrong = strings.Join(wrong, "; ")
	b.t.Logf("%s: named after %s, healthy after %s: %s", f.name, seconds(r.named), seconds(r.back), story(all, began))
	if r.wrong == "" {
		b.record(f, began)
	} else {
		b.t.Errorf("%s: %s", f.name, r.wrong)
		for _, l := range b.plegd.Log.Since(first) {
			b.t.Log(l.Text)
		}
	}
	return r
}

// awaitCalm waits until all is well and stays so, and returns how long that took
// since a moment; -1 when it does not come within the limit.
func (e *eye) awaitCalm(from time.Time, limit time.Duration) time.Duration {
	for {
		now := time.Now()
		sights := e.since(from)
		var well time.Time
		for _, s := range sights {
			switch {
			case s.state != string(health.StateHealthy) && (!s.busy || s.reason != health.NodePressure):
				well = time.Time{}
			case well.IsZero():
				well = s.at
			}
		}
		switch {
		case !well.IsZero() && now.Sub(well) > calm:
			return max(0, well.Sub(from))
		case now.Sub(from) > limit && (well.IsZero() || well.Sub(from) > limit):
			return -1
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestFaults makes every fault of the matrix, each on a containerd of its own;
// so many of them at once as LANES says, by go test's -parallel.
func TestFaults(t *testing.T) { makeAll(t, slices.Concat(matrix, dockerMatrix), 0) }

// TestShapes makes those that containerd does not show.
func TestShapes(t *testing.T) { makeAll(t, shapes, len(matrix)+len(dockerMatrix)) }

// makeAll makes faults; place is that of the first in the table.
func makeAll(t *testing.T, faults []fault, place int) {
	runs, lanes := number(t, "RUNS"), number(t, "LANES")
	order := make([]int, len(faults))
	for i := range faults {
		faults[i].complete()
		order[i] = i
	}
	if lanes > 1 { // those that wait for longest first
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(faults[b].length(), faults[a].length()) })
	}
	for _, i := range order {
		f := &faults[i]
		if lab.RuntimeGiven() && f.simulated() != lab.StandInsOnly() {
			continue // that is of another column
		}
		if why := f.leftOut(); why != "" {
			skip(f, why)
			continue
		}
		// A comma in a path is no path to an overlay.
		t.Run(strings.ReplaceAll(f.name, ",", ""), func(t *testing.T) {
			row := newRow(place+i, f, runs)
			t.Cleanup(func() {
				if t.Failed() && len(row.results) == 0 { // it broke off
					row.took(result{named: -1, back: -1, wrong: "it broke off"})
				}
			})
			if lanes > 1 {
				t.Parallel()
			}
			if f.fresh {
				for n := range runs {
					t.Run(strconv.Itoa(n+1), func(t *testing.T) {
						if lanes > 1 {
							t.Parallel()
						}
						row.took(newBench(t, f).run(f))
					})
				}
				return
			}
			b := newBench(t, f)
			for range runs {
				row.took(b.run(f))
			}
		})
	}
}

// number is a number from 1 that the environment may say; 1.
func number(t *testing.T, name string) int {
	s := os.Getenv(name)
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: want a number from 1", name, s)
	}
	return n
}

// simulated reports whether something stands in for the runtime.
func (f *fault) simulated() bool { return f.simulate != nil || f.start != nil }

// leftOut is why the fault is not made on the runtime of this run, "" when it is.
func (f *fault) leftOut() string {
	column := lab.RuntimeColumn()
	if f.simulated() || f.on == nil || slices.ContainsFunc(f.on, func(s string) bool { return strings.HasPrefix(column, s) }) {
		return ""
	}
	return cmp.Or(f.why, "only on "+strings.Join(f.on, ", "))
}

// length is how long a run takes, about.
func (f *fault) length() time.Duration { return f.limit + f.backLimit }

// complete fills in what a fault leaves out.
func (f *fault) complete() {
	for _, d := range []struct {
		value *time.Duration
		usual time.Duration
	}{{&f.limit, 2 * f.goal}, {&f.back, 2 * time.Second}, {&f.backLimit, 5 * time.Second}, {&f.phase, time.Second}} {
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
}
