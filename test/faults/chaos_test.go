//go:build e2e

package faults

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

const (
	// atOnce is the most faults at one time.
	atOnce = 3
	// apart lies between two runtime restarts: two at most in five minutes.
	apart = 160 * time.Second
	// rightShare of the counted injections must be right.
	rightShare = 0.98
	// settle is how long the node is left alone before plegd is measured.
	settle = 20 * time.Second
)

// kind is a row of the table that TestChaos makes.
type kind struct {
	name string
	// with are the kinds that may stand beside it: those whose evidence it does not hide. A
	// frozen runtime answers no Status, so nobody can tell of its network.
	with []string
	// restarts is true where the runtime ends: the third time within five minutes would
	// rightly be RuntimeRestarting.
	restarts bool
}

const (
	unlinked  = "socket unlinked"
	stopped   = "SIGSTOP"
	frozen    = "cgroup frozen"
	noFiles   = "prlimit to 8 fds"
	throttled = "CPU quota of 2 ms a second"
	noCNI     = "no CNI configuration"
	stuckShim = "shim stopped"
)

var kinds = []kind{
	{name: unlinked, with: []string{stuckShim, noCNI}},
	{name: "kill -9", restarts: true},
	{name: "SIGTERM", restarts: true},
	{name: stopped, with: []string{stuckShim}},
	{name: frozen, with: []string{stuckShim}},
	{name: noFiles, with: []string{stuckShim}},
	{name: throttled},
	{name: noCNI, with: []string{stuckShim, unlinked}},
	{name: stuckShim, with: []string{unlinked, stopped, frozen, noFiles, noCNI}},
}

// fits reports whether a kind may stand beside others.
func (k *kind) fits(others []*injection) bool {
	return !slices.ContainsFunc(others, func(o *injection) bool {
		return o.name == k.name || !slices.Contains(o.with, k.name) || !slices.Contains(k.with, o.name)
	})
}

// inject makes a fault and returns what fixes it. The runtime is in the cgroup of b all the
// time: a quota comes to where it is, not the runtime to a quota.
func (b *bench) inject(k *kind) (fix func()) {
	f, own := faultNamed(b.t, k.name), *b
	if k.name == throttled {
		b.group.Enter()
	} else if f.prepare != nil {
		f.prepare(&own)
	}
	fix = f.make(&own)
	if k.restarts {
		return inTurn(fix, func() { b.group = lab.NewControlGroup(b.t, "cpu", b.Pid()) })
	}
	return fix
}

// TestChaos breaks the runtime at random for DURATION, kills plegd now and then, and compares
// the faults with the recorded incidents. `make soak-chaos` runs it.
func TestChaos(t *testing.T) {
	needContainerd(t)
	length := lab.Duration(t, "DURATION", 5*time.Minute, time.Minute, 7*24*time.Hour)
	seed := lab.Number(t, "SEED", 1+rand.IntN(1<<32))
	t.Logf("SEED=%d DURATION=%s", seed, length)

	b := newBench(t, &fault{})
	runtime.Two(100, func(int) { b.pods[1].CreateHeavyContainer(1000) }) // or a throttled runtime would still answer at once
	b.group = lab.NewControlGroup(t, "cpu", b.Pid())
	b.watch(&fault{})
	time.Sleep(settle)
	before := b.measure()

	c := &chaos{bench: b, r: rand.New(rand.NewPCG(uint64(seed), 0))}
	c.run(time.Now().Add(length))

	b.plegd.AwaitState(time.Minute, string(facts.StateHealthy))
	time.Sleep(settle)
	after := b.measure()
	t.Logf("plegd before and after: %+v, %+v", before, after)
	if after.goroutines > before.goroutines+8 || after.fds > before.fds+4 || after.rss > before.rss*3/2+(8<<20) {
		t.Errorf("plegd has grown: %+v, then %+v", before, after)
	}
	c.judge()
}

// chaos is a run.
type chaos struct {
	*bench
	r *rand.Rand

	made    []*injection
	up      []time.Time // from when a killed plegd served again
	restart time.Time   // the last time that the runtime was ended
}

// run makes episodes until a moment: one fault or several that overlap, and
// then a time in which all is well.
func (c *chaos) run(until time.Time) {
	for time.Now().Before(until) {
		c.episode()
		c.plegd.AwaitState(90*time.Second, string(facts.StateHealthy))
		time.Sleep(c.span(7, 12)) // longer than the rest of a fault
	}
}

// span is a random time between two numbers of seconds.
func (c *chaos) span(from, to float64) time.Duration {
	return time.Duration((from + c.r.Float64()*(to-from)) * float64(time.Second))
}

// plans chooses the faults of an episode: when each begins and how long it lasts.
func (c *chaos) plans() (out []*injection) {
	n := 1 + c.r.IntN(atOnce)
	for _, i := range c.r.Perm(len(kinds)) {
		k := &kinds[i]
		if len(out) == n || !k.fits(out) || k.restarts && time.Since(c.restart) < apart {
			continue
		}
		f := faultNamed(c.t, k.name)
		j := &injection{kind: k, reason: f.want, goal: f.goal, lasts: c.span(12, 25)}
		if c.r.IntN(6) == 0 {
			j.lasts = c.span(4, 9) // named, and not counted
		}
		if len(out) > 0 {
			j.after = c.span(0, 8)
		}
		out = append(out, j)
		if k.restarts {
			c.restart = time.Now()
		}
	}
	for _, j := range out {
		j.alone = len(out) == 1
	}
	return out
}

// episode makes some faults that overlap.
func (c *chaos) episode() {
	plans := c.plans()
	var names []string
	for _, j := range plans {
		names = append(names, j.name)
	}
	c.t.Logf("%s: %s", time.Now().Format(time.TimeOnly), strings.Join(names, "; "))
	began := time.Now()
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	for _, j := range plans {
		var fix func()
		events = append(events, event{j.after, func() {
			j.from = time.Now()
			fix = c.inject(j.kind)
			j.made = time.Now()
		}}, event{j.after + j.lasts, func() {
			fix()
			j.to = time.Now()
		}})
	}
	// plegd is killed beside the faults, not between them: a recovery may take seconds. A
	// plegd that starts while the socket is unlinked cannot ask for the network's Status.
	var killing sync.WaitGroup
	if hidden := slices.Contains(names, unlinked) && slices.Contains(names, noCNI); c.r.IntN(4) == 0 && !hidden {
		kill := c.span(0.1, 25)
		killing.Go(func() {
			time.Sleep(kill)
			c.plegd.Kill()
			c.plegd.Start()
			c.up = append(c.up, time.Now())
		})
	}
	slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
	for _, e := range events {
		time.Sleep(time.Until(began.Add(e.at)))
		e.do()
	}
	killing.Wait()
	c.made = append(c.made, plans...)
}

// size is the memory, threads and files of plegd.
type size struct {
	goroutines, fds, rss float64
}

func (b *bench) measure() (s size) {
	b.t.Helper()
	m := b.plegd.MustMetrics()
	s.goroutines, _ = m.Value("go_goroutines")
	s.fds, _ = m.Value("process_open_fds")
	s.rss, _ = m.Value("process_resident_memory_bytes")
	return s
}
