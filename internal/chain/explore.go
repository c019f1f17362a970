package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// Symptom is where a chain begins, and what the explorer needs to know of the daemon.
type Symptom struct {
	facts.Symptom
	// OthersAnswered reports whether the runtime answers other calls, Lasts whether the
	// call is still unanswered.
	OthersAnswered, Lasts func() bool
	// Targets returns what the last lists held, those to be asked first at first.
	Targets func() []*cri.Entry
	// RuntimePID is the runtime's process, DaemonPID dockerd's behind it; 0 while unknown.
	RuntimePID, DaemonPID int
	// Locked may poll for its Lock, unseen in /proc/locks; nil for none.
	Locked *facts.Process
	// Pod returns the namespace and name of the pod of an id, "" where it is not known.
	Pod func(id string) string
}

// Explore goes once from a symptom to its culprit, and returns the known part of the chain.
// It is called repeatedly for as long as the symptom lasts.
func (e *Explorer) Explore(ctx context.Context, s Symptom) facts.Chain {
	if o := e.symptom; !o.Since.Equal(s.Since) || o.Operation != s.Operation || o.Process != s.Process {
		*e = *New(e.table, e.sysfs, e.ask)
	}
	if e.symptom = s; s.Process != 0 {
		return e.Process(ctx, s.Process)
	}
	general := s.Operation == cri.OpStatus // about neither a sandbox nor a container
	if !general && len(e.sweep.hung) == 0 && time.Now().After(e.sweep.next) && s.OthersAnswered() {
		e.sweep = run(ctx, e.ask, s.Targets(), func() bool { return s.OthersAnswered() && s.Lasts() })
	}
	c := facts.Chain{At: time.Now(), Links: []facts.Link{{
		Kind: facts.KindCall, Name: s.Operation, Since: s.Called, State: facts.LinkUnanswered,
		Evidence: fmt.Sprintf("unanswered for %s", time.Since(s.Called).Round(100*time.Millisecond)),
	}}}
	target, unknown := e.sweep.target()
	if target.ID != "" {
		c.Links = append(c.Links, targetLink(target))
	}
	switch helpers := e.helpersOf(ctx, e.runtime(), target.ID); {
	case len(helpers) > 0 && (target.ID != "" || general && s.OthersAnswered()):
		// A helper that began before the call may have the lock that it waits for.
		e.follow(ctx, &c, helpers[0].PID)
	case target.ID != "":
		e.fromTarget(ctx, &c, target)
	case general && s.OthersAnswered():
		c.Unknown = "the runtime has no helper, and its inside cannot be seen"
	case s.OthersAnswered():
		c.Unknown = unknown
	case s.RuntimePID != 0:
		e.follow(ctx, &c, s.RuntimePID)
	default:
		c.Unknown = "the runtime's process is not known"
	}
	e.finish(&c)
	return c
}

// targetLink is the link of a container or a pod. Its id is what crictl inspect takes.
func targetLink(t *cri.Entry) facts.Link {
	kind, name := facts.KindContainer, t.PodNamespace+"/"+t.PodName+"/"+t.Name
	if t.Sandbox {
		kind, name = facts.KindPod, t.PodNamespace+"/"+t.PodName
	}
	if t.PodName == "" {
		name = t.ID
	}
	return facts.Link{
		Kind: kind, Name: name, RuntimeID: t.ID, State: facts.LinkUnanswered,
		Evidence: "the call for its status alone is unanswered too",
	}
}

// fromTarget continues with the shim or conmon of a container or sandbox. Where that is
// idle the lock is held inside the runtime, by a thread that may wait for a mount.
func (e *Explorer) fromTarget(ctx context.Context, c *facts.Chain, t *cri.Entry) {
	n := len(c.Links)
	pid, why := e.shimOf(ctx, t)
	if pid != 0 {
		e.follow(ctx, c, pid)
		if len(c.Links) != n+1 || c.Links[n].State != facts.LinkAsleep && c.Links[n].State != facts.LinkRunning {
			return
		}
		why = fmt.Sprintf("its shim, pid %d, is idle: the lock is held by something inside the runtime", pid)
	}
	c.Links = c.Links[:n]
	if pid = e.runtime(); pid != 0 {
		e.follow(ctx, c, pid)
	}
	if c.Link(facts.KindMount) == nil {
		c.Links, c.Unknown = c.Links[:n], why
	}
}

// shimOf finds the shim or conmon of a target by its arguments: that of the container
// where there is one, as of Docker and CRI-O, else that of its sandbox.
func (e *Explorer) shimOf(ctx context.Context, t *cri.Entry) (pid int, why string) {
	byID, shims := map[string][]int{}, 0
	for _, p := range e.processes(ctx).ByPID {
		if p.Kind() != proc.KindShim {
			continue
		}
		shims++
		args := e.table.Args(p.ID())
		// A shim that is being started has the same arguments for a moment, and the
		// command that starts it too.
		if n := len(args); n > 0 && args[n-1] != "start" && args[n-1] != "delete" {
			id := p.ShimID(args)
			byID[id] = append(byID[id], p.PID)
		}
	}
	found := byID[t.ID]
	if len(found) == 0 {
		found = byID[t.SandboxID]
	}
	switch len(found) {
	case 0:
		return 0, fmt.Sprintf("its shim or conmon is not among the %d that plegd sees", shims)
	case 1:
		return found[0], ""
	}
	return 0, fmt.Sprintf("%d shims or conmons name it", len(found))
}

// Limits of a sweep: a call that hangs stays in the runtime for as long as the lock that
// it waits for. At most sweepInFlight of them do for one fault.
const (
	sweepInFlight = 2
	sweepTimeout  = 500 * time.Millisecond
	sweepSpacing  = 5 * time.Millisecond // 200 a second
)

// Asker asks the runtime for the status of one container or sandbox. It returns nil for any
// answer, context.DeadlineExceeded when there was none in time, and another error when the
// runtime could not be asked.
type Asker func(ctx context.Context, t *cri.Entry) error

// sweep is the result of asking for one target after another.
type sweep struct {
	next   time.Time // when it may be repeated
	asked  int
	hung   []*cri.Entry
	failed error // why not all were asked, nil where one hangs
}

// run asks for the targets in their order until one hangs, all are asked, ctx ends, or the
// runtime cannot be asked. may reports whether other calls are still answered.
func run(ctx context.Context, ask Asker, targets []*cri.Entry, may func() bool) sweep {
	began, s := time.Now(), sweep{}
	calls, asking := errgroup.WithContext(ctx)
	calls.SetLimit(sweepInFlight)
	var mu sync.Mutex
	for _, t := range targets {
		if time.Sleep(sweepSpacing); asking.Err() != nil {
			break
		}
		calls.Go(func() error {
			if asking.Err() != nil || !may() {
				return errors.New("no other call is answered")
			}
			limited, done := context.WithTimeout(ctx, sweepTimeout)
			defer done()
			err := bounded.Recovered(func() error { return ask(limited, t) })
			mu.Lock()
			defer mu.Unlock()
			s.asked++
			e, failed := errors.AsType[*facts.CallError](err)
			hangs := failed && e.Code == cri.CodeDeadlineExceeded && limited.Err() != nil
			if hangs && ctx.Err() == nil {
				s.hung = append(s.hung, t)
			}
			if failed && !hangs && e.Code != cri.CodeUnavailable && e.Code != cri.CodeCanceled {
				return nil // an error is an answer
			}
			return err
		})
	}
	if err := cmp.Or(calls.Wait(), ctx.Err()); len(s.hung) == 0 {
		s.failed = err
	}
	// A lock may have been free for the moment in which its container was asked for: the
	// rest before the next sweep is long as compared with this one.
	s.next = time.Now().Add(min(10*time.Second, max(time.Second, 4*time.Since(began))))
	return s
}

// target returns the target whose call hangs; the text is the reason why there is none.
func (s *sweep) target() (none *cri.Entry, why string) {
	none = &cri.Entry{}
	switch {
	case len(s.hung) == 1, len(s.hung) > 1 && s.hung[0].SandboxID == s.hung[1].SandboxID:
		return s.hung[0], "" // one lock of a pod may hold up several of its containers
	case len(s.hung) > 1:
		return none, fmt.Sprintf("%d of %d single status calls hang as well, of different pods", len(s.hung), s.asked)
	case s.asked == 0:
		return none, "no single status call has been made yet"
	case s.failed == nil:
		return none, fmt.Sprintf("each of %d single status calls is answered: it is a lock of the list itself", s.asked)
	}
	return none, fmt.Sprintf("%d single status calls are made, the others could not be: %v", s.asked, s.failed)
}
