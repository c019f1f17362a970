package chain

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
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

// Explore makes one round.
func (e *Explorer) Explore(ctx context.Context, s Symptom) {
	if !e.begun || !e.of.Since.Equal(s.Since) || e.of.Operation != s.Operation || e.of.Process != s.Process {
		e.walker.Forget()
		e.of, e.begun, e.sweep, e.walker.Begun = s, true, sweep{}, s.Since
	}
	e.walker.Runtime, e.walker.front, e.walker.Pod = cmp.Or(s.DaemonPID, s.RuntimePID), s.RuntimePID, s.Pod
	e.walker.lock, e.walker.locked = s.Lock, s.LockedPID
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

// ordered returns the targets, those that a helper works on first.
func (e *Explorer) ordered(ctx context.Context, s Symptom) []Target {
	all, busy, idle := s.Targets(), []Target(nil), []Target(nil)
	args := map[string]bool{}
	for _, p := range e.walker.processes(ctx).ByPID {
		if e.walker.isHelper(ctx, p.Stat) {
			for _, arg := range e.walker.table.Args(p.ID()) {
				args[arg] = true
			}
		}
	}
	for _, t := range all {
		if args[t.ID] {
			busy = append(busy, t)
		} else {
			idle = append(idle, t)
		}
	}
	return append(busy, idle...)
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
		if helpers := e.walker.helpersOf(ctx, e.walker.Runtime, ""); len(helpers) > 0 {
			e.walker.follow(ctx, &c, helpers[0].PID, health.KindHelper)
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

// fromTarget continues with the helper, shim or conmon of a container or sandbox. Where
// that is idle the lock is held inside the runtime, by a thread that may wait for a mount.
func (e *Explorer) fromTarget(ctx context.Context, c *health.Chain, s Symptom, t Target) {
	if helpers := e.walker.helpersOf(ctx, e.walker.Runtime, t.ID); len(helpers) > 0 && t.ID != "" {
		e.walker.follow(ctx, c, helpers[0].PID, health.KindHelper)
		return
	}
	pid, why := e.shimOf(ctx, t)
	if pid != 0 {
		if e.walker.about = t.ID; t.Sandbox {
			e.walker.about = ""
		}
		if e.leads(ctx, c, pid, health.KindShim) {
			return
		}
		why = fmt.Sprintf("its shim, pid %d, is idle: the lock is held by something inside the runtime", pid)
	}
	pid, kind := s.RuntimePID, health.KindRuntime
	if s.DaemonPID != 0 {
		pid, kind = s.DaemonPID, health.KindProcess
	}
	if n := len(c.Links); pid == 0 || !e.leads(ctx, c, pid, kind) || c.Link(health.KindMount) == nil {
		c.Links, c.Unknown = c.Links[:n], why
	}
}

// leads appends the chain from a process. False, and nothing appended, where that is idle.
func (e *Explorer) leads(ctx context.Context, c *health.Chain, pid int, kind health.LinkKind) bool {
	n := len(c.Links)
	e.walker.follow(ctx, c, pid, kind)
	if len(c.Links) == n+1 && (c.Links[n].State == health.LinkAsleep || c.Links[n].State == health.LinkRunning) {
		c.Links = c.Links[:n]
		return false
	}
	return true
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
