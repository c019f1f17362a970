package relist

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// Inspection is the inspection of one pod.
type Inspection struct {
	pod       *pod
	exitCodes map[string]int32
	state     atomic.Pointer[inspectionState]
}

type inspectionState struct {
	health.PodInspection

	began, ended bool
}

func newInspection(p *pod, failures int) *Inspection {
	i := &Inspection{pod: p, exitCodes: map[string]int32{}}
	i.state.Store(&inspectionState{PodInspection: health.PodInspection{
		UID: p.uid, Namespace: p.namespace, Name: p.name, Failures: failures,
	}})
	return i
}

// State returns the inspection as of now. Its CallStart is zero once it ended.
func (i *Inspection) State() (p health.PodInspection, began, ended bool) {
	s := i.state.Load()
	return s.PodInspection, s.began, s.ended
}

// run inspects a pod as the kubelet does: one PodSandboxStatus per sandbox, one
// ContainerStatus per container, each call with the timeout. An item that is gone
// is no error; any other error ends the inspection and is returned.
func (i *Inspection) run(ctx context.Context, rt Runtime, timeout time.Duration) error {
	s := *i.state.Load()
	s.Start, s.began = time.Now(), true
	var failed *health.CallError
	for _, sandboxes := range []bool{true, false} {
		for _, it := range i.pod.items {
			if it.sandbox != sandboxes || failed != nil {
				continue
			}
			s.Operation, s.CallStart = cri.OpContainerStatus, time.Now()
			if it.sandbox {
				s.Operation = cri.OpPodSandboxStatus
			}
			call := s
			i.state.Store(&call)
			if err := asError(i.ask(ctx, rt, it, timeout)); err != nil && err.Code != cri.CodeNotFound {
				failed = err
			}
		}
	}
	s.Duration, s.CallStart, s.ended = time.Since(s.Start), time.Time{}, true
	if failed == nil {
		i.state.Store(&s)
		return nil
	}
	s.Err = failed
	s.Failures++
	i.state.Store(&s)
	return failed
}

func (i *Inspection) ask(ctx context.Context, rt Runtime, it item, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if it.sandbox {
		return rt.PodSandboxStatus(ctx, it.id)
	}
	exitCode, err := rt.ContainerStatus(ctx, it.id)
	if err == nil {
		i.exitCodes[it.id] = exitCode
	}
	return err
}

// asError returns err as the *health.CallError that a Runtime returns. Any other error
// becomes one with code Unknown.
func asError(err error) *health.CallError {
	if err == nil {
		return nil
	}
	var e *health.CallError
	if !errors.As(err, &e) {
		e = &health.CallError{Code: cri.CodeUnknown, Message: err.Error()}
	}
	return e
}

// inspect inspects the pods of todo one after another, advances their records and
// delivers their events. It returns early when ctx ends.
func (l *Loop) inspect(life, ctx context.Context, todo []work, res *Result) {
	var of []work
	for _, w := range todo {
		if len(w.events) > 0 {
			res.Changed++
		}
		if w.cur == nil {
			l.settle(w, nil)
			continue
		}
		of, res.Inspections = append(of, w), append(res.Inspections, newInspection(w.cur, w.failures))
	}
	res.Inspected = len(of)
	if len(of) > 0 {
		l.set(func(s *Snapshot) {
			s.Inspections, s.Phase, s.PhaseStart = res.Inspections, Inspecting, res.Listed
		})
		l.diagnose(life, ctx, res.Inspections)
	}
	for n, i := range res.Inspections {
		err := i.run(ctx, l.rt, time.Duration(l.timeout.Load()))
		if ctx.Err() != nil {
			return
		}
		l.obs.InspectionDone(err == nil)
		if err != nil {
			// The record keeps its old state, so that the next relist finds the change again.
			res.Failed++
			of[n].reinspect = true
			of[n].failures++
			continue
		}
		l.settle(of[n], i.exitCodes)
	}
	l.set(func(s *Snapshot) { s.Reinspect = res.Failed })
}

// settle advances a pod's record and delivers its events.
func (l *Loop) settle(w work, exitCodes map[string]int32) {
	p := w.who
	if len(w.events) == 0 && w.reinspect {
		w.events = []Event{{Type: PodSync, PodUID: p.uid, PodName: p.name, PodNamespace: p.namespace}}
	}
	w.reinspect, w.failures = false, 0
	if w.old = w.cur; w.cur == nil {
		delete(l.records, p.uid)
	}
	for _, e := range w.events {
		if e.Type == ContainerDied {
			e.ExitCode, e.HasExitCode = exitCodes[e.ID]
		}
		l.obs.Event(e)
	}
}
