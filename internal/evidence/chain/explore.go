package chain

import (
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
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
	// OthersAnswered reports whether the runtime answers other calls, Lasts whether the
	// call is still unanswered.
	OthersAnswered, Lasts func() bool
	// Targets returns what the last lists held, those to be asked first at first.
	Targets func() []Target
	// RuntimePID is the runtime's process, DaemonPID that of dockerd behind cri-dockerd;
	// 0 while it is not known.
	RuntimePID, DaemonPID int
	// Lock is the file lock that the process LockedPID polls for, unseen in /proc/locks;
	// nil for none.
	Lock      *health.LockWait
	LockedPID int
	// Pod returns the namespace and name of the pod of a sandbox or container, "" where
	// it is not known; nil: none is.
	Pod func(id string) string
}

// Explore goes once from a symptom to its culprit, and returns the known part of the chain.
// It is called repeatedly for as long as the symptom lasts.
func (e *Explorer) Explore(ctx context.Context, s Symptom) health.Chain {
	if o := e.symptom; !o.Since.Equal(s.Since) || o.Operation != s.Operation || o.Process != s.Process {
		*e = *New(e.procfs, e.sysfs, e.ask)
	}
	e.symptom, e.about = s, ""
	if s.Process != 0 {
		return e.Process(ctx, s.Process, s.Kind)
	}
	if !s.General && len(e.sweep.hung) == 0 && s.OthersAnswered() {
		// A lock may have been free for the moment in which its container was asked for: it
		// sweeps again after a rest that is long as compared with the sweep.
		rest := min(10*time.Second, max(time.Second, 4*e.sweep.ended.Sub(e.sweep.began)))
		if time.Since(e.sweep.ended) >= rest {
			e.sweep = run(ctx, e.ask, s.Targets(), func() bool { return s.OthersAnswered() && s.Lasts() })
		}
	}
	c := health.Chain{At: time.Now(), Links: []health.Link{{
		Kind: health.KindCall, Name: s.Operation, Since: s.Called, State: health.LinkUnanswered,
		Evidence: fmt.Sprintf("unanswered for %s", time.Since(s.Called).Round(100*time.Millisecond)),
	}}}
	what := "container"
	if s.Sandboxes {
		what = "sandbox"
	}
	target, unknown := e.sweep.target(what)
	switch helpers := e.helpersOf(ctx, e.runtime(), target.ID); {
	case target.ID != "":
		c.Links = append(c.Links, targetLink(target))
		e.fromTarget(ctx, &c, target, helpers)
	case s.OthersAnswered() && s.General && len(helpers) > 0:
		// A helper that began before the call may have the lock that it waits for.
		e.follow(ctx, &c, helpers[0].PID, health.KindHelper)
	case s.OthersAnswered() && s.General:
		c.Unknown = "the runtime has no helper, and its inside cannot be seen"
	case s.OthersAnswered():
		c.Unknown = unknown
	case s.RuntimePID != 0:
		e.follow(ctx, &c, s.RuntimePID, health.KindRuntime)
	default:
		c.Unknown = "the runtime's process is not known"
	}
	e.finish(&c)
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
		Kind: kind, Name: name, RuntimeID: t.ID, State: health.LinkUnanswered,
		Evidence: "the call for its status alone is unanswered too",
	}
}

// fromTarget continues with the helper, shim or conmon of a container or sandbox. Where
// that is idle the lock is held inside the runtime, by a thread that may wait for a mount.
func (e *Explorer) fromTarget(ctx context.Context, c *health.Chain, t Target, helpers []node.Process) {
	if len(helpers) > 0 {
		e.follow(ctx, c, helpers[0].PID, health.KindHelper)
		return
	}
	pid, why := e.shimOf(ctx, t)
	if pid != 0 {
		if !t.Sandbox {
			e.about = t.ID
		}
		if e.leads(ctx, c, pid, health.KindShim) {
			return
		}
		why = fmt.Sprintf("its shim, pid %d, is idle: the lock is held by something inside the runtime", pid)
	}
	kind := health.KindRuntime
	if e.symptom.DaemonPID != 0 {
		kind = health.KindProcess
	}
	n := len(c.Links)
	if pid = e.runtime(); pid == 0 || !e.leads(ctx, c, pid, kind) || c.Link(health.KindMount) == nil {
		c.Links, c.Unknown = c.Links[:n], why
	}
}

// leads appends the chain from a process. False, and nothing appended, where that is idle.
func (e *Explorer) leads(ctx context.Context, c *health.Chain, pid int, kind health.LinkKind) bool {
	n := len(c.Links)
	e.follow(ctx, c, pid, kind)
	if len(c.Links) == n+1 && (c.Links[n].State == health.LinkAsleep || c.Links[n].State == health.LinkRunning) {
		c.Links = c.Links[:n]
		return false
	}
	return true
}

// shimOf finds the shim or conmon of a target by its arguments: that of the container
// where there is one, as of Docker and CRI-O, else that of its sandbox.
func (e *Explorer) shimOf(ctx context.Context, t Target) (pid int, why string) {
	byID, shims := map[string][]int{}, 0
	for _, p := range e.processes(ctx).ByPID {
		if p.Kind() != node.KindShim {
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
	for _, id := range []string{t.ID, t.SandboxID} {
		switch found := byID[id]; len(found) {
		case 0:
		case 1:
			return found[0], ""
		default:
			return 0, fmt.Sprintf("%d shims or conmons name it", len(found))
		}
	}
	return 0, fmt.Sprintf("its shim or conmon is not among the %d that plegd sees", shims)
}
