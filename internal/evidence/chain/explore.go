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
	// Sandboxes is true for calls about sandboxes.
	Sandboxes bool
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
	// Pod returns the namespace and name of the pod of a sandbox or container, "" where
	// it is not known.
	Pod func(id string) string
}

// Explorer goes from a symptom to its culprit, again and again for as long as it
// lasts. Not for several goroutines at once.
type Explorer struct {
	walker *Walker
	asker  Asker

	of      Symptom // the fault that the rest is about
	sweep   *Sweep
	swept   time.Time     // the end of the last sweep
	took    time.Duration // how long it took
	whole   bool          // it asked for all
	failed  error         // of the last sweep
	publish func(health.Chain)
}

// NewExplorer returns an explorer. publish is called with each chain as soon as it
// is known.
func NewExplorer(procfs, sysfs string, asker Asker, publish func(health.Chain)) *Explorer {
	return &Explorer{walker: NewWalker(procfs, sysfs), asker: asker, publish: publish}
}

// Close closes what the explorer holds.
func (e *Explorer) Close() { e.walker.Close() }

// Forget ends a fault.
func (e *Explorer) Forget() {
	e.walker.Forget()
	e.of, e.sweep, e.swept, e.whole, e.failed = Symptom{}, nil, time.Time{}, false, nil
}

// Explore makes one round.
func (e *Explorer) Explore(ctx context.Context, s Symptom) {
	if e.sweep == nil || !e.of.Since.Equal(s.Since) || e.of.Operation != s.Operation || e.of.Process != s.Process {
		e.Forget()
		e.of, e.sweep = s, &Sweep{}
		e.walker.Begun = s.Since
	}
	e.walker.Runtime, e.walker.Pod = s.RuntimePID, s.Pod
	if s.DaemonPID != 0 {
		e.walker.Runtime = s.DaemonPID
	}
	if s.Process != 0 {
		e.publish(e.walker.Process(ctx, s.Process, s.Kind))
		return
	}
	if s.Target.ID == "" && s.OthersAnswered() {
		if hung, _ := e.sweep.Hung(); len(hung) == 0 && time.Since(e.swept) >= min(sweepAgain, max(leastAgain, restFor*e.took)) {
			e.sweeping(ctx, s)
		}
	}
	e.publish(e.chain(ctx, s))
}

// sweeping looks for the container whose call hangs. As soon as one does it goes
// on from there.
func (e *Explorer) sweeping(ctx context.Context, s Symptom) {
	began := time.Now()
	first := make(chan struct{}, sweepHung)
	type result struct {
		whole bool
		err   error
	}
	done := make(chan result, 1)
	may := func() bool { return s.OthersAnswered() && s.Lasts() }
	targets := e.ordered(ctx, s)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil {
				r.err = fmt.Errorf("the sweep panicked: %v", p)
			}
			done <- r
		}()
		r.whole, r.err = e.sweep.Run(ctx, e.asker, targets, may, func() { first <- struct{}{} })
	}()
	for {
		select {
		case <-first:
			e.publish(e.chain(ctx, s))
		case r := <-done:
			e.whole, e.failed = r.whole, r.err
			e.swept, e.took = time.Now(), time.Since(began)
			return
		}
	}
}

// ordered are the targets, those that a helper of the runtime works on first.
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
	slices.SortStableFunc(all, func(a, b Target) int {
		switch {
		case busy[a.ID] == busy[b.ID]:
			return 0
		case busy[a.ID]:
			return -1
		}
		return 1
	})
	return all
}

// chain returns the chain as far as it is known.
func (e *Explorer) chain(ctx context.Context, s Symptom) health.Chain {
	w := e.walker
	c := health.Chain{At: time.Now(), Links: []health.Link{{
		Kind: health.KindCall, Name: s.Operation, Since: s.Called, State: health.LinkUnanswered,
		Evidence: fmt.Sprintf("unanswered for %s", time.Since(s.Called).Round(100*time.Millisecond)),
	}}}
	target, unknown := s.Target, ""
	if target.ID == "" {
		target, unknown = e.hung(s)
	}
	switch {
	case target.ID != "":
		c.Links = append(c.Links, targetLink(target))
		e.fromTarget(ctx, &c, s, target)
	case s.OthersAnswered():
		c.Unknown = unknown
	case s.RuntimePID != 0:
		w.follow(ctx, &c, s.RuntimePID, health.KindRuntime)
	default:
		c.Unknown = "the runtime's process is not known"
	}
	w.keepSince(&c)
	c.At = time.Now() // it may have taken a while, with many processes
	return c
}

// hung returns the target whose call hangs; the text says why there is none.
func (e *Explorer) hung(s Symptom) (Target, string) {
	hung, asked := e.sweep.Hung()
	what := "container"
	if s.Sandboxes {
		what = "sandbox"
	}
	switch {
	case len(hung) == 1:
		return hung[0], ""
	case len(hung) > 1:
		// One lock of a pod may hold up several of its containers.
		for _, h := range hung[1:] {
			if h.SandboxID != hung[0].SandboxID {
				return Target{}, fmt.Sprintf("the calls for %d of %d single %ss hang as well, of different pods", len(hung), asked, what)
			}
		}
		return hung[0], ""
	case e.failed != nil:
		return Target{}, "the single " + what + "s could not be asked for: " + e.failed.Error()
	case asked == 0:
		return Target{}, "no " + what + " has been asked for yet"
	case e.whole:
		return Target{}, fmt.Sprintf("each of %d single %ss is answered: it is a lock of the list itself", asked, what)
	default:
		return Target{}, fmt.Sprintf("the calls for %d single %ss are answered, the others could not be asked", asked, what)
	}
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

// fromTarget continues with the shim or conmon of a container or sandbox.
func (e *Explorer) fromTarget(ctx context.Context, c *health.Chain, s Symptom, t Target) {
	if helper := e.helperOf(ctx, t.ID); helper != 0 {
		e.walker.follow(ctx, c, helper, health.KindHelper)
		return
	}
	pid, why := e.shimOf(ctx, t)
	n := len(c.Links)
	if pid == 0 {
		if !e.mountOfRuntime(ctx, c, s) {
			c.Unknown = why
		}
		return
	}
	if e.walker.about = t.ID; t.Sandbox {
		e.walker.about = ""
	}
	e.walker.follow(ctx, c, pid, health.KindShim)
	if len(c.Links) == n+1 && (c.Links[n].State == health.LinkAsleep || c.Links[n].State == health.LinkRunning) {
		// A shim that sleeps with nothing unread and no helper waits for its next
		// request, like any other.
		c.Links = c.Links[:n]
		if !e.mountOfRuntime(ctx, c, s) {
			c.Unknown = fmt.Sprintf("its shim, pid %d, is idle: the lock is held by something inside the runtime", pid)
		}
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
	if len(c.Links) < n+2 || c.Links[n+1].Kind != health.KindMount {
		c.Links, c.Unknown = c.Links[:n], ""
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
	switch {
	case len(found) == 1:
		return found[0], ""
	case len(found) == 0:
		return 0, fmt.Sprintf("its shim or conmon is not among the %d that plegd sees", shims)
	default:
		return 0, fmt.Sprintf("%d shims or conmons name it", len(found))
	}
}

// helperOf finds the helper that the runtime itself has started for a container, as CRI-O
// does, and that runs for longer than it should. 0 where there is none, or several.
func (e *Explorer) helperOf(ctx context.Context, id string) (pid int) {
	if id == "" || e.walker.Runtime == 0 {
		return 0
	}
	for _, p := range e.walker.processes(ctx).Children(e.walker.Runtime) {
		young := proc.Uptime()-proc.TicksToDuration(p.Start) < helperAge
		if young || !slices.Contains(e.walker.table.Args(p.ID()), id) || e.walker.kindOf(ctx, p.Stat) != health.KindHelper {
			continue
		}
		if pid != 0 {
			return 0
		}
		pid = p.PID
	}
	return pid
}
