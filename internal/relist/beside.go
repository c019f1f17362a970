package relist

import (
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/bounded"
)

const (
	// besidePeriod is the time between two pairs of lists beside the relists.
	besidePeriod = time.Second
	// stuckAfter is the age of an inspection from which waiting pods are inspected
	// beside it, one at a time, each for extraTimeout at most.
	stuckAfter   = 5 * time.Second
	extraTimeout = 10 * time.Second
	// maxExtra is the maximum number of these inspections in one relist.
	maxExtra = 64
)

// background runs f beside the relists until it returns. A panic in it ends f alone:
// diagnosis must not end the daemon.
func (l *Loop) background(f func()) {
	l.group.Go(func() {
		_ = bounded.Recovered(func() error { f(); return nil })
	})
}

// diagnose lists each second until ctx ends, for diagnosis only. Lists under way
// then continue beside the next relist, until life ends. Behind an inspection that
// is stuck it inspects the pods that wait, one at a time.
func (l *Loop) diagnose(life, ctx context.Context, inspections []*Inspection) {
	extra, seen := make(chan struct{}, 1), map[string]bool{}
	l.background(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(besidePeriod):
			}
			select {
			case extra <- struct{}{}:
				i := nextExtra(inspections, seen)
				if i == nil {
					<-extra
					break
				}
				l.background(func() { defer func() { <-extra }(); l.inspectExtra(ctx, i) })
			default:
			}
			select {
			case l.beside <- struct{}{}:
				l.background(func() { defer func() { <-l.beside }(); l.listBeside(life) })
			default:
			}
		}
	})
}

// listBeside makes a pair of lists beside the relists.
func (l *Loop) listBeside(ctx context.Context) {
	listed, res := l.list(ctx, func(p Phase, at time.Time) {
		l.set(func(s *Snapshot) {
			if p == ListingSandboxes {
				s.Beside.Start = at
			}
			s.Beside.Phase, s.Beside.PhaseStart = p, at
		})
	})
	l.set(func(s *Snapshot) {
		s.Beside.Phase, s.Beside.Start, s.Beside.PhaseStart = Idle, time.Time{}, time.Time{}
		if ctx.Err() != nil {
			return
		}
		if s.listed(listed, res, res.Err == nil); res.Err != nil && !res.Err.TooMany {
			s.Beside.Failures++
			s.Beside.Last = res
		}
	})
}

// nextExtra returns an inspection for the next pod that waits behind a stuck one,
// nil if there is none. done holds the pods that were returned.
func nextExtra(inspections []*Inspection, done map[string]bool) *Inspection {
	stuck := false
	for _, i := range inspections {
		p, began, ended := i.State()
		switch {
		case ended:
		case began:
			stuck = time.Since(p.CallStart) >= stuckAfter
			done[p.UID] = true
		case !stuck || len(done) > maxExtra:
			return nil
		case !done[p.UID]:
			done[p.UID] = true
			return newInspection(i.pod, p.Failures)
		}
	}
	return nil
}

// inspectExtra inspects a waiting pod beside the relist, so that several stuck pods
// are found within seconds and not one every two minutes. It settles no pod.
func (l *Loop) inspectExtra(ctx context.Context, i *Inspection) {
	ctx, cancel := context.WithTimeout(ctx, extraTimeout)
	defer cancel()
	l.set(func(s *Snapshot) { s.Extra = append(slices.Clip(s.Extra), i) })
	_ = i.run(ctx, l.rt, extraTimeout) // its result is evidence
}
