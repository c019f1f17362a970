package relist

import (
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// Mode is the use of the runtime's event stream.
type Mode string

// The modes.
const (
	// Off: no event stream.
	Off Mode = "off"
	// Hint: an event requests an early relist of its pod (kubelet 1.37 and later).
	Hint Mode = "hint"
	// Evented: Hint, and while the stream holds relists are EventedPeriod apart
	// (kubelet 1.26 to 1.36).
	Evented Mode = "evented"
)

// The period and the threshold of a kubelet that relies on events
// (pkg/kubelet/kubelet.go, eventedPlegRelistPeriod and eventedPlegRelistThreshold).
const (
	EventedPeriod    = 300 * time.Second
	EventedThreshold = 10 * time.Minute
)

const (
	// hintTimeout limits the relist of one pod: it delays the next relist.
	hintTimeout = time.Second
	// hintsTimeout limits all of them between two relists together.
	hintsTimeout = 2 * time.Second
	// maxHints is the maximum number of pods relisted between two relists: in a burst
	// the next relist comes soon and costs the runtime less.
	maxHints = 20
)

// Hint requests an early relist of a pod. It never blocks.
func (l *Loop) Hint(uid string) {
	l.request(func() {
		if !slices.Contains(l.hints, uid) && l.hinted < maxHints {
			l.hints = append(l.hints, uid)
			l.hinted++
		}
	})
}

// RelyOnEvents sets EventedPeriod, or the generic period and a relist now.
func (l *Loop) RelyOnEvents(evented bool) {
	l.set(func(s *Snapshot) {
		s.Evented = evented
		s.Period = l.period
		if evented {
			s.Period = EventedPeriod
		}
	})
	// The wait under way takes over the new period.
	l.Relist()
}

// relistHinted relists the pods of hints one after another, and shows that as a list under
// way. It stops at the first call that is not answered in time: the next relist lists all.
func (l *Loop) relistHinted(parent context.Context, hints []string) {
	if len(hints) == 0 {
		return
	}
	start := time.Now()
	throttled := l.Throttled()
	l.set(func(s *Snapshot) {
		if s.Beside.Phase == "" { // else a list that is already under way shows more
			s.Beside.underWay = underWay{
				InFlight:        facts.InFlight{Start: start, Phase: facts.PhaseListPodSandbox, PhaseStart: start},
				throttledBefore: throttled,
			}
		}
	})
	defer l.set(func(s *Snapshot) {
		if s.Beside.Start.Equal(start) {
			s.Beside.underWay = underWay{}
		}
	})
	ctx, cancel := context.WithTimeout(parent, hintsTimeout)
	defer cancel()
	for _, uid := range hints {
		if late := l.relistPod(ctx, uid); late || ctx.Err() != nil {
			l.refuseHints()
			return
		}
	}
}

// refuseHints forgets the hints that have come meanwhile, and takes none before the next relist.
func (l *Loop) refuseHints() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hints = nil
	l.hinted = maxHints
}

// relistPod relists one pod. After an error the next relist does it. It reports whether the
// runtime did not answer in time.
func (l *Loop) relistPod(parent context.Context, uid string) (late bool) {
	ctx, cancel := context.WithTimeout(parent, hintTimeout)
	defer cancel()
	sandboxes, containers, err := l.rt.PodLists(ctx, uid)
	if err != nil {
		return ctx.Err() != nil
	}
	l.settled = nil
	w, ok := updatePod(l.records, uid, group(sandboxes, containers).pods[uid])
	if !ok {
		return false
	}
	if w.cur == nil {
		l.settle(w)
		return false
	}
	if newInspection(w.cur, w.failures).run(ctx, l) {
		l.obs.InspectionDone(true)
		l.settle(w)
	}
	return ctx.Err() != nil
}
