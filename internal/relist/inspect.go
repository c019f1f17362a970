package relist

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

// Inspection is the inspection of one pod.
type Inspection struct {
	pod    *pod
	failed string // the id of the item whose status failed; for the goroutine that runs the inspection
	state  atomic.Pointer[facts.PodInspection]
	// throttledBefore is the loop's Throttled when the call under way began.
	throttledBefore atomic.Int64
}

func newInspection(p *pod, failures int) *Inspection {
	i := &Inspection{pod: p}
	i.state.Store(&facts.PodInspection{UID: p.uid, Namespace: p.namespace, Name: p.name, Failures: failures})
	return i
}

// State returns the inspection as of now. Its CallStart is zero once it ended.
func (i *Inspection) State() (p facts.PodInspection, began, finished bool) {
	p = *i.state.Load()
	began = !p.Start.IsZero()
	return p, began, began && p.CallStart.IsZero()
}

// run inspects a pod as the kubelet does: one PodSandboxStatus per sandbox, and then one
// ContainerStatus per container. An item that is gone is no error; any other error ends
// the inspection. It reports whether there was none.
func (i *Inspection) run(ctx context.Context, l *Loop) (ok bool) {
	s := *i.state.Load()
	s.Start = time.Now()
	throttled := l.Throttled()
	for _, sandboxes := range []bool{true, false} {
		for _, e := range i.pod.items {
			if e.Sandbox != sandboxes || s.Err != nil {
				continue
			}
			call := s
			call.Operation = e.Operation()
			call.CallStart = time.Now()
			i.throttledBefore.Store(int64(l.Throttled()))
			i.state.Store(&call)
			s.Operation = call.Operation
			if err := cri.AsError(l.rt.StatusOf(ctx, e)); err != nil && err.Code != cri.CodeNotFound {
				s.Err = err
				s.Failures++
				i.failed = e.ID
			}
		}
	}
	s.Duration = without(time.Since(s.Start), l.Throttled()-throttled)
	i.state.Store(&s)
	return s.Err == nil
}

// count counts a pod that has changed.
func (r *Result) count(w *work) {
	if len(w.events) > 0 {
		r.Changed++
	}
	if w.starts() {
		r.Started++
	}
}

// inspect inspects the pods of todo one after another, advances their records and
// delivers their events. It returns early when ctx ends.
func (l *Loop) inspect(life, ctx context.Context, todo []work, res *Result) {
	var inspected []work
	for _, w := range todo {
		res.count(&w)
		if w.cur == nil {
			l.settle(w)
			continue
		}
		if w.cur.item(w.failed) == nil {
			w.failures = 0 // the item was removed between its list and its status, and some runtimes answer so
		}
		inspected = append(inspected, w)
		res.Inspections = append(res.Inspections, newInspection(w.cur, w.failures))
	}
	res.Inspected = len(inspected)
	if len(inspected) > 0 {
		throttled := l.Throttled()
		l.set(func(s *Snapshot) {
			s.Inspections = res.Inspections
			s.Relist.Phase = facts.PhaseInspect
			s.Relist.PhaseStart = time.Now()
			s.Relist.throttledBefore = throttled
		})
		l.diagnose(life, ctx, res.Inspections)
	}
	for n, i := range res.Inspections {
		ok := i.run(ctx, l)
		if ctx.Err() != nil {
			return
		}
		l.obs.InspectionDone(ok)
		if !ok {
			// The record keeps its old state, so that the next relist finds the change again.
			res.Failed++
			inspected[n].reinspect = true
			inspected[n].failures++
			inspected[n].failed = i.failed
			continue
		}
		l.settle(inspected[n])
	}
	l.set(func(s *Snapshot) { s.Reinspect = res.Failed })
}

// settle advances a pod's record and delivers its events.
func (l *Loop) settle(w work) {
	p := w.who
	if len(w.events) == 0 && w.reinspect {
		w.events = []Event{{PodSync, &cri.Entry{PodUID: p.uid, PodName: p.name, PodNamespace: p.namespace}}}
	}
	w.reinspect = false
	w.failures = 0
	w.old = w.cur
	if w.cur == nil {
		delete(l.records, p.uid)
	}
	for _, e := range w.events {
		l.obs.Event(e)
	}
}
