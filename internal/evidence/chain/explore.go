package chain

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
	// maxShims bounds the shims whose arguments are read.
	maxShims = 4096
)

// Symptom is a call that hangs, or a process that something is wrong with.
type Symptom struct {
	// Process is that process and Kind what it is, 0 for a call.
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
}

// Explorer goes from a symptom to its culprit, again and again for as long as it
// lasts. Not for several goroutines at once.
type Explorer struct {
	walker *Walker
	asker  Asker
	procfs string

	of      Symptom // the fault that the rest is about
	sweep   *Sweep
	swept   time.Time     // the end of the last sweep
	took    time.Duration // how long it took
	whole   bool          // it asked for all
	publish func(health.Chain)
}

// NewExplorer returns an explorer. publish is called with each chain as soon as it
// is known.
func NewExplorer(procfs, sysfs string, asker Asker, publish func(health.Chain)) *Explorer {
	return &Explorer{walker: NewWalker(procfs, sysfs), asker: asker, procfs: procfs, publish: publish}
}

// Close closes what the explorer holds.
func (e *Explorer) Close() { e.walker.Close() }

// Forget ends a fault.
func (e *Explorer) Forget() {
	e.walker.Forget()
	e.of, e.sweep, e.swept, e.whole = Symptom{}, nil, time.Time{}, false
}

// Explore makes one round.
func (e *Explorer) Explore(ctx context.Context, s Symptom) {
	if e.sweep == nil || !e.of.Since.Equal(s.Since) || e.of.Operation != s.Operation || e.of.Process != s.Process {
		e.Forget()
		e.of, e.sweep = s, &Sweep{}
		e.walker.Begun = s.Since
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
	done := make(chan bool, 1)
	may := func() bool { return s.OthersAnswered() && s.Lasts() }
	go func() {
		done <- e.sweep.Run(ctx, e.asker, e.ordered(s), may, func() { first <- struct{}{} })
	}()
	for {
		select {
		case <-first:
			e.publish(e.chain(ctx, s))
		case e.whole = <-done:
			e.swept, e.took = time.Now(), time.Since(began)
			return
		}
	}
}

// ordered are the targets, those that a helper of the runtime is at work on first.
func (e *Explorer) ordered(s Symptom) []Target {
	all := s.Targets()
	busy := map[string]bool{}
	for _, args := range e.helperArgs() {
		for _, arg := range args {
			busy[arg] = true
		}
	}
	slices.SortStableFunc(all, func(a, b Target) int { return boolInt(busy[b.ID]) - boolInt(busy[a.ID]) })
	return all
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// chain makes the chain of what is known.
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
		c.Links = append(c.Links, linkOf(target))
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
	case asked == 0:
		return Target{}, "no " + what + " has been asked for yet"
	case e.whole:
		return Target{}, fmt.Sprintf("each of %d single %ss is answered: it is a lock of the list itself", asked, what)
	default:
		return Target{}, fmt.Sprintf("the calls for %d single %ss are answered, the others could not be asked", asked, what)
	}
}

// linkOf is the link of a container or a pod.
func linkOf(t Target) health.Link {
	kind, name := health.KindContainer, t.Namespace+"/"+t.Pod+"/"+t.Container
	if t.Sandbox {
		kind, name = health.KindPod, t.Namespace+"/"+t.Pod
	}
	if t.Pod == "" {
		name = t.ID
	}
	return health.Link{Kind: kind, Name: clean(name), State: health.LinkUnanswered, Evidence: "the call for its status alone is unanswered too"}
}

// fromTarget continues with the shim or conmon of a container or sandbox.
func (e *Explorer) fromTarget(ctx context.Context, c *health.Chain, s Symptom, t Target) {
	sandbox := t.SandboxID
	if t.Sandbox {
		sandbox = t.ID
	}
	if helper := e.helperOf(t.ID); helper != 0 {
		e.walker.follow(ctx, c, helper, health.KindHelper)
		return
	}
	pid, why := e.shimOf(sandbox, t.ID)
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
// for nothing else: who holds the lock of a container without a shim, or with an idle
// one, is at work in the runtime itself.
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

// shimOf finds the shim of a sandbox, or the conmon of a container, by their
// arguments.
func (e *Explorer) shimOf(sandbox, container string) (pid int, why string) {
	var found []int
	shims := 0
	for p, st := range e.walker.processes() {
		if kindOf(st.Comm) != health.KindShim || st.Dead() || shims >= maxShims {
			continue
		}
		shims++
		args := e.args(p)
		id := proc.ArgValue(args, "id")
		if strings.HasPrefix(st.Comm, "conmon") {
			if id = proc.ArgValue(args, "c"); id == container && id != "" {
				found = append(found, p)
			}
			continue
		}
		// A shim that is being started has the same arguments for a moment, and the
		// command that starts it too.
		if id == sandbox && sandbox != "" && args[len(args)-1] != "start" && args[len(args)-1] != "delete" {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 0:
		return 0, fmt.Sprintf("its shim or conmon is not among the %d that plegd sees", shims)
	case 1:
		return found[0], ""
	default:
		return 0, fmt.Sprintf("%d shims or conmons name it", len(found))
	}
}

// helperOf finds the OCI runtime that is at work on a container for longer than it
// should and is no shim's: CRI-O starts most of them itself. 0 where there is none,
// or several.
func (e *Explorer) helperOf(id string) (pid int) {
	all := e.walker.processes()
	for p, st := range all {
		if st.Dead() || !isOCIRuntime(st.Comm) || proc.Uptime()-proc.TicksToDuration(st.Start) < helperAge {
			continue
		}
		parent, ok := all[st.PPID]
		if !ok || isOCIRuntime(parent.Comm) || kindOf(parent.Comm) == health.KindShim || !slices.Contains(e.args(p), id) {
			continue
		}
		if pid != 0 {
			return 0
		}
		pid = p
	}
	return pid
}

// helperArgs are the arguments of the helpers of runtimes on the node.
func (e *Explorer) helperArgs() (out [][]string) {
	all := e.walker.processes()
	for p, st := range all {
		if st.Dead() || len(out) >= maxShims {
			continue
		}
		args := []string(nil)
		if isOCIRuntime(st.Comm) {
			args = e.args(p)
		} else if parent, ok := all[st.PPID]; ok && kindOf(parent.Comm) == health.KindShim {
			args = e.args(p)
		}
		if len(args) > 0 {
			out = append(out, args)
		}
	}
	return out
}

func (e *Explorer) args(pid int) []string {
	b, err := e.walker.left.Read(filepath.Join(e.procfs, fmt.Sprint(pid), "cmdline"), 0, 16<<10, readLimit)
	if err != nil {
		return nil
	}
	return proc.SplitArgs(b)
}
