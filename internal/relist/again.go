package relist

import (
	"context"
	"time"
)

// An answer that came late may have been late because the runtime hung, or
// because it is slow. For a kubelet that inspects one pod after the other the
// difference is large: of sixteen inspections that hung together for four
// seconds it waits for one, and of sixteen that are slow for each. So a pod
// whose inspection was answered late is asked for once more with the next
// relist, shortly, and only to learn how the runtime answers now.
const (
	// late is how long an inspection must have taken.
	late = 1500 * time.Millisecond
	// againTimeout limits the second one: a runtime that is slow is not to be
	// made slower.
	againTimeout = time.Second
)

// noteLate remembers the pod of an inspection that was answered, if late.
func (l *Loop) noteLate(j *job) {
	if j.spent >= late && len(l.late) < l.cfg.InspectConcurrency {
		l.late = append(l.late, j.work.pod)
	}
}

// inspectAgain inspects the pods that were answered late in the relist before
// and not yet inspected in this one. It changes no record, generates no event
// and leaves the cache alone.
func (l *Loop) inspectAgain(ctx context.Context, pods []*podRecord, res *Result) {
	seen := map[string]bool{}
	for _, i := range res.Inspections {
		seen[i.UID] = true
	}
	var jobs []*job
	for _, p := range pods {
		if !seen[p.uid] && p.present() {
			j := newJob(work{pod: p})
			j.timeout = min(againTimeout, l.cfg.InspectTimeout)
			jobs = append(jobs, j)
		}
	}
	if len(jobs) == 0 {
		return
	}
	l.now.Inspections = res.Inspections
	l.enter(Inspecting, time.Now())
	inspected := l.inspect(ctx, jobs)
	for {
		j, ok := l.awaitJob(inspected)
		if !ok {
			return
		}
		if j.status.Err == nil {
			res.Again = append(res.Again, j.inspection)
		}
	}
}
