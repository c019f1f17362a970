package health

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// step is one of plegd's relists in a script: its lists, its inspections with
// what plegd measured, and how many run at once.
type step struct {
	lists    time.Duration
	fail     bool
	inspects []time.Duration // by pod number
	cut      map[int]bool
}

const (
	parallel = 16
	period   = time.Second
	rpcLimit = 2 * time.Minute
)

// play lets plegd make the relists of a script and returns the modelled last
// seen at each whole second, and plegd's own.
func play(t *testing.T, script []step, until time.Duration) (modelled, own []time.Time) {
	t.Helper()
	m := NewModel(period, rpcLimit, time.Time{})
	type event struct {
		at time.Duration
		do func()
	}
	var events []event
	var lastOwn time.Time
	at := time.Duration(0)
	for seq, s := range script {
		r := RelistRecord{Seq: uint64(seq + 1), Start: t0.Add(at)}
		observe := func(when time.Duration, r RelistRecord, own bool) {
			start := r.Start
			events = append(events, event{when, func() {
				m.Observe(r)
				if own {
					lastOwn = start
				}
			}})
		}
		observe(at, r, false)
		at += s.lists
		r.Listed, r.OK = t0.Add(at), !s.fail
		if s.fail {
			r.Complete = true
			observe(at, r, false)
			at += period
			continue
		}
		for pod := range s.inspects {
			r.Inspections = append(r.Inspections, InspectionRecord{UID: fmt.Sprint(pod)})
		}
		r.Inspections = append([]InspectionRecord(nil), r.Inspections...)
		observe(at, r, true)
		// plegd's own pool: pod k begins when a slot is free.
		slots := make([]time.Duration, parallel)
		end := at
		for pod, d := range s.inspects {
			slot := pod % parallel
			slots[slot] += d
			done := at + slots[slot]
			r.Inspections = append([]InspectionRecord(nil), r.Inspections...)
			r.Inspections[pod] = InspectionRecord{UID: fmt.Sprint(pod), Done: true, End: t0.Add(done), Spent: d, Cut: s.cut[pod], CutCall: d}
			end = max(end, done)
		}
		r.Complete = true
		observe(end, r, false)
		at = end + period
	}
	next := 0
	for now := time.Duration(0); now <= until; now += time.Second {
		for next < len(events) && events[next].at <= now {
			events[next].do()
			m.At(t0.Add(events[next].at))
			next++
		}
		modelled = append(modelled, m.At(t0.Add(now)).LastSeen)
		own = append(own, lastOwn)
	}
	return modelled, own
}

func repeat(n int, s step) []step {
	out := make([]step, n)
	for i := range out {
		out[i] = s
	}
	return out
}

func TestModelFollowsWhenNothingChanges(t *testing.T) {
	modelled, own := play(t, repeat(30, step{lists: 5 * time.Millisecond}), 20*time.Second)
	for s := range modelled {
		if !modelled[s].Equal(own[s]) && s > 0 {
			t.Fatalf("second %d: modelled %s, plegd %s", s, modelled[s].Sub(t0), own[s].Sub(t0))
		}
	}
}

// TestModelInspectsOneAfterTheOther: 200 inspections of 1 s take plegd 13 s and
// the kubelet 200.
func TestModelInspectsOneAfterTheOther(t *testing.T) {
	burst := step{lists: 10 * time.Millisecond}
	for range 200 {
		burst.inspects = append(burst.inspects, time.Second)
	}
	script := append([]step{burst}, repeat(400, step{lists: 10 * time.Millisecond})...)
	modelled, own := play(t, script, 210*time.Second)
	for s := 1; s <= 200; s++ {
		if !modelled[s].Equal(t0) {
			t.Fatalf("second %d: the kubelet is still inspecting, yet its last seen is %s", s, modelled[s].Sub(t0))
		}
	}
	if own[16].Sub(t0) < 13*time.Second {
		t.Errorf("plegd's own last seen at second 16 is %s: the script is not what it says", own[16].Sub(t0))
	}
	// 0.01 lists + 200 inspections + 1 period = 201.01: the next relist.
	if got := modelled[202].Sub(t0); got < 201*time.Second || got > 202*time.Second {
		t.Errorf("the kubelet's next relist began at %s, want 201.01s", got)
	}
}

// TestModelWaitsOnWherePlegdGaveUp: plegd gives a call up after 10 s, the
// kubelet waits for two minutes.
func TestModelWaitsOnWherePlegdGaveUp(t *testing.T) {
	stuck := step{lists: 10 * time.Millisecond, inspects: []time.Duration{10 * time.Second}, cut: map[int]bool{0: true}}
	modelled, _ := play(t, repeat(40, stuck), 240*time.Second)
	if got := modelled[120].Sub(t0); got != 0 {
		t.Errorf("second 120: last seen %s, want 0: the first call still waits", got)
	}
	if got := modelled[130].Sub(t0); got < 121*time.Second || got > 122*time.Second {
		t.Errorf("second 130: last seen %s, want 121.01s", got)
	}
}

// TestModelTwoStuckPods: two calls of two minutes, one after the other, are
// past the threshold of three.
func TestModelTwoStuckPods(t *testing.T) {
	stuck := step{lists: 10 * time.Millisecond, inspects: []time.Duration{10 * time.Second, 10 * time.Second}, cut: map[int]bool{0: true, 1: true}}
	modelled, _ := play(t, repeat(40, stuck), 260*time.Second)
	if got := modelled[240].Sub(t0); got != 0 {
		t.Errorf("second 240: last seen %s, want 0", got)
	}
	if got := modelled[250].Sub(t0); got < 241*time.Second {
		t.Errorf("second 250: last seen %s, want 241.01s", got)
	}
}

// TestModelEndsAWaitWhenThePodAnswers: once plegd has an answer from the pod,
// the kubelet's call has one too.
func TestModelEndsAWaitWhenThePodAnswers(t *testing.T) {
	stuck := step{lists: 10 * time.Millisecond, inspects: []time.Duration{10 * time.Second}, cut: map[int]bool{0: true}}
	fine := step{lists: 10 * time.Millisecond, inspects: []time.Duration{5 * time.Millisecond}}
	script := append(repeat(3, stuck), fine)
	script = append(script, repeat(100, step{lists: 10 * time.Millisecond})...)
	modelled, _ := play(t, script, 60*time.Second)
	// Three relists of 10.01 s and a period each, then 15 ms: 33.045 s.
	if got := modelled[33].Sub(t0); got != 0 {
		t.Errorf("second 33: last seen %s, want 0", got)
	}
	if got := modelled[36].Sub(t0); got < 34*time.Second || got > 36*time.Second {
		t.Errorf("second 36: last seen %s, want about 34.05s", got)
	}
}

// TestModelFailedLists: a failed list ends a relist, and last seen stays.
func TestModelFailedLists(t *testing.T) {
	script := append(repeat(3, step{lists: 10 * time.Millisecond}), repeat(2, step{lists: 2 * time.Minute, fail: true})...)
	modelled, own := play(t, script, 200*time.Second)
	for s := 3; s <= 200; s++ {
		if !modelled[s].Equal(own[s]) || own[s].Sub(t0) > 3*time.Second {
			t.Fatalf("second %d: modelled %s, plegd %s", s, modelled[s].Sub(t0), own[s].Sub(t0))
		}
	}
}

// TestModelNeverAhead: whatever plegd measures, the kubelet is never thought to
// be further than the calls it would have made one after another allow.
func TestModelNeverAhead(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var script []step
		for range 40 {
			s := step{lists: time.Duration(rng.IntN(2000)) * time.Millisecond, fail: rng.IntN(10) == 0, cut: map[int]bool{}}
			for pod := range rng.IntN(30) {
				s.inspects = append(s.inspects, time.Duration(rng.IntN(3000))*time.Millisecond)
				if rng.IntN(20) == 0 {
					s.inspects[pod], s.cut[pod] = 10*time.Second, true
				}
			}
			script = append(script, s)
		}
		modelled, own := play(t, script, 120*time.Second)
		for s := 1; s < len(modelled); s++ {
			if modelled[s].Before(modelled[s-1]) {
				t.Fatalf("second %d: last seen went back from %s to %s", s, modelled[s-1].Sub(t0), modelled[s].Sub(t0))
			}
			// The model may replay plegd's last relist at most a period late,
			// and is never ahead of the present.
			if modelled[s].Sub(t0) > time.Duration(s)*time.Second {
				t.Fatalf("second %d: last seen %s lies in the future", s, modelled[s].Sub(t0))
			}
			if own[s].IsZero() && !modelled[s].IsZero() {
				t.Fatalf("second %d: plegd has seen nothing, the model has", s)
			}
		}
	}
}

// TestModelBounded: a kubelet that falls behind for ever costs bounded memory.
func TestModelBounded(t *testing.T) {
	m := NewModel(period, rpcLimit, time.Time{})
	for seq := range 10_000 {
		at := t0.Add(time.Duration(seq) * 2 * time.Second)
		r := RelistRecord{Seq: uint64(seq + 1), Start: at, Listed: at, OK: true, Complete: true}
		for pod := range 20 {
			r.Inspections = append(r.Inspections, InspectionRecord{UID: fmt.Sprint(pod), Done: true, End: at.Add(time.Second), Spent: time.Second})
		}
		m.Observe(r)
		m.At(at.Add(time.Second))
	}
	if len(m.waiting) > maxWaiting || len(m.behind) > 20 || len(m.order) > 20 {
		t.Errorf("%d relists and %d pods are waiting", len(m.waiting), len(m.behind))
	}
}

func TestThresholdsAreTheKubelets(t *testing.T) {
	if RuntimeDownAfter != 30*time.Second || StatusPeriod != 5*time.Second {
		t.Error("the kubelet's constants are 30 s and 5 s")
	}
}

// TestModelWithEvents: the modelled kubelet waits as long as the kubelet does
// after each relist, but not before one that it, too, makes at once.
func TestModelWithEvents(t *testing.T) {
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	relist := func(seq uint64, start, period time.Duration, early bool) RelistRecord {
		return RelistRecord{Seq: seq, Start: at(start), Listed: at(start + time.Second), OK: true, Complete: true, Period: period, Early: early}
	}
	m := NewModel(time.Second, rpcLimit, time.Time{})
	m.Observe(relist(1, 0, 300*time.Second, false))
	m.Observe(relist(2, 100*time.Second, 300*time.Second, false)) // plegd's own curiosity
	if got := m.At(at(150 * time.Second)).LastSeen; !got.Equal(at(0)) {
		t.Errorf("a relist that the kubelet does not make moved its last seen to %s", got.Sub(t0))
	}
	m.Observe(relist(3, 200*time.Second, 300*time.Second, true)) // the stream failed
	if got := m.At(at(210 * time.Second)).LastSeen; !got.Equal(at(200 * time.Second)) {
		t.Errorf("a relist that the kubelet makes at once: last seen %s", got.Sub(t0))
	}
	m.Observe(relist(4, 220*time.Second, time.Second, true)) // it fell back
	m.Observe(relist(5, 222*time.Second, time.Second, false))
	if got := m.At(at(230 * time.Second)).LastSeen; !got.Equal(at(222 * time.Second)) {
		t.Errorf("with the generic period again: last seen %s", got.Sub(t0))
	}
	// One that begins while the last is under way waits for its end.
	slow := relist(6, 240*time.Second, 300*time.Second, false)
	slow.Listed = at(250 * time.Second)
	m.Observe(slow)
	m.Observe(relist(7, 245*time.Second, 300*time.Second, true))
	if got := m.At(at(260 * time.Second)).LastSeen; !got.Equal(at(250 * time.Second)) {
		t.Errorf("behind a slow one: last seen %s", got.Sub(t0))
	}
}
