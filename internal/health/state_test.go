package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// at returns the moment d after t0.
func at(d time.Duration) time.Time { return t0.Add(d) }

// TestState is the truth table of the state that each judgement derives.
func TestState(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	list := func(f *facts.Facts, age time.Duration, lists ...time.Duration) {
		f.Relist.InFlight = &facts.InFlight{Start: at(-age), Phase: facts.PhaseListContainers, PhaseStart: at(-age)}
		f.Relist.Lists = lists
	}
	version := func(c facts.Call) func(*facts.Facts) {
		return func(f *facts.Facts) { list(f, 5*s); f.Calls = map[string]facts.Call{opVersion: c} }
	}
	arriving := func(age, ago time.Duration, bytes int) func(*facts.Facts) {
		return func(f *facts.Facts) {
			list(f, age)
			f.Calls = map[string]facts.Call{"list_containers": {Bytes: bytes}, opVersion: {LastOK: at(-100 * ms)}}
			if ago > 0 {
				f.Arriving = at(-ago)
			}
		}
	}
	after := func(age time.Duration, lists ...time.Duration) func(*facts.Facts) {
		return func(f *facts.Facts) {
			list(f, age, lists...)
			f.Calls = map[string]facts.Call{opVersion: {LastOK: at(-100 * ms)}}
		}
	}
	dial := func(cause facts.Cause) func(*facts.Facts) {
		return func(f *facts.Facts) { failing(f, 1, "Unavailable"); f.Dial = facts.Dial{At: t0, Cause: cause} }
	}
	status := func(code string, good, answered, listed time.Duration) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Status.LastErr = &facts.CallError{Operation: opStatus, Code: code, Message: "m"}
			f.Status.LastGood, f.Relist.AnsweredSince = at(-good), at(-answered)
			f.Calls = map[string]facts.Call{"list_containers": {LastOK: at(-listed)}, opStatus: {LastFailed: at(-s), LastErr: f.Status.LastErr}}
		}
	}
	statusHangs := func(took time.Duration) func(*facts.Facts) {
		return func(f *facts.Facts) {
			f.Status.InFlightSince = at(-3 * s)
			f.Calls = map[string]facts.Call{opVersion: {LastOK: at(-s), LastOKDuration: took}}
		}
	}
	for _, tt := range []struct {
		name   string
		change func(*facts.Facts)
		link   link
		lists  listState
		status statusState
	}{
		{"well", func(*facts.Facts) {}, linkAnswers, listsOK, statusOK},
		{"the last lists were slow", func(f *facts.Facts) { f.Relist.Lists = []time.Duration{300 * ms} }, linkAnswers, listsSlow, statusOK},
		{"a list is late", after(400 * ms), linkAnswers, listsSlow, statusOK},
		{"no socket is known", func(f *facts.Facts) { f.Endpoint.Path = "" }, linkNone, listsOK, statusOK},

		{"refused", dial(facts.CauseRefused), linkRefused, listsFail, statusOK},
		{"missing", dial(facts.CauseMissing), linkNone, listsFail, statusOK},
		{"not permitted", dial(facts.CausePermissionDenied), linkNone, listsFail, statusOK},
		{"the queue is full", dial(facts.CauseQueueFull), linkQueueFull, listsFail, statusOK},
		{"connected again", dial(facts.CauseNone), linkAnswers, listsFail, statusOK},
		{"lists fail with an answer", func(f *facts.Facts) {
			failing(f, 1, "Internal")
			f.Dial = facts.Dial{At: t0, Cause: facts.CauseRefused}
		}, linkAnswers, listsFail, statusOK},
		{"refused, and answered since", func(f *facts.Facts) {
			dial(facts.CauseRefused)(f)
			f.Calls = map[string]facts.Call{opVersion: {LastOK: at(ms)}}
		}, linkAnswers, listsFail, statusOK},

		{"a list hangs, Version is answered", version(facts.Call{LastOK: at(-100 * ms), LastOKDuration: 5 * ms}), linkAnswers, listsHang, statusOK},
		{"both hang", version(facts.Call{LastOK: at(-6 * s), InFlightSince: at(-5 * s)}), linkHandshake, listsHang, statusOK},
		{"Version has yet to be answered", version(facts.Call{LastOK: at(-6 * s), InFlightSince: at(-500 * ms)}), linkUnsettled, listsHang, statusOK},
		{"both hung, Version has just been answered", version(facts.Call{LastOK: at(-20 * ms), LastOKDuration: 4900 * ms}), linkUnsettled, listsHang, statusOK},
		{"and the list is unanswered for as long again", version(facts.Call{LastOK: at(-1600 * ms), LastOKDuration: 2 * s}), linkAnswers, listsHang, statusOK},
		{"a list ran into its deadline, Version too", func(f *facts.Facts) {
			failing(f, 1, "DeadlineExceeded")
			f.Relist.Last.Start = at(-2 * time.Minute)
			f.Calls = map[string]facts.Call{opVersion: {LastOK: at(-3 * time.Minute), LastFailed: t0, LastErr: &facts.CallError{Code: "DeadlineExceeded"}}}
		}, linkHandshake, listsFail, statusOK},

		{"a small list", arriving(1600*ms, 0, 300_000), linkAnswers, listsHang, statusOK},
		{"12 MiB", arriving(1600*ms, 0, 12<<20), linkAnswers, listsSlow, statusOK},
		{"12 MiB, for longer", arriving(2800*ms, 0, 12<<20), linkAnswers, listsHang, statusOK},
		{"arriving", arriving(5*s, s, 12<<20), linkAnswers, listsSlow, statusOK},
		{"nothing further arrives", arriving(5*s, 1600*ms, 12<<20), linkAnswers, listsHang, statusOK},

		{"the list before the last hung", after(1600*ms, 20*ms, 4000*ms, 20*ms), linkAnswers, listsHang, statusOK},
		{"the last one hung, or they have become slow", after(5400*ms, 20*ms, 20*ms, 4000*ms), linkAnswers, listsSlow, statusOK},
		{"longer than that", after(5600*ms, 20*ms, 20*ms, 4000*ms), linkAnswers, listsHang, statusOK},
		{"nearly each is slow", after(11900*ms, 4000*ms, 20*ms, 4000*ms), linkAnswers, listsSlow, statusOK},
		{"the first was slow", after(2600*ms, 900*ms), linkAnswers, listsSlow, statusOK},
		{"slow, and surely hangs", after(20*s, 19*s, 19*s), linkAnswers, listsHang, statusOK},

		{"Status hangs, Version was answered at once", statusHangs(2 * ms), linkAnswers, listsOK, statusAlone},
		{"Status hangs, Version was answered late", statusHangs(4 * s), linkAnswers, listsOK, statusFails},
		{"Status fails beside lists", status("Unknown", 4*s, time.Hour, 0), linkAnswers, listsOK, statusAlone},
		{"Status failed, nothing has been answered since", status("Unknown", 4*s, time.Hour, 2*s), linkAnswers, listsOK, statusFails},
		{"Status failed while the lists did", status("Unknown", 4*s, 100*ms, 0), linkAnswers, listsOK, statusFails},
		{"Status failed once for want of an answer", status("Unavailable", 4*s, time.Hour, 0), linkAnswers, listsOK, statusFails},
		{"Status has failed for 11 s", status("Unavailable", 11*s, time.Hour, 0), linkAnswers, listsOK, statusAlone},
		{"Status and lists fail", func(f *facts.Facts) { status("Unknown", 4*s, time.Hour, 0)(f); failing(f, 2, "Internal") }, linkAnswers, listsFail, statusFails},
	} {
		f := healthyFacts(t0)
		tt.change(&f)
		w := newSignals(&f, t0, nil)
		if w.link != tt.link || w.lists != tt.lists || w.status != tt.status {
			t.Errorf("%s: link %s, lists %s, Status %s; want %s, %s, %s", tt.name, w.link, w.lists, w.status, tt.link, tt.lists, tt.status)
		}
	}
}
