package relist

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// stuckAfter is the age of an inspection from which waiting pods are inspected
	// beside it, one at a time, each for extraTimeout at most.
	stuckAfter   = 5 * time.Second
	extraTimeout = 10 * time.Second
	// maxExtra is the maximum number of these inspections in one relist.
	maxExtra = 64
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
	var failed *cri.Error
	for _, sandboxes := range []bool{true, false} {
		for _, it := range j.pod.items {
			if it.sandbox != sandboxes || failed != nil {
				continue
			}
			s.Operation, s.CallStart = string(cri.OpContainerStatus), time.Now()
			if it.sandbox {
				s.Operation = string(cri.OpPodSandboxStatus)
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
		s.Err = failed.Fact()
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
		_, err := rt.PodSandboxStatus(ctx, it.id)
		return err
	}
	s, err := rt.ContainerStatus(ctx, it.id)
	if err == nil {
		j.exitCodes[it.id] = s.ExitCode
	}
	return err
}

// asError returns err as the *cri.Error that a Runtime returns. Any other error
// becomes one with code Unknown.
func asError(err error) *cri.Error {
	if err == nil {
		return nil
	}
	var e *cri.Error
	if !errors.As(err, &e) {
		e = &cri.Error{Code: cri.CodeUnknown, Message: err.Error()}
	}
	return e
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
