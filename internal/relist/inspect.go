package relist

import (
	"context"
	"errors"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// job is the inspection of one pod.
type job struct {
	pod        *pod
	inspection *Inspection
	exitCodes  map[string]int32
}

func newJob(p *pod, failures int) *job {
	return &job{pod: p, inspection: newInspection(p, failures), exitCodes: map[string]int32{}}
}

// run inspects a pod as the kubelet does: one PodSandboxStatus per sandbox, one
// ContainerStatus per container, each call with the timeout. An item that is gone
// is no error; any other error ends the inspection and is returned.
func (j *job) run(ctx context.Context, rt Runtime, timeout time.Duration) error {
	s := *j.inspection.state.Load()
	s.Start, s.began = time.Now(), true
	var failed *health.CallError
	for _, sandboxes := range []bool{true, false} {
		for _, it := range j.pod.items {
			if it.sandbox != sandboxes || failed != nil {
				continue
			}
			s.Operation, s.CallStart = cri.OpContainerStatus, time.Now()
			if it.sandbox {
				s.Operation = cri.OpPodSandboxStatus
			}
			call := s
			j.inspection.state.Store(&call)
			if err := asError(j.ask(ctx, rt, it, timeout)); err != nil && err.Code != cri.CodeNotFound {
				failed = err
			}
		}
	}
	s.Duration, s.CallStart, s.ended = time.Since(s.Start), time.Time{}, true
	if failed != nil {
		s.Err = failed
		s.Failures++
	}
	j.inspection.state.Store(&s)
	if failed != nil {
		return failed
	}
	return nil
}

func (j *job) ask(ctx context.Context, rt Runtime, it item, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if it.sandbox {
		return rt.PodSandboxStatus(ctx, it.id)
	}
	exitCode, err := rt.ContainerStatus(ctx, it.id)
	if err == nil {
		j.exitCodes[it.id] = exitCode
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
	var jobs []*job
	var of []work
	for _, w := range todo {
		if len(w.events) > 0 {
			res.Changed++
		}
		if w.cur == nil {
			l.settle(w, nil)
			continue
		}
		j := newJob(w.cur, w.failures)
		jobs, of, res.Inspections = append(jobs, j), append(of, w), append(res.Inspections, j.inspection)
	}
	res.Inspected = len(jobs)
	if len(jobs) > 0 {
		l.set(func(s *Snapshot) {
			s.Inspections, s.Phase, s.PhaseStart = res.Inspections, Inspecting, res.Listed
		})
		l.diagnose(life, ctx, jobs)
	}
	for i, j := range jobs {
		err := j.run(ctx, l.rt, time.Duration(l.timeout.Load()))
		if ctx.Err() != nil {
			return
		}
		l.obs.InspectionDone(err == nil)
		if err != nil {
			// The record keeps its old state, so that the next relist finds the change again.
			res.Failed++
			of[i].reinspect = true
			of[i].failures++
			continue
		}
		l.settle(of[i], j.exitCodes)
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
