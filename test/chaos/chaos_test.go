//go:build e2e

package chaos

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/lab"
)

const (
	podCount = 5
	// atOnce is the most faults at one time.
	atOnce = 3
	// apart lies between two runtime restarts: two at most in five minutes.
	apart = 160 * time.Second
	// rightShare of the counted injections must be right.
	rightShare = 0.98
	// settle is how long the node is left alone before plegd is measured.
	settle = 20 * time.Second
)

// TestChaos breaks and compares.
func TestChaos(t *testing.T) {
	length, seed := 5*time.Minute, rand.Uint64N(1<<32)
	if s := os.Getenv("DURATION"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d < time.Minute {
			t.Fatalf("DURATION is %q: want at least 1m", s)
		}
		length = d
	}
	if s := os.Getenv("SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("SEED is %q: want a number", s)
		}
		seed = n
	}
	t.Logf("SEED=%d DURATION=%s", seed, length)

	b := &bench{t: t, Containerd: lab.NewContainerd(t, lab.ContainerdOptions{})}
	b.pods = b.CRI(t).RunPods(podCount, 1)
	lab.Two(100, func(int) { b.pods[1].CreateHeavyContainer(1000) }) // or a throttled runtime would still answer at once
	b.cpu = lab.NewControlGroup(t, "cpu", b.Pid())
	p := lab.NewPlegd(t, b.Socket, lab.PlegdOptions{Flags: []string{"--log.level=info"}})
	p.AwaitState(time.Minute, string(health.StateHealthy))
	time.Sleep(settle)
	before := measure(t, p)

	c := &chaos{t: t, bench: b, plegd: p, r: rand.New(rand.NewPCG(seed, 0))}
	c.run(time.Now().Add(length))

	p.AwaitState(time.Minute, string(health.StateHealthy))
	time.Sleep(settle)
	after := measure(t, p)
	t.Logf("plegd before and after: %+v, %+v", before, after)
	if after.goroutines > before.goroutines+8 || after.fds > before.fds+4 || after.rss > before.rss*3/2+(8<<20) {
		t.Errorf("plegd has grown: %+v, then %+v", before, after)
	}
	c.judge()
}

// chaos is a run.
type chaos struct {
	t     *testing.T
	bench *bench
	plegd *lab.Plegd
	r     *rand.Rand

	injected []*injection
	kills    int
	up       []time.Time // from when a killed plegd served again
	restart  time.Time   // the last time that the runtime was ended
}

// run makes episodes until a moment: one fault or several that overlap, and
// then a time in which all is well.
func (c *chaos) run(until time.Time) {
	for time.Now().Before(until) {
		c.episode()
		c.plegd.AwaitState(90*time.Second, string(health.StateHealthy))
		time.Sleep(c.span(7, 12)) // longer than the rest of a fault
	}
}

// span is a random time between two numbers of seconds.
func (c *chaos) span(from, to float64) time.Duration {
	return time.Duration((from + c.r.Float64()*(to-from)) * float64(time.Second))
}

// plan is one fault of an episode: when it begins and how long it lasts.
type plan struct {
	kind
	after, lasts time.Duration
}

func (c *chaos) plans() (out []plan) {
	all := kinds()
	var chosen []kind
	for n := 1 + c.r.IntN(atOnce); len(chosen) < n; {
		fit := slices.DeleteFunc(slices.Clone(all), func(k kind) bool {
			return !k.fits(chosen) || k.restarts && time.Since(c.restart) < apart
		})
		if len(fit) == 0 {
			break
		}
		chosen = append(chosen, fit[c.r.IntN(len(fit))])
	}
	for i, k := range chosen {
		p := plan{kind: k, lasts: c.span(12, 25)}
		if c.r.IntN(6) == 0 {
			p.lasts = c.span(4, 9) // named, and not counted
		}
		if i > 0 {
			p.after = c.span(0, 8)
		}
		out = append(out, p)
		if k.restarts {
			c.restart = time.Now()
		}
	}
	return out
}

// episode makes some faults that overlap.
func (c *chaos) episode() {
	plans := c.plans()
	var names []string
	for _, p := range plans {
		names = append(names, p.name)
	}
	c.t.Logf("%s: %s", time.Now().Format(time.TimeOnly), strings.Join(names, "; "))
	var kill time.Duration
	// A plegd that starts while the socket is unlinked cannot ask the runtime
	// anything, its Status for the network neither.
	hidden := slices.Contains(names, unlinked) && slices.Contains(names, noCNI)
	if c.r.IntN(4) == 0 && !hidden {
		kill = c.span(0.1, 25)
	}
	began := time.Now()
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	var open []*injection
	for _, p := range plans {
		j := &injection{kind: p.kind, alone: len(plans) == 1}
		open = append(open, j)
		var fix func()
		events = append(events,
			event{p.after, func() {
				j.from = time.Now()
				fix = p.inject(c.bench)
			}},
			event{p.after + p.lasts, func() {
				fix()
				j.to = time.Now()
			}})
	}
	// plegd is killed beside the faults, not between them: a mending may take
	// seconds.
	var killing sync.WaitGroup
	if kill > 0 {
		killing.Go(func() {
			time.Sleep(kill)
			c.plegd.Kill()
			c.plegd.Start()
			c.kills++
			c.up = append(c.up, time.Now())
		})
	}
	slices.SortFunc(events, func(a, b event) int { return int(a.at - b.at) })
	for _, e := range events {
		time.Sleep(time.Until(began.Add(e.at)))
		e.do()
	}
	killing.Wait()
	c.injected = append(c.injected, open...)
}

// judge compares.
func (c *chaos) judge() {
	t := c.t
	dir := incident.Dir(c.plegd.StateDir)
	list, bad, err := incident.Read(dir)
	if err != nil || len(bad) > 0 {
		t.Fatalf("read %s: %v, unreadable: %v", dir, err, bad)
	}
	var all []*incident.Incident
	for _, s := range list {
		one, err := incident.ReadOne(dir, s.ID)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
		if different, _ := incident.Replay(one); len(different) > 0 {
			t.Errorf("%s is judged differently now, at +%.1fs: was %s, is %s", s.ID, different[0].Offset, different[0].Was.Reason, different[0].Is.Reason)
		}
		if s.Outcome == incident.Open {
			t.Errorf("%s is open for ever: %s", s.ID, s.Reason)
		}
	}
	// The running daemon reports the same.
	said := lab.Command{Args: []string{"incidents", "-o", "json", "--control-socket=" + c.plegd.ControlSocket}}.Run(t, 10*time.Second)
	var told []incident.Summary
	if err := json.Unmarshal([]byte(said.Stdout), &told); err != nil || said.Code != 0 || len(told) != len(list) {
		t.Errorf("plegd incidents: exit %d, %d incidents, want %d: %v %s", said.Code, len(told), len(list), err, said.Stderr)
	}
	n, right := 0, 0
	for _, j := range c.injected {
		j.match(all, c.up)
	}
	beside(c.injected, all)
	for _, j := range c.injected {
		if j.to.Sub(j.from) < counted {
			continue
		}
		n++
		if j.wrong == "" {
			right++
			continue
		}
		id := ""
		if j.in != nil {
			id = j.in.ID
		}
		t.Logf("%s at %s for %s: %s %s", j.name, j.from.Format(time.TimeOnly), j.to.Sub(j.from).Round(time.Second), j.wrong, id)
	}
	out, machine := outside(all, c.injected)
	for _, one := range append(slices.Clone(out), machine...) {
		t.Logf("outside every fault: %s at %s for %.1f s: %s", one.ID, one.Opened.Local().Format(time.TimeOnly), one.Duration, one.Reason)
	}
	lab.Report(t, "%s\n%d faults, %d of them counted, %d right (%.0f %%); %d incidents, %d outside every fault, %d of the machine's own load; plegd killed %d times",
		table(c.injected), len(c.injected), n, right, 100*float64(right)/float64(max(1, n)), len(all), len(out), len(machine), c.kills)
	if float64(right) < rightShare*float64(n) {
		t.Errorf("%d of %d are right, want %.0f %%", right, n, 100*rightShare)
	}
	if len(out) > 0 {
		t.Errorf("%d incidents lie outside every fault", len(out))
	}
}

// size is the memory, threads and files of plegd.
type size struct {
	goroutines, fds float64
	rss             int64
}

func measure(t *testing.T, p *lab.Plegd) size {
	t.Helper()
	m := p.MustMetrics()
	var s size
	s.goroutines, _ = m.Value("go_goroutines")
	s.fds, _ = m.Value("process_open_fds")
	rss, err := lab.ResidentBytes(p.Pid())
	if err != nil {
		t.Fatal(err)
	}
	s.rss = rss
	return s
}
