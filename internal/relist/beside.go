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
		_ = bounded.Recovered(func() error { // it is reported
			f()
			return nil
		})
	})
}

// diagnose lists each second until ctx ends, for diagnosis only. Lists under way
// then continue beside the next relist, until life ends. Behind an inspection that
// is stuck it inspects the pods that wait, one at a time.
func (l *Loop) diagnose(life, ctx context.Context, inspections []*Inspection) {
	extra := make(chan struct{}, 1)
	inspected := map[string]bool{}
	l.background(func() {
		for bounded.Sleep(ctx, besidePeriod) {
			l.alone(extra, func() {
				if i := nextExtra(inspections, inspected); i != nil {
					l.inspectExtra(ctx, i)
				}
			})
			l.alone(l.besideToken, func() { l.listBeside(life) })
		}
	})
}

// alone runs f in the background unless one with the same token runs.
func (l *Loop) alone(token chan struct{}, f func()) {
	select {
	case token <- struct{}{}:
		l.background(func() {
			defer func() { <-token }()
			f()
		})
	default:
	}
}

// listBeside makes a pair of lists beside the relists.
func (l *Loop) listBeside(ctx context.Context) {
	listed, res := l.list(ctx, func(s *Snapshot) *underWay { return &s.Beside.underWay })
	l.set(func(s *Snapshot) {
		s.Beside.underWay = underWay{}
		if ctx.Err() != nil {
			return
		}
		s.listed(listed, res, res.Err == nil)
		if res.Err != nil && !res.Err.TooMany {
			s.Beside.Failures++
			s.Beside.Last = res
		}
	})
}

// nextExtra returns an inspection for the next pod that waits behind a stuck one,
// nil if there is none. done holds the pods that were returned.
func nextExtra(inspections []*Inspection, done map[string]bool) *Inspection {
	current := slices.IndexFunc(inspections, func(i *Inspection) bool {
		_, _, finished := i.State()
		return !finished
	})
	if current < 0 {
		return nil
	}
	p, began, _ := inspections[current].State()
	if !began || time.Since(p.CallStart) < stuckAfter {
		return nil
	}
	done[p.UID] = true
	if len(done) > maxExtra {
		return nil
	}
	for _, i := range inspections[current+1:] {
		waiting, _, _ := i.State()
		if !done[waiting.UID] {
			done[waiting.UID] = true
			return newInspection(i.pod, waiting.Failures)
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
	i.run(ctx, l) // its result is evidence
}
