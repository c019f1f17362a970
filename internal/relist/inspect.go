package relist

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// job is one pod's inspection: what is to be asked, and what came of it.
type job struct {
	work       work
	sandboxes  []string
	containers []string
	inspection *Inspection
	timeout    time.Duration // 0: InspectTimeout
	running    int           // inspections at once when it began, itself included
	// status outlives the job, in the cache: nothing else may hang on it.
	status *PodStatus
	spent  time.Duration // the calls' times together
}

func newJob(w work) *job {
	j := &job{work: w, status: &PodStatus{}, inspection: &Inspection{UID: w.pod.uid, Namespace: w.pod.namespace, Name: w.pod.name, Failures: w.pod.failures}}
	for _, r := range w.pod.records {
		switch {
		case r.cur == gone:
		case r.sandbox:
			j.sandboxes = append(j.sandboxes, r.id)
		default:
			j.containers = append(j.containers, r.id)
		}
	}
	return j
}

// inspect runs the jobs, as many at once as pace allows and at most
// InspectConcurrency, and delivers each when it is done.
func (l *Loop) inspect(ctx context.Context, jobs []*job) <-chan *job {
	done := make(chan *job, len(jobs))
	l.pace.start(time.Now())
	go func() {
		var workers sync.WaitGroup
		for _, j := range jobs {
			running, ok := l.pace.enter(ctx)
			if !ok {
				break
			}
			workers.Go(func() {
				j.running = running
				j.run(ctx, l.rt, cmp.Or(j.timeout, l.cfg.InspectTimeout), l.pace)
				done <- j
			})
		}
		workers.Wait()
		close(done)
	}()
	return done
}

// run inspects one pod: one PodSandboxStatus per sandbox, one ContainerStatus
// per container, ids from the list. What was removed in between is no error.
func (j *job) run(parent context.Context, rt Runtime, timeout time.Duration, pace *pace) {
	ctx, cancel := context.WithTimeout(parent, timeout)
	defer cancel()
	began := time.Now()
	p := j.status
	p.UID, p.Namespace, p.Name, p.At = j.inspection.UID, j.inspection.Namespace, j.inspection.Name, began
	out := &InspectionResult{Start: began, End: began}
	took := map[cri.Operation]callTimes{}
	defer func() { pace.leave(began, j.running, took) }()

	ask := func(op cri.Operation, call func() error) bool {
		start, running := time.Now(), pace.calling()
		j.inspection.call.Store(&inspectionCall{op: op, began: began, start: start})
		err := asError(call())
		out.End = time.Now()
		out.Operation, out.LastCall = op, out.End.Sub(start)
		pace.called(op, running, start, out.LastCall)
		took[op] = callTimes{took[op].n + 1, took[op].total + out.LastCall}
		if err == nil || err.Code == cri.CodeNotFound {
			return true
		}
		out.Err, p.Err = err, err
		// The runtime knows the deadline too, and may say so a moment before
		// it is ours.
		out.Cut = err.Code == cri.CodeDeadlineExceeded && out.End.Sub(began) >= timeout*9/10
		return false
	}
	ok := true
	for _, id := range j.sandboxes {
		ok = ok && ask(cri.OpPodSandboxStatus, func() error {
			s, err := rt.PodSandboxStatus(ctx, id)
			if err == nil {
				p.Sandboxes = append(p.Sandboxes, s)
				if len(p.IPs) == 0 && s.Ready {
					p.IPs = s.IPs
				}
			}
			return err
		})
	}
	for _, id := range j.containers {
		ok = ok && ask(cri.OpContainerStatus, func() error {
			s, err := rt.ContainerStatus(ctx, id)
			if err == nil {
				p.Containers = append(p.Containers, s)
			}
			return err
		})
	}
	j.spent = out.End.Sub(began)
	j.inspection.done.Store(out)
}

// asError returns err as the *cri.Error that a Runtime returns; any other error
// becomes one of code Unknown.
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
