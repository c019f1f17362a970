//go:build e2e

package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
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

// injection is a fault that TestChaos has made.
type injection struct {
	*kind
	// reason must be named for it, within goal after it has been made.
	reason string
	goal   time.Duration
	// after is when it begins, from the begin of the episode; lasts is how long it stands.
	after, lasts   time.Duration
	from, made, to time.Time
	// alone is true when no other one stood at any time of it.
	alone bool

	// The incident, when its reason first stood and last did after the begin and the end,
	// and the fault of plegd in it.
	in         *incident.Incident
	onset, end time.Duration
	wrong      string
}

const (
	// endWithin is how soon after a fault's end its reason must have gone.
	endWithin = 5 * time.Second
	// unwritten is for how long a change of an open incident may be in memory only.
	unwritten = 11 * time.Second
	// counted is how long a fault must last to count.
	counted = 10 * time.Second
)

// counts reports whether it lasted for long enough.
func (j *injection) counts() bool { return j.to.Sub(j.from) >= counted }

// span is a time in which a reason stood.
type span struct{ from, to time.Time }

// spans returns the times in which a reason was active in an incident.
func spans(one *incident.Incident, reason string) (out []span) {
	for i, m := range one.Timeline {
		if !slices.ContainsFunc(m.Snapshot.Active, func(a facts.Active) bool { return a.ID == reason }) {
			continue
		}
		end := one.Updated
		if i+1 < len(one.Timeline) {
			end = one.Timeline[i+1].Snapshot.At
		}
		if n := len(out); n > 0 && !m.Snapshot.At.After(out[n-1].to) {
			out[n-1].to = end
			continue
		}
		out = append(out, span{m.Snapshot.At, end})
	}
	return out
}

// match finds the incident of an injection. up are the moments from which a
// plegd that was killed served again: what begins or ends while nobody watches
// has its full time from then on, as has a change that was not on the disk yet.
func (j *injection) match(all []*incident.Incident, up []time.Time) {
	due, gone := j.made.Add(j.goal), j.to.Add(endWithin)
	for _, at := range up {
		if at.After(j.from) && at.Before(due.Add(unwritten)) {
			due = at.Add(j.goal)
		}
		if at.After(j.to) && at.Before(gone) {
			gone = at.Add(endWithin)
		}
	}
	var first, last time.Time
	for _, one := range all {
		for _, s := range spans(one, j.reason) {
			if s.to.Before(j.from) || s.from.After(gone) {
				continue
			}
			if first.IsZero() || s.from.Before(first) {
				first, j.in = s.from, one
			}
			if s.to.After(last) {
				last = s.to
			}
		}
	}
	if j.in == nil {
		j.wrong = "missed"
		return
	}
	j.onset, j.end = max(0, first.Sub(j.from)), max(0, last.Sub(j.to))
	switch {
	case first.After(due):
		j.wrong = fmt.Sprintf("late by %.1fs", first.Sub(due).Seconds())
	case last.After(gone):
		j.wrong = fmt.Sprintf("gone late by %.1fs", last.Sub(gone).Seconds())
	case j.alone && j.in.Reason != j.reason:
		j.wrong = "taken for " + j.in.Reason
	}
}

// besides is how long two faults must stand at once for one incident to have to
// list both.
const besides = 5 * time.Second

// beside finds the faults that stood at once and are not in one incident. A plegd that was
// killed meanwhile, as up shows, has lost the changes that were not on the disk.
func beside(injected []*injection, all []*incident.Incident, up []time.Time) {
	lists := func(one *incident.Incident, reason string) bool {
		return slices.ContainsFunc(one.Reasons, func(r incident.ReasonTimes) bool { return r.ID == reason })
	}
	for _, a := range injected {
		for _, b := range injected {
			from, to := a.from, a.to
			if b.from.After(from) {
				from = b.from
			}
			if b.to.Before(to) {
				to = b.to
			}
			killed := slices.ContainsFunc(up, func(at time.Time) bool { return at.After(from) && at.Before(to.Add(unwritten)) })
			if a == b || a.wrong != "" || to.Sub(from) < besides || killed {
				continue
			}
			if !slices.ContainsFunc(all, func(one *incident.Incident) bool {
				return !one.Opened.After(to) && one.Closed != nil && one.Closed.After(from) && lists(one, a.reason) && lists(one, b.reason)
			}) {
				a.wrong = "not in one incident with " + b.reason
			}
		}
	}
}

// outside returns the incidents that no injection explains. Reasons of the machine's own
// load are expected.
func outside(all []*incident.Incident, injected []*injection) []*incident.Incident {
	return slices.DeleteFunc(slices.Clone(all), func(one *incident.Incident) bool {
		explained := slices.ContainsFunc(injected, func(j *injection) bool {
			return !one.Opened.Before(j.from.Add(-time.Second)) && !one.Opened.After(j.to.Add(endWithin))
		})
		return explained || !slices.ContainsFunc(one.Reasons, func(r incident.ReasonTimes) bool { return r.ID != health.NodePressure })
	})
}

// judge compares the injections with the incidents.
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
		lab.Must(t, err)
		all = append(all, one)
		if different, _ := incident.Replay(one); len(different) > 0 {
			t.Errorf("%s is judged differently now, at +%.1fs: was %s, is %s", s.ID, different[0].Offset, different[0].Recorded.Reason, different[0].Judged.Reason)
		}
		if s.Outcome == incident.Open {
			t.Errorf("%s is open for ever: %s", s.ID, s.Reason)
		}
	}
	// The running daemon reports the same.
	var told []incident.Summary
	out := lab.Command{Args: []string{"incidents", "-o", "json", "--control-socket=" + c.plegd.ControlSocket}}.Run(t, 10*time.Second)
	if err := json.Unmarshal([]byte(out.Stdout), &told); err != nil || out.Code != 0 || len(told) != len(list) {
		t.Errorf("plegd incidents: exit %d, %d incidents, want %d: %v %s", out.Code, len(told), len(list), err, out.Stderr)
	}
	n, right := 0, 0
	for _, j := range c.made {
		j.match(all, c.up)
	}
	beside(c.made, all, c.up)
	for _, j := range c.made {
		if !j.counts() {
			continue
		}
		if n++; j.wrong == "" {
			right++
			continue
		}
		t.Logf("%s at %s for %s: %s", j.name, j.from.Format(time.TimeOnly), j.to.Sub(j.from).Round(time.Second), j.wrong)
	}
	unexplained := outside(all, c.made)
	for _, one := range unexplained {
		t.Errorf("outside every fault: %s at %s for %.1f s: %s", one.ID, one.Opened.Local().Format(time.TimeOnly), one.Duration, one.Reason)
	}
	lab.Report(t, "%d faults, %d of them counted, %d right; %d incidents, %d outside every fault; plegd killed %d times", len(c.made), n, right, len(all), len(unexplained), len(c.up))
	if float64(right) < rightShare*float64(n) {
		t.Errorf("%d of %d are right, want %.0f %%", right, n, 100*rightShare)
	}
}
