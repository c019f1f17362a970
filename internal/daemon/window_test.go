package daemon

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
	"github.com/plegd/plegd/test/must"
)

// allPhases: go test ./internal/daemon -run TestWindows -phases 6 -timeout 1h.
var allPhases = flag.Int("phases", 1, "number of phases of the kubelet's loops for each case of TestWindows")

// windowCase is a fault and the Ready condition that a kubelet writes in it.
type windowCase struct {
	name    string
	timeout time.Duration // of a request; 0: 2 min
	fault   func(*watched)
	end     func(*watched)
	lasts   time.Duration
	later   time.Duration // delay of the fault after a Version call of plegd
	pause   time.Duration // the fault returns after this time, three times
	// plegd starts at this time within the fault; again: another plegd had run until
	// 3 s before.
	starts time.Duration
	again  bool
	fresh  time.Duration // the kubelet restarts at this time within the fault
	// from and by bound the first NotReady, in seconds after the begin of the fault, as
	// measured beside a real kubelet. Both 0: Ready throughout, or not checked.
	from, by float64
	// race: a kubelet may write NotReady for one period after the end of the fault.
	race bool
	// released: the update of the node's status hangs until the end of the fault.
	released bool
}

func failpoints(spec string) func(*watched) { return func(w *watched) { w.fail(spec) } }

func kill(w *watched) { w.rt.Kill() }

func restart(w *watched) {
	if err := w.rt.Restart(); err != nil {
		w.t.Error(err)
	}
}

func windowCases() []windowCase {
	const s = time.Second
	freeze, lists := failpoints("socket=freeze"), failpoints("ListContainers=hang")
	return []windowCase{
		{name: "freeze 20 s", fault: freeze, lasts: 20 * s},
		{name: "freeze 33 s", fault: freeze, lasts: 33 * s, race: true},
		{name: "freeze 150 s", fault: freeze, lasts: 150 * s, from: 120, by: 130.4, released: true},
		{name: "freeze 270 s", fault: freeze, lasts: 270 * s, from: 120, by: 130.4, released: true},
		{name: "freeze 100 s, requests of 15 s", timeout: 15 * s, fault: freeze, lasts: 100 * s, from: 39, by: 51, released: true},
		{name: "freeze 60 s, 20 s, 60 s ...", fault: freeze, lasts: 60 * s, pause: 20 * s},
		{name: "killed for 50 s", fault: kill, end: restart, lasts: 50 * s, from: 25, by: 41},
		{name: "killed for 20 s", fault: kill, end: restart, lasts: 20 * s},
		{name: "lists hang 220 s", fault: lists, lasts: 220 * s, from: 179, by: 191},
		{name: "lists fail 220 s", fault: failpoints("ListContainers=error(Internal: boom)"), lasts: 220 * s, from: 179, by: 191},
		{name: "Version hangs 140 s", fault: failpoints("Version=hang"), lasts: 140 * s},
		{
			name: "Version and lists hang 300 s", later: 4600 * time.Millisecond, fault: failpoints("Version=hang;ListPodSandbox=hang"),
			lasts: 300 * s, from: 250, by: 262, released: true,
		},
		{name: "Status hangs 80 s", fault: failpoints("Status=hang"), lasts: 80 * s, from: 25, by: 41},
		{name: "network not ready 60 s", fault: failpoints("Status=notready(NetworkReady)"), lasts: 60 * s},
		{name: "freeze 60 s, plegd starts at 15 s", fault: freeze, lasts: 60 * s, starts: 15 * s},
		{name: "freeze 150 s, plegd restarts at 40 s", fault: freeze, lasts: 150 * s, starts: 40 * s, again: true},
		{name: "freeze 270 s, plegd restarts at 60 s", fault: freeze, lasts: 270 * s, starts: 60 * s, again: true},
		{name: "lists hang 270 s, plegd starts at 60 s", fault: lists, lasts: 270 * s, starts: 60 * s},
		{name: "lists hang 270 s, kubelet restarts at 20 s", fault: lists, lasts: 270 * s, fresh: 20 * s},
		{name: "freeze 200 s, kubelet restarts at 30 s", fault: freeze, lasts: 200 * s, fresh: 30 * s},
		{name: "lists hang 60 s, kubelet restarts at 20 s", fault: lists, lasts: 60 * s, fresh: 20 * s},
	}
}

// TestWindows compares predictions with a kubelet whose loops have other phases than
// plegd's: NotReady is never predicted as certain while the API shows Ready, and the
// API's change lies within the predicted window. A window of 19 s into the fault may miss it
// in one case of 20: the kubelet's last Status may be 5 s older than plegd's, and its next
// update 10.4 s later than the rule, which is more than the 12.5 s that a window may have.
func TestWindows(t *testing.T) {
	var missed atomic.Int64
	cases := windowCases()
	t.Run("all", func(t *testing.T) {
		for n, c := range cases {
			for i := range *allPhases {
				t.Run(fmt.Sprintf("%s/%d", c.name, i), func(t *testing.T) {
					bubble(t, func(t *testing.T) { c.run(t, phasesOf((n+i)%6), &missed) })
				})
			}
		}
	})
	if n, all := missed.Load(), len(cases)**allPhases; 20*int(n) > all {
		t.Errorf("%d of %d windows miss the API's change", n, all)
	}
}

// windowRun is what one run of a case has shown.
type windowRun struct {
	windowCase
	t       *testing.T
	missed  *atomic.Int64
	began   time.Time
	samples []facts.Snapshot // four a second
	api     []time.Time
}

func (c *windowCase) run(t *testing.T, p phases, missed *atomic.Int64) {
	const settled = 30 * time.Second
	timeout := c.timeout
	if timeout == 0 {
		timeout = cri.DefaultRPCTimeout
	}
	rt, proc, dir := fakeRuntime(10, 2), t.TempDir(), t.TempDir()
	random := filepath.Join(proc, "sys/kernel/random")
	mkdir(t, random)
	write(t, filepath.Join(random, "boot_id"), "b007\n")
	config := func(cfg *Config) {
		cfg.RPCTimeout, cfg.ProcFS = timeout, proc
		if c.again {
			cfg.StateDir = dir
		}
	}
	k := startKubelet(t, rt, timeout, p)
	kubeletProcess(t, proc, 100, 1) // since the boot
	w := &watched{t: t, rt: rt, t0: time.Now(), stop: func() {}}
	if c.starts == 0 || c.again {
		w = watch(t, rt, config)
	}
	time.Sleep(time.Until(w.t0.Add(settled + 300*time.Millisecond + c.later)))
	c.fault(w)
	r := windowRun{windowCase: *c, t: t, missed: missed, began: time.Now()}
	if c.starts > 0 {
		time.Sleep(c.starts - 3*time.Second)
		w.stop()
		time.Sleep(3 * time.Second)
		w = watch(t, rt, config)
	}
	turn, faulty, end := c.lasts, true, c.lasts+settled
	if c.pause > 0 {
		end = 3 * (c.lasts + c.pause)
	}
	for d := c.starts + time.Second; d < end; d += 250 * time.Millisecond {
		switch {
		case d >= turn && faulty:
			c.ended(w)
			faulty, turn = false, turn+c.pause
			if c.pause == 0 {
				turn = end
			}
		case d >= turn:
			c.fault(w)
			faulty, turn = true, turn+c.lasts
		}
		if c.fresh > 0 && d == c.fresh {
			must.Do(t, os.RemoveAll(filepath.Join(proc, "100")))
			kubeletStarts(t, proc, 200)
			k.restart()
		}
		r.samples = append(r.samples, w.at(time.Until(r.began.Add(d))+time.Since(w.t0)))
	}
	r.api = k.changes()
	r.noContradiction()
	r.mostlyInside()
	if c.starts == 0 && c.pause == 0 && c.fresh == 0 {
		r.exact()
	}
	if t.Failed() {
		t.Logf("the API changed at %s", r.since(r.api...))
	}
}

func (c *windowCase) ended(w *watched) {
	if c.end != nil {
		c.end(w)
		return
	}
	w.fail("")
}

// since returns times as seconds after the begin of the fault.
func (r *windowRun) since(times ...time.Time) (out []string) {
	for _, at := range times {
		out = append(out, fmt.Sprintf("%.1f", at.Sub(r.began).Seconds()))
	}
	return out
}

// noContradiction: a certain prediction equals the state in the API.
func (r *windowRun) noContradiction() {
	for _, s := range r.samples {
		if text := contradiction(r.api, &s); text != "" {
			r.t.Fatalf("%s: %s", r.since(s.At), text)
		}
	}
}

// mostlyInside: in a long fault 95 % of the windows hold the API's NotReady.
func (r *windowRun) mostlyInside() {
	inside, n := 0, 0
	for _, s := range r.samples {
		notReady, next := conditionAt(r.api, s.At)
		if notReady || next.IsZero() || !next.Equal(r.api[0]) || s.At.Sub(r.began) < 6*time.Second || next.Sub(s.At) <= 250*time.Millisecond {
			continue
		}
		n++
		if ns := s.Facts.NodeStatus; !ns.NotReadyFrom.IsZero() && !next.Before(ns.NotReadyFrom) && !next.After(ns.NotReadyBy) {
			inside++
		}
	}
	if r.lasts >= 150*time.Second && r.fresh == 0 && inside*100 < n*95 {
		r.t.Errorf("%d of %d windows hold the API's NotReady", inside, n)
	}
}

// exact compares with measurements beside a real kubelet.
func (r *windowRun) exact() {
	t, api := r.t, r.api
	var from, by, readyFrom, readyBy time.Time
	var predicted []time.Time // changes of the predicted condition
	ready, open := true, time.Duration(0)
	for _, s := range r.samples {
		v, ns, d := &s.Verdict, s.Facts.NodeStatus, s.At.Sub(r.began)
		if v.State == facts.StateHealthy && (v.NotReadyIn != nil || v.NotReadyInLatest != nil) {
			t.Fatalf("%s: a healthy verdict counts down to NotReady", d)
		}
		if v.RulesFailIn != nil && v.NodeReady && v.NotReadyIn == nil {
			t.Fatalf("%s: the rules fail in %s without a window", d, *v.RulesFailIn)
		}
		if d == 19*time.Second && v.NotReadyIn != nil {
			from, by = s.At.Add(*v.NotReadyIn), s.At.Add(*v.NotReadyInLatest)
		}
		if !ns.ReadyFrom.IsZero() && v.ReadyIn == nil {
			t.Fatalf("%s: the API may show NotReady, and the %s verdict does not say until when", d, v.State)
		}
		if d >= r.lasts && v.NodeReady && !ns.ReadyFrom.IsZero() {
			open += 250 * time.Millisecond
		}
		if r.released && d == r.lasts+3*time.Second {
			readyFrom, readyBy = ns.ReadyFrom, ns.ReadyBy
		}
		if v.NodeReady != ready {
			ready, predicted = v.NodeReady, append(predicted, s.At)
		}
	}
	text := fmt.Sprintf("API %s, predicted %s, window %s", r.since(api...), r.since(predicted...), r.since(from, by))
	if r.race && open < 5*time.Second {
		t.Errorf("for %s after the fault the node may be NotReady", open)
	}
	if r.by == 0 {
		if expected := r.race || r.name == "network not ready 60 s"; !expected && len(api)+len(predicted) > 0 || !ready {
			t.Errorf("want Ready throughout: %s", text)
		}
		return
	}
	if !ready || len(api) != 2 || len(predicted) != 2 {
		t.Fatalf("want NotReady and Ready again: %s", text)
	}
	if d := api[0].Sub(r.began).Seconds(); d < r.from || d > r.by {
		t.Errorf("NotReady after %.1f s, a real kubelet after %g to %g: %s", d, r.from, r.by, text)
	}
	widest := 12*time.Second + 500*time.Millisecond // the documented width
	if from.Sub(r.began) > 3*time.Minute+10*time.Second {
		widest += 150 * time.Millisecond // the jitter of a second update
	}
	if from.IsZero() || by.Sub(from) > widest {
		t.Errorf("at 19 s there is no window, or one wider than %s: %s", widest, text)
	}
	if api[0].Before(from) || api[0].After(by) {
		t.Logf("missed: %s", text)
		r.missed.Add(1)
	}
	if predicted[0].Before(api[0]) {
		t.Errorf("a change was predicted before the API showed it: %s", text)
	}
	if late := api[1].Sub(r.began) > r.lasts+3*time.Second; r.released && late && (api[1].Before(readyFrom) || api[1].After(readyBy)) {
		t.Errorf("Ready again is outside of %s: %s", r.since(readyFrom, readyBy), text)
	}
}

// TestReadyBetweenTwoHangs: Ready is shown with the update after an answer, while the
// next call hangs and the rules are to fail again.
func TestReadyBetweenTwoHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := fakeRuntime(10, 2)
		k := startKubelet(t, rt, cri.DefaultRPCTimeout, phasesOf(0))
		w := watch(t, rt, nil)
		w.at(30 * time.Second)
		w.fail("Status=delay(40s)")
		w.at(82 * time.Second)
		api := k.changes()
		must.Equal(t, len(api), 2, "the API changed at %v, want NotReady and Ready", api)
		late := time.Since(api[1])
		for !w.at(time.Since(w.t0) + 250*time.Millisecond).Verdict.NodeReady {
			if late += 250 * time.Millisecond; late > 15*time.Second {
				t.Fatal("Ready is not shown 15 s after the API")
			}
		}
	})
}

// TestWindowKeepsItsEnd: once the rules have failed, the end of the predicted
// window stays where it is while no update of the kubelet's can have shown
// otherwise, and NotReady is certain soon after it. Of what Status says the kubelet may
// hear a period later.
func TestWindowKeepsItsEnd(t *testing.T) {
	for name, fault := range map[string]func(*watched){
		"RuntimeReady is false": failpoints("Status=notready(RuntimeReady)"),
		"lists fail":            failpoints("ListContainers=error(Internal: boom)"),
		"inspections hang": func(w *watched) {
			w.fail("ContainerStatus=hang")
			w.rt.Churn(0.3)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := watch(t, fakeRuntime(10, 2), nil)
				w.at(20 * time.Second)
				fault(w)
				limit := 2 * time.Second
				if name == "RuntimeReady is false" {
					limit += kubelet.StatusPeriod
				}
				var first time.Time
				for d := 250 * time.Millisecond; ; d += 250 * time.Millisecond {
					s := w.at(20*time.Second + d)
					v := &s.Verdict
					if v.State != facts.StateUnhealthy && d < 200*time.Second {
						continue
					}
					if !v.NodeReady {
						if late := s.At.Sub(first); first.IsZero() || late > limit {
							t.Errorf("NotReady %s after the end of the first window", late)
						}
						return
					}
					if v.NotReadyInLatest == nil {
						t.Fatalf("%s after the fault: %s %s without a window", d, v.State, v.Reason)
					}
					end := s.At.Add(*v.NotReadyInLatest)
					if first.IsZero() {
						first = end
					}
					if moved := end.Sub(first); moved > limit {
						t.Fatalf("%s after the fault the window ends %s later than at first", d, moved)
					}
				}
			})
		})
	}
}
