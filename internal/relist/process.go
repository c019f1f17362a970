package relist

import (
	"context"
	"time"
)

// process inspects the pods of todo, advances their records and delivers their
// events.
func (l *Loop) process(ctx context.Context, todo []work, res *Result, at time.Time) {
	var jobs []*job
	for _, w := range todo {
		if len(w.events) > 0 {
			res.Changed++
		}
		if !w.pod.present() { // a pod that is gone leaves the cache
			l.cache.remove(w.pod.uid)
			l.settle(w, nil)
			continue
		}
		jobs = append(jobs, newJob(w))
	}
	if len(jobs) == 0 {
		l.now.Reinspect = len(l.reinspect)
		return
	}
	for _, j := range jobs {
		res.Inspections = append(res.Inspections, j.inspection)
	}
	l.now.Inspections = res.Inspections
	l.enter(Inspecting, at)

	inspected := l.inspect(ctx, jobs)
	for {
		j, ok := l.awaitJob(inspected)
		if !ok {
			break
		}
		res.Serial += j.spent
		if ctx.Err() != nil {
			continue // stopping: let the others let go
		}
		l.cache.set(j.status)
		l.obs.InspectionDone(j.status.Err == nil)
		if j.status.Err != nil {
			// The record is not advanced, so that the change is seen again.
			res.Failed++
			j.work.pod.reinspect = true
			j.work.pod.failures++
			l.reinspect[j.work.pod.uid] = j.work.pod
			continue
		}
		l.settle(j.work, j.status)
		l.noteLate(j)
	}
	l.now.Reinspect = len(l.reinspect)
}

// settle advances a pod's record and delivers its events. status is nil for a
// pod that is gone.
func (l *Loop) settle(w work, status *PodStatus) {
	p := w.pod
	w.events = l.records.untold(p, w.events)
	if len(w.events) == 0 && p.reinspect {
		w.events = append(w.events, Event{Type: PodSync, PodUID: p.uid, PodName: p.name, PodNamespace: p.namespace})
	}
	p.reinspect, p.failures = false, 0
	delete(l.reinspect, p.uid)
	l.records.advance(p)
	for _, e := range w.events {
		l.deliver(e, status)
	}
}

// deliver hands an event on. status is what is known of its pod, nil for
// nothing.
func (l *Loop) deliver(e Event, status *PodStatus) {
	l.obs.EventGenerated(e.Type)
	if e.Type == ContainerChanged {
		return // internal: nobody gets these
	}
	if e.Type == ContainerDied && status != nil {
		e.ExitCode, e.HasExitCode = status.exitCode(e.ID)
	}
	select {
	case l.events <- e:
	default:
		l.obs.EventDiscarded()
		l.now.Discarded, l.now.LastDiscard = l.now.Discarded+1, time.Now()
	}
}
