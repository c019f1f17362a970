package relist

import (
	"context"
	"slices"
	"time"
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
func (l *Loop) RelyOnEvents(on bool) {
	l.set(func(s *Snapshot) {
		s.Evented, s.Period = on, l.period
		if on {
			s.Period = EventedPeriod
		}
	})
	// The wait under way takes over the new period.
	l.Relist()
}

// relistPod relists one pod. After an error the next relist does it.
func (l *Loop) relistPod(ctx context.Context, uid string) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	sandboxes, containers, err := l.rt.PodLists(ctx, uid)
	if err != nil {
		return
	}
	l.settled = nil
	w, ok := updatePod(l.records, uid, group(sandboxes, containers).pods[uid])
	if !ok {
		return
	}
	if w.cur == nil {
		l.settle(w)
		return
	}
	if newInspection(w.cur, w.failures).run(ctx, l.rt) {
		l.obs.InspectionDone(true)
		l.settle(w)
	}
}
