package chain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

// Symptom is where a chain begins, and what the explorer needs to know of the daemon.
type Symptom struct {
	facts.Symptom
	// OthersAnswered reports whether the runtime answers other calls, Lasts whether the
	// call is still unanswered.
	OthersAnswered, Lasts func() bool
	// Targets returns what the last lists held, in probe order.
	Targets func() []*cri.Entry
	// RuntimePID is the runtime's process, DaemonPID dockerd's behind it; 0 while unknown.
	RuntimePID, DaemonPID int
	// Helper is a child of the runtime's that may run for long, and counts as a helper; 0 for none.
	Helper int
	// Locked may poll for its Lock, unseen in /proc/locks, or have used up its descriptors; nil for none.
	Locked *facts.Process
	// Pod returns the namespace and name of the pod of an id, "" where it is not known.
	Pod func(id string) string
}

// Explore follows a symptom to its culprit once, and returns the known part of the chain.
// It is called repeatedly for as long as the symptom lasts.
func (e *Explorer) Explore(ctx context.Context, s Symptom) facts.Chain {
	if !e.symptom.isSame(s) {
		e.reset()
	}
	e.symptom = s
	if s.Process != 0 {
		c := e.Process(ctx, s.Process)
		if s.Starts && len(c.Links) == 1 && c.Unknown == "" {
			c.Links = nil // that the runtime sleeps explains nothing
		}
		return c
	}
	e.noteOpened()
	e.probeTargets(ctx)
	c := facts.Chain{At: time.Now(), Links: []facts.Link{{
		Kind: facts.KindCall, Name: s.Operation, Since: s.Called, State: facts.LinkUnanswered,
		Evidence: fmt.Sprintf("unanswered for %s", time.Since(s.Called).Round(100*time.Millisecond)),
	}}}
	e.fromCall(ctx, &c)
	e.finish(&c)
	return c
}

// isSame reports whether a symptom is still the same one.
func (s Symptom) isSame(newest Symptom) bool {
	return s.Since.Equal(newest.Since) && s.Operation == newest.Operation && s.Process == newest.Process
}

// isGeneral reports whether the call is about neither a sandbox nor a container.
func (s Symptom) isGeneral() bool { return s.Operation == cri.OpStatus }

// reset drops the findings about the previous symptom.
func (e *Explorer) reset() {
	e.sweep = sweep{}
	e.begins = bounded.Since[string]{}
}

// noteOpened keeps the sockets that the daemon behind the runtime has at the first round: those that are
// opened later belong to calls that hang.
func (e *Explorer) noteOpened() {
	if e.opened != nil || e.symptom.DaemonPID == 0 {
		return
	}
	sockets, err := proc.SocketInodes(e.procfs, e.symptom.DaemonPID)
	if err == nil {
		e.opened = sockets
	}
}

// probeTargets asks for single containers or sandboxes while other calls are answered.
func (e *Explorer) probeTargets(ctx context.Context) {
	s := e.symptom
	isDue := len(e.sweep.hung) == 0 && time.Now().After(e.sweep.next)
	if s.isGeneral() || !isDue || !s.OthersAnswered() {
		return
	}
	targets := s.Targets()
	if s.IsList() {
		targets = append(e.unlisted(ctx, targets), targets...)
	}
	e.sweep = run(ctx, e.ask, targets, func() bool { return s.OthersAnswered() && s.Lasts() })
}

// fromCall continues from the call that hangs.
func (e *Explorer) fromCall(ctx context.Context, c *facts.Chain) {
	s := e.symptom
	target, unknown := e.sweep.target()
	found := target.ID != ""
	if found {
		c.Links = append(c.Links, targetLink(target))
	}
	var helpers []proc.Process // those of other symptoms are no cause, and a table of processes is expensive
	var unread error
	if found || s.isGeneral() && s.OthersAnswered() {
		helpers, unread = e.helpersOfCall(ctx, target.ID)
	}
	switch {
	case len(helpers) > 0:
		// A helper that began before the call may have the lock that it waits for.
		e.follow(ctx, c, helpers[0].PID)
	case found:
		e.fromTarget(ctx, c, target, unread)
	case s.isGeneral() && s.OthersAnswered():
		e.fromRuntime(ctx, c, "the runtime has no helper, and its inside cannot be seen")
	case s.OthersAnswered() && e.sweep.complete():
		e.fromRuntime(ctx, c, unknown)
	case s.OthersAnswered():
		c.Unknown = unknown
	case s.RuntimePID != 0:
		e.follow(ctx, c, s.RuntimePID)
	default:
		c.Unknown = "the runtime's process is not known"
	}
}

// helpersOfCall returns the helpers of the process that does the runtime's work, and without such the
// network plugins, which cri-dockerd starts itself. The error is as that of helpersOf.
func (e *Explorer) helpersOfCall(ctx context.Context, id string) (helpers []proc.Process, unread error) {
	helpers, unread = e.helpersOf(ctx, e.runtime(), id)
	if len(helpers) > 0 || id == "" || e.symptom.RuntimePID == e.runtime() {
		return helpers, unread
	}
	plugins, unreadPlugin := e.helpersOf(ctx, e.symptom.RuntimePID, id)
	return plugins, cmp.Or(unread, unreadPlugin)
}

// targetLink is the link of a container or a pod. Its id is what crictl inspect takes.
func targetLink(t *cri.Entry) facts.Link {
	kind := facts.KindContainer
	name := t.PodNamespace + "/" + t.PodName + "/" + t.Name
	if t.Sandbox {
		kind = facts.KindPod
		name = t.PodNamespace + "/" + t.PodName
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
// idle the lock is held inside the runtime, by a thread that may wait for a mount or another
// process, unless a helper may have it of which that could not be read.
func (e *Explorer) fromTarget(ctx context.Context, c *facts.Chain, t *cri.Entry, unread error) {
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
	if unread != nil {
		why = unread.Error()
	}
	e.fromRuntime(ctx, c, why)
}

// fromRuntime continues with the process that does the runtime's work, else with the runtime, if that leads outside of
// it; unknown is the reason that the chain gives where it does not.
func (e *Explorer) fromRuntime(ctx context.Context, c *facts.Chain, unknown string) {
	n := len(c.Links)
	for _, pid := range slices.Compact([]int{e.runtime(), e.symptom.RuntimePID}) {
		e.follow(ctx, c, pid)
		if leadsOutside(c.Links[n:]) {
			return
		}
		c.Links = c.Links[:n]
		c.Unknown = unknown
	}
}

// leadsOutside reports whether the links from the runtime on end outside of it: at a mount or in the kernel, as below a
// frozen file system, or at another process that has a file lock, leaves requests unanswered, or does nothing until
// it is continued.
func leadsOutside(links []facts.Link) bool {
	if len(links) < 2 {
		return false
	}
	runtime := links[0].State
	return runtime == facts.LinkLocked || runtime == facts.LinkUnanswered ||
		slices.ContainsFunc(links[1:], func(l facts.Link) bool {
			return l.Kind == facts.KindMount || l.Kind == facts.KindKernel || l.PID != 0 && l.State.StandsStill()
		})
}

// shimOf finds the shim or conmon of a target by its arguments: that of the container
// where there is one, as of Docker and CRI-O, else that of its sandbox.
func (e *Explorer) shimOf(ctx context.Context, t *cri.Entry) (pid int, why string) {
	byID := map[string][]int{}
	shims := 0
	all := e.processes(ctx)
	for _, p := range all.ByPID {
		if !e.isShim(ctx, p) {
			continue
		}
		shims++
		args := e.table.Args(p.ID())
		// A shim that is being started has the same arguments for a moment, and the
		// command that starts it too.
		if len(args) == 0 || family.IsShimCommand(args) {
			continue
		}
		id := family.ShimID(p, args)
		byID[id] = append(byID[id], p.PID)
	}
	found := byID[t.ID]
	if len(found) == 0 {
		found = byID[t.SandboxID]
	}
	switch len(found) {
	case 0:
		if all.Unread != nil {
			return 0, fmt.Sprintf("its shim or conmon is not known: not all processes could be read (%s)", proc.Why(all.Unread))
		}
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
	// deadlineSlack is how long before plegd's own timer a runtime that has the deadline of the call may report it.
	deadlineSlack = 50 * time.Millisecond
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

// outcome is how a single call ended.
type outcome int

const (
	answered   outcome = iota // an error is an answer, too
	hangs                     // there was none in time
	impossible                // the runtime could not be asked
)

// outcomeOf returns how a call ended. limited is the context that limited it.
func outcomeOf(limited context.Context, err error) outcome {
	deadline, _ := limited.Deadline()
	e, failed := errors.AsType[*facts.CallError](err)
	switch {
	case err == nil:
		return answered
	case !failed, e.Code == cri.CodeUnavailable, e.Code == cri.CodeCanceled:
		return impossible
	case e.Code == cri.CodeDeadlineExceeded && time.Until(deadline) < deadlineSlack:
		return hangs
	}
	return answered
}

// run asks for the targets in their order until one hangs, all are asked, ctx ends, or the
// runtime cannot be asked. allowed reports whether other calls are still answered.
func run(ctx context.Context, ask Asker, targets []*cri.Entry, allowed func() bool) sweep {
	began := time.Now()
	s := sweep{}
	calls, asking := errgroup.WithContext(ctx)
	calls.SetLimit(sweepInFlight)
	var mu sync.Mutex
	for _, t := range targets {
		if !bounded.Sleep(asking, sweepSpacing) {
			break
		}
		calls.Go(func() error {
			if asking.Err() != nil || !allowed() {
				return errors.New("no other call is answered")
			}
			limited, done := context.WithTimeout(ctx, sweepTimeout)
			defer done()
			err := bounded.Recovered(func() error { return ask(limited, t) })
			mu.Lock()
			defer mu.Unlock()
			return s.count(ctx, t, err, outcomeOf(limited, err))
		})
	}
	err := cmp.Or(calls.Wait(), ctx.Err())
	if len(s.hung) == 0 {
		s.failed = err
	}
	// A lock may have been free for the moment in which its container was asked for: the
	// rest before the next sweep is long as compared with this one.
	s.next = time.Now().Add(min(10*time.Second, max(time.Second, 4*time.Since(began))))
	return s
}

// count notes how a call ended; an error ends the sweep.
func (s *sweep) count(ctx context.Context, t *cri.Entry, err error, how outcome) error {
	s.asked++
	if how == answered {
		return nil
	}
	if how == hangs && ctx.Err() == nil {
		s.hung = append(s.hung, t)
	}
	return err
}

// complete reports whether the sweep has shown that no single container or pod is the cause.
func (s *sweep) complete() bool { return s.asked > 0 && s.failed == nil }

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
