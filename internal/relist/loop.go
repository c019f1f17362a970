package relist

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

// Runtime is the runtime that the loop calls. Every call must have the kubelet's timeout,
// and return soon after its context ends. Two pairs of lists and two inspections may be under way at once.
type Runtime interface {
	ListPodSandbox(context.Context) ([]*cri.Entry, error)
	ListContainers(context.Context) ([]*cri.Entry, error)
	PodLists(ctx context.Context, uid string) (sandboxes, containers []*cri.Entry, err error)
	StatusOf(context.Context, *cri.Entry) error
}

// Loop is the generic PLEG. Its relists are the kubelet's: lists, and then one
// inspection after another. While a relist inspects, the loop lists beside it, so that a
// list that hangs is seen within a second. These lists change no record.
type Loop struct {
	// Throttled returns for how long plegd's own CPU quota has held it until now: that is no time of the
	// runtime's. It is set before Run, and called by several goroutines.
	Throttled func() time.Duration

	rt     Runtime
	period time.Duration
	obs    Observer

	relistEnded bounded.Signal
	ready       chan struct{}
	wake        bounded.Signal // asked or hints are set
	snap        atomic.Pointer[Snapshot]
	besideToken chan struct{} // holds one token while lists beside the relists are under way
	group       sync.WaitGroup
	grouped     atomic.Pointer[lists] // the last pair of lists

	mu                sync.Mutex
	next              Snapshot // the next snapshot
	asked             bool     // a relist is due
	hints             []string // pods to relist early
	hinted            int      // hints since the last relist
	kubeletRestarted  bool
	cancelInspections context.CancelFunc

	// Only the goroutine of Run uses these.
	records map[string]*record
	settled *lists // no record differs from these lists; nil if one may
}

// New returns a loop that does not run yet. period is the time from the end of a relist to
// the start of the next one.
func New(rt Runtime, period time.Duration, obs Observer) *Loop {
	l := &Loop{
		rt:                rt,
		period:            period,
		obs:               obs,
		records:           map[string]*record{},
		besideToken:       make(chan struct{}, 1),
		relistEnded:       bounded.NewSignal(),
		ready:             make(chan struct{}),
		wake:              bounded.NewSignal(),
		cancelInspections: func() {},
		Throttled:         func() time.Duration { return 0 },
	}
	l.set(func(s *Snapshot) { s.Period = period })
	return l
}

// Ready is closed when Snapshot.Ready becomes true.
func (l *Loop) Ready() <-chan struct{} { return l.ready }

// RelistEnded receives when relists have ended.
func (l *Loop) RelistEnded() <-chan struct{} { return l.relistEnded }

// Snapshot returns the latest snapshot. It never blocks.
func (l *Loop) Snapshot() *Snapshot { return l.snap.Load() }

// Relist requests a relist as soon as possible.
func (l *Loop) Relist() {
	l.request(func() { l.asked = true })
}

func (l *Loop) request(change func()) {
	l.mu.Lock()
	change()
	l.mu.Unlock()
	l.wake.Send()
}

// Restart begins again as a kubelet does that has just started: it has seen
// nothing and inspects every pod. Inspections under way are given up; lists under
// way become the new kubelet's first ones.
func (l *Loop) Restart() {
	l.request(func() {
		l.asked = true
		l.kubeletRestarted = true
		l.cancelInspections()
	})
	l.set(func(s *Snapshot) { s.LastSeen = time.Time{} })
}

// Run relists until ctx ends, and then returns nil once the calls under way have
// returned.
func (l *Loop) Run(ctx context.Context) error {
	defer l.group.Wait()
	attempted := sync.OnceFunc(func() {
		l.set(func(s *Snapshot) { s.Ready = true })
		close(l.ready)
	})
	defer time.AfterFunc(2*l.period, attempted).Stop()
	for l.relist(ctx); ctx.Err() == nil; l.relist(ctx) {
		attempted()
		l.wait(ctx)
	}
	return nil
}

// wait waits for the next relist. Meanwhile it relists the pods that events hint at.
func (l *Loop) wait(ctx context.Context) {
	if l.Snapshot().Evented {
		waiting, cancel := context.WithCancel(ctx)
		defer cancel()
		l.diagnose(ctx, waiting, nil)
	}
	began := time.Now()
	for {
		due := time.NewTimer(time.Until(began.Add(l.Snapshot().Period)))
		select {
		case <-ctx.Done():
		case <-due.C:
			return
		case <-l.wake:
		}
		due.Stop()
		asked, hints := l.takeRequests()
		if asked || ctx.Err() != nil {
			return
		}
		l.relistHinted(ctx, hints)
	}
}

// takeRequests returns the requests since the last call, and clears them.
func (l *Loop) takeRequests() (asked bool, hints []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked = l.asked
	hints = l.hints
	l.asked = false
	l.hints = nil
	return asked, hints
}

// set changes the snapshot and publishes it.
func (l *Loop) set(change func(*Snapshot)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.next)
	s := l.next
	l.snap.Store(&s)
}

// list makes a pair of lists. inFlight is the part of the snapshot that shows them under
// way. After an error there are no lists.
func (l *Loop) list(ctx context.Context, inFlight func(*Snapshot) *underWay) (*lists, *Result) {
	res := &Result{RelistResult: facts.RelistResult{Start: time.Now()}}
	throttled := l.Throttled()
	res.throttled = throttled
	show := func(phase facts.Phase, start time.Time) {
		l.set(func(s *Snapshot) {
			*inFlight(s) = underWay{
				InFlight:        facts.InFlight{Start: res.Start, Phase: phase, PhaseStart: start},
				throttledBefore: throttled,
			}
		})
	}
	show(facts.PhaseListPodSandbox, res.Start)
	sandboxes, err := l.rt.ListPodSandbox(ctx)
	res.End = time.Now()
	throttled = l.Throttled()
	res.ListPodSandbox = without(res.End.Sub(res.Start), throttled-res.throttled)
	var containers []*cri.Entry
	if err == nil {
		start := res.End
		show(facts.PhaseListContainers, start)
		containers, err = l.rt.ListContainers(ctx)
		res.End = time.Now()
		res.ListContainers = without(res.End.Sub(start), l.Throttled()-throttled)
	}
	res.Err = cri.AsError(err)
	if res.Err != nil {
		return nil, res
	}
	// Both calls have been answered: the time of the grouping is plegd's own.
	l.set(func(s *Snapshot) { *inFlight(s) = underWay{InFlight: facts.InFlight{Start: res.Start}} })
	listed := l.grouped.Load()
	if !listed.madeOf(sandboxes, containers) {
		listed = group(sandboxes, containers)
		l.grouped.Store(listed)
	}
	return listed, res
}

// without returns how long calls took without the time for which plegd's own CPU quota held it meanwhile,
// which may be counted for each CPU.
func without(took, throttled time.Duration) time.Duration { return max(0, took-max(0, throttled)) }

// relist makes one relist.
func (l *Loop) relist(parent context.Context) {
	l.forgetRequests()
	if seen := l.Snapshot().LastSeen; !seen.IsZero() {
		l.obs.RelistInterval(time.Since(seen))
	}
	l.set(func(s *Snapshot) {
		s.Attempts++
		s.Inspections = nil
		s.Extra = nil
	})
	listed, res := l.list(parent, func(s *Snapshot) *underWay { return &s.Relist })
	if parent.Err() != nil {
		return // plegd is stopping
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	l.takeRestart(cancel) // these are the new kubelet's first lists
	tooMany := res.Err != nil && res.Err.TooMany
	if tooMany {
		// The kubelet would read this list: it is no failure of the runtime.
		res.Err = nil
	}
	l.set(func(s *Snapshot) {
		s.listed(listed, res, !tooMany)
		if res.Err == nil {
			// As in the kubelet, inspections delay the next relist, not this time.
			s.LastSeen = res.Start
		}
	})
	if res.Err == nil && !tooMany && listed != l.settled {
		l.settled = nil
		l.inspect(parent, ctx, update(l.records, listed), res)
		if res.Failed == 0 {
			l.settled = listed
		}
	}
	restarted := l.takeRestart(cancel)
	if restarted || parent.Err() != nil {
		return // a new kubelet relists at once
	}
	l.end(res)
}

// forgetRequests drops the requests that the relist which begins now answers.
func (l *Loop) forgetRequests() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = false
	l.hints = nil
	l.hinted = 0
}

// takeRestart reports whether the kubelet has restarted since the last call, and forgets
// the pods then. cancel ends the inspections at the next restart.
func (l *Loop) takeRestart(cancel context.CancelFunc) (restarted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	restarted = l.kubeletRestarted
	l.kubeletRestarted = false
	l.cancelInspections = cancel
	if restarted {
		l.records = map[string]*record{}
		l.settled = nil
	}
	return restarted
}

// listed notes a pair of lists that ended, in a relist or beside one.
func (s *Snapshot) listed(pair *lists, res *Result, counted bool) {
	if res.Err != nil {
		s.AnsweredSince = time.Time{}
		return
	}
	failed := s.Failures > 0 || s.Beside.Failures > 0
	if failed || res.End.Sub(res.Start) >= facts.HangAfter {
		s.AnsweredSince = res.End
	}
	if res.Start.After(s.Listed) {
		s.Listed = res.Start
	}
	// A published snapshot may hold the old slice, so it is never written to.
	keep := s.Lists[max(0, len(s.Lists)-recentLists+1):]
	s.Lists = append(append(make([]time.Duration, 0, recentLists), keep...), res.ListPodSandbox+res.ListContainers)
	s.Beside.Failures = 0
	s.Beside.Last = nil
	if counted {
		s.Pods = pair.counts
	}
}

func (l *Loop) end(res *Result) {
	res.End = time.Now()
	res.Serial = max(res.ListPodSandbox+res.ListContainers, without(res.End.Sub(res.Start), l.Throttled()-res.throttled))
	l.set(func(s *Snapshot) {
		if res.Changed > 0 {
			s.Changes++
		}
		if res.Err == nil {
			s.Failures = 0
		} else {
			s.Failures++
		}
		s.Last = res
		s.Relist = underWay{}
		s.Inspections = nil
		s.Extra = nil
	})
	l.obs.RelistDone(res.Serial, res.Err == nil)
	l.relistEnded.Send()
}
