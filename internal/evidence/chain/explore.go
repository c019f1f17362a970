package chain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// sweepAgain is the most time after a sweep that found nothing until the next one
	// begins, restFor how much longer it is than the sweep itself took: a lock may have
	// been free for the moment in which its container was asked for.
	sweepAgain = 10 * time.Second
	leastAgain = time.Second
	restFor    = 4
)

// Symptom is a call that hangs, or a process that something is wrong with.
type Symptom struct {
	// Process is that process, 0 for a call; Kind is its kind.
	Process int
	Kind    health.LinkKind
	// Operation is the call as the kubelet's metrics name it, Since when the fault
	// began, and Called when the call under way did.
	Operation     string
	Since, Called time.Time
	// Sandboxes is true for calls about sandboxes, General for those about neither a
	// sandbox nor a container.
	Sandboxes, General bool
	// Target is the container or sandbox that the call is about; zero for a list.
	Target Target
	// OthersAnswered reports whether the runtime answers other calls.
	OthersAnswered func() bool
	// Lasts reports whether the call is still unanswered.
	Lasts func() bool
	// Targets returns what the last lists held, those to be asked first at first.
	Targets func() []Target
	// RuntimePID is the runtime's process, DaemonPID that of dockerd behind cri-dockerd;
	// 0 while it is not known.
	RuntimePID, DaemonPID int
	// Lock is the file lock that the process LockedPID waits for, by other evidence; nil for
	// none.
	Lock      *health.LockWait
	LockedPID int
	// Pod returns the namespace and name of the pod of a sandbox or container, "" where
	// it is not known.
	Pod func(id string) string
}

// Explorer goes from a symptom to its culprit, again and again for as long as it
// lasts. Not for several goroutines at once.
type Explorer struct {
	walker  *Walker
	asker   Asker
	publish func(health.Chain)

	of      Symptom // the fault that the rest is about
	begun   bool
	sweep   sweep
	targets int // of the last sweep
}

// NewExplorer returns an explorer. publish is called with each chain as soon as it
// is known.
func NewExplorer(procfs, sysfs string, asker Asker, publish func(health.Chain)) *Explorer {
	return &Explorer{walker: NewWalker(procfs, sysfs), asker: asker, publish: publish}
}

// Close closes the walker.
func (e *Explorer) Close() { e.walker.Close() }

// Explore makes one round.
func (e *Explorer) Explore(ctx context.Context, s Symptom) {
	if !e.begun || !e.of.Since.Equal(s.Since) || e.of.Operation != s.Operation || e.of.Process != s.Process {
		e.walker.Forget()
		e.of, e.begun, e.sweep, e.walker.Begun = s, true, sweep{}, s.Since
	}
	e.walker.Runtime, e.walker.Pod = s.RuntimePID, s.Pod
	e.walker.polled = polledLock{s.LockedPID, s.Lock}
	if s.DaemonPID != 0 {
		e.walker.Runtime = s.DaemonPID
	}
	if s.Process != 0 {
		e.publish(e.walker.Process(ctx, s.Process, s.Kind))
		return
	}
	if s.Target.ID == "" && !s.General && len(e.sweep.hung) == 0 && s.OthersAnswered() {
		rest := min(sweepAgain, max(leastAgain, restFor*e.sweep.ended.Sub(e.sweep.began)))
		if time.Since(e.sweep.ended) >= rest {
			targets := e.ordered(ctx, s)
			e.targets = len(targets)
			e.sweep = run(ctx, e.asker, targets, func() bool { return s.OthersAnswered() && s.Lasts() })
		}
	}
	e.publish(e.chain(ctx, s))
}

// ordered returns the targets, those that a helper of the runtime works on first.
func (e *Explorer) ordered(ctx context.Context, s Symptom) []Target {
	all := s.Targets()
	busy := map[string]bool{}
	processes := e.walker.processes(ctx)
	for _, p := range processes.ByPID {
		if parent := processes.ByPID[p.PPID]; p.Kind == node.KindOCI || parent.Kind == node.KindShim {
			for _, arg := range e.walker.table.Args(p.ID()) {
				busy[arg] = true
			}
		}
	}
	rank := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(all, func(a, b Target) int { return rank[busy[a.ID]] - rank[busy[b.ID]] })
	return all
}

// chain returns the chain as far as it is known.
func (e *Explorer) chain(ctx context.Context, s Symptom) health.Chain {
	c := health.Chain{At: time.Now(), Links: []health.Link{{
		Kind: health.KindCall, Name: s.Operation, Since: s.Called, State: health.LinkUnanswered,
		Evidence: fmt.Sprintf("unanswered for %s", time.Since(s.Called).Round(100*time.Millisecond)),
	}}}
	target, unknown := s.Target, ""
	if target.ID == "" && !s.General {
		what := "container"
		if s.Sandboxes {
			what = "sandbox"
		}
		target, unknown = e.sweep.target(what, e.targets)
	}
	switch {
	case target.ID != "":
		c.Links = append(c.Links, targetLink(target))
		e.fromTarget(ctx, &c, s, target)
	case s.OthersAnswered() && s.General:
		// A helper that began before the call may have the lock that it waits for.
		if helper := e.helperOf(ctx, ""); helper != 0 {
			e.walker.follow(ctx, &c, helper, health.KindHelper)
		} else {
			c.Unknown = "the runtime has no helper, and its inside cannot be seen"
		}
	case s.OthersAnswered():
		c.Unknown = unknown
	case s.RuntimePID != 0:
		e.walker.follow(ctx, &c, s.RuntimePID, health.KindRuntime)
	default:
		c.Unknown = "the runtime's process is not known"
	}
	e.walker.keepSince(&c)
	return c
}

// targetLink is the link of a container or a pod. Its id is what crictl inspect takes.
func targetLink(t Target) health.Link {
	kind, name := health.KindContainer, t.Namespace+"/"+t.Pod+"/"+t.Container
	if t.Sandbox {
		kind, name = health.KindPod, t.Namespace+"/"+t.Pod
	}
	if t.Pod == "" {
		name = t.ID
	}
	return health.Link{
		Kind: kind, Name: clean(name), RuntimeID: clean(t.ID), State: health.LinkUnanswered,
		Evidence: "the call for its status alone is unanswered too",
	}
}

// fromTarget continues with the helper, shim or conmon of a container or sandbox. A shim
// that sleeps with nothing unread and no helper waits for its next request, like any
// other: the lock is held inside the runtime then.
func (e *Explorer) fromTarget(ctx context.Context, c *health.Chain, s Symptom, t Target) {
	if helper := e.helperOf(ctx, t.ID); helper != 0 {
		e.walker.follow(ctx, c, helper, health.KindHelper)
		return
	}
	pid, why := e.shimOf(ctx, t)
	if n := len(c.Links); pid != 0 {
		if e.walker.about = t.ID; t.Sandbox {
			e.walker.about = ""
		}
		e.walker.follow(ctx, c, pid, health.KindShim)
		idle := len(c.Links) == n+1 && (c.Links[n].State == health.LinkAsleep || c.Links[n].State == health.LinkRunning)
		if !idle {
			return
		}
		c.Links = c.Links[:n]
		why = fmt.Sprintf("its shim, pid %d, is idle: the lock is held by something inside the runtime", pid)
	}
	if !e.mountOfRuntime(ctx, c, s) {
		c.Unknown = why
	}
}

// mountOfRuntime continues at the runtime where that waits for a file on a mount and
// for nothing else: the holder of the lock of a container without a shim, or with an
// idle one, is the runtime itself.
func (e *Explorer) mountOfRuntime(ctx context.Context, c *health.Chain, s Symptom) bool {
	pid, kind := s.RuntimePID, health.KindRuntime
	if s.DaemonPID != 0 {
		pid, kind = s.DaemonPID, health.KindProcess
	}
	if pid == 0 {
		return false
	}
	n := len(c.Links)
	e.walker.follow(ctx, c, pid, kind)
	if len(c.Links) >= n+2 && c.Links[n+1].Kind == health.KindMount {
		return true
	}
	c.Links, c.Unknown = c.Links[:n], ""
	return false
}

// shimOf finds the shim or conmon of a target by its arguments: that of the container
// where there is one, as of Docker and CRI-O, else that of its sandbox.
func (e *Explorer) shimOf(ctx context.Context, t Target) (pid int, why string) {
	byID := map[string][]int{}
	shims := 0
	for _, p := range e.walker.processes(ctx).ByPID {
		if p.Kind != node.KindShim {
			continue
		}
		shims++
		args := e.walker.table.Args(p.ID())
		// A shim that is being started has the same arguments for a moment, and the
		// command that starts it too.
		if n := len(args); n > 0 && args[n-1] != "start" && args[n-1] != "delete" {
			id := shimID(p.Stat, args)
			byID[id] = append(byID[id], p.PID)
		}
	}
	found := byID[t.ID]
	if len(found) == 0 {
		found = byID[t.SandboxID]
	}
	switch len(found) {
	case 1:
		return found[0], ""
	case 0:
		return 0, fmt.Sprintf("its shim or conmon is not among the %d that plegd sees", shims)
	}
	return 0, fmt.Sprintf("%d shims or conmons name it", len(found))
}

// helperOf finds the helper that the runtime itself has started for a container, as CRI-O
// does, or for anything where id is "", and that runs for longer than it should: the
// oldest, 0 for none.
func (e *Explorer) helperOf(ctx context.Context, id string) int {
	var oldest proc.Stat
	for _, p := range e.walker.processes(ctx).Children(e.walker.Runtime) {
		if age(p.Stat) < helperAge || oldest.PID != 0 && oldest.Start <= p.Start {
			continue
		}
		if (id == "" || slices.Contains(e.walker.table.Args(p.ID()), id)) && e.walker.isHelper(ctx, p.Stat) {
			oldest = p.Stat
		}
	}
	return oldest.PID
}
