package kubelet

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// writerSlack widens a window on both sides: relists of plegd and the kubelet begin up to a period apart, and a
	// patch takes time to arrive.
	writerSlack = 800 * time.Millisecond
	// hangSlack does the same where the end of Version's timeout decides, and not a rule.
	hangSlack = 300 * time.Millisecond
	// startupTakes is the longest time from a kubelet's start to its first update where all is answered (1.4 to 4.4 s).
	startupTakes = 6 * time.Second
	// startupLoops is how many of its loops may wait for a Status that hangs, one after the other.
	startupLoops = 3
)

// window bounds a moment. The zero window is never.
type window struct{ earliest, latest time.Time }

// exactly returns a window without width.
func exactly(t time.Time) window { return window{earliest: t, latest: t} }

// plus moves both ends.
func (w window) plus(earliest, latest time.Duration) window {
	return window{earliest: w.earliest.Add(earliest), latest: w.latest.Add(latest)}
}

func (w window) never() bool { return w.latest.IsZero() }

// updates is what the model knows of the kubelet's node status updates (pkg/kubelet/kubelet.go, Run). One runs at a
// time; the next begins a period, plus up to 4 %, after the last ended; it waits for Version first, for the RPC
// timeout at most. So:
//
//   - while Version is answered, a change of the rules is written within a period;
//   - while it hangs since h, updates end from h + timeout on, a period later at the
//     latest, and again every timeout and period after that;
//   - a hang that ends at r ends the update in flight: it writes at r.
type updates struct {
	shortest, longest time.Duration // the period
	timeout           time.Duration // of Version
	hang              window        // bounds the begin of Version's hang; never while it is answered
	released          time.Time     // the end of the last hang
	first             window        // bounds the first update of a kubelet that has restarted
}

func (u *updates) hangs() bool { return !u.hang.never() }

// next bounds the end of the first update at t or later.
func (u *updates) next(t time.Time) window {
	if !u.first.never() && !t.After(u.first.latest) {
		return window{earliest: facts.Later(u.first.earliest, t), latest: u.first.latest.Add(writerSlack)}
	}
	if !u.hangs() {
		return u.whileAnswered(facts.Later(t, u.released))
	}
	if t.Add(u.longest).Before(u.hang.earliest) {
		return u.whileAnswered(t)
	}
	return u.whileHanging(t)
}

// whileAnswered bounds the first update at t or later where each ends at once.
func (u *updates) whileAnswered(t time.Time) window {
	return window{earliest: t, latest: t.Add(u.longest)}.plus(-writerSlack, writerSlack)
}

// whileHanging bounds it where each waits for the end of Version's timeout.
func (u *updates) whileHanging(t time.Time) window {
	end := window{earliest: u.hang.earliest, latest: u.hang.latest.Add(u.longest)}.plus(u.timeout, u.timeout)
	for end.latest.Before(t) {
		end = end.plus(u.shortest+u.timeout, u.longest+u.timeout)
	}
	if end.earliest.Before(t) { // some of these end before t: their next ones count
		end = window{earliest: t, latest: facts.Later(end.latest, t.Add(u.longest+u.timeout))}
	}
	if t.Before(u.hang.earliest) { // one may end before the hang begins
		end.earliest = t
	}
	return end.plus(-hangSlack, hangSlack)
}

// finding bounds the end of the first update that finds the rules failing.
func (u *updates) finding(fails window) window {
	return window{earliest: u.next(fails.earliest).earliest, latest: u.next(fails.latest).latest}
}
