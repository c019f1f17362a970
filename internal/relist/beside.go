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
// is stuck it inspects those of the jobs that wait, one at a time.
func (l *Loop) diagnose(life, ctx context.Context, jobs []*job) {
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
				j := nextExtra(jobs, seen)
				if j == nil {
					<-extra
					break
				}
				l.background(func() { defer func() { <-extra }(); l.inspectExtra(ctx, j) })
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

// nextExtra returns a job for the next pod that waits behind a stuck inspection,
// nil if there is none. done holds the pods that were returned.
func nextExtra(jobs []*job, done map[string]bool) *job {
	stuck := false
	for _, j := range jobs {
		p, began, ended := j.inspection.State()
		switch {
		case ended:
		case began:
			stuck = time.Since(p.CallStart) >= stuckAfter
			done[j.pod.uid] = true
		case !stuck || len(done) > maxExtra:
			return nil
		case !done[j.pod.uid]:
			done[j.pod.uid] = true
			return newJob(j.pod, p.Failures)
		}
	}
	return nil
}

// inspectExtra inspects a waiting pod beside the relist, so that several stuck pods
// are found within seconds and not one every two minutes. It settles no pod.
func (l *Loop) inspectExtra(ctx context.Context, j *job) {
	ctx, cancel := context.WithTimeout(ctx, extraTimeout)
	defer cancel()
	l.set(func(s *Snapshot) { s.Extra = append(slices.Clip(s.Extra), j.inspection) })
	_ = j.run(ctx, l.rt, extraTimeout) // its result is evidence
}
