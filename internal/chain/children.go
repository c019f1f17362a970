package chain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// oldChild is how much older than the fault a child may be that a process with
// several threads waits for: the kubelet's deadline for a pod, and some.
const oldChild = 5 * time.Minute

// child adds the wait for a child.
func (f *waiting) child(pid int, format string, args ...any) {
	f.add(wait{state: facts.LinkChild, next: pid, evidence: fmt.Sprintf(format, args...)})
}

// vforkWait follows a thread that waits until its child has begun another program: to the
// youngest child, which still is the same program.
func (f *waiting) vforkWait(ctx context.Context, t thread) {
	var child proc.Process
	for _, c := range f.processes(ctx).Children(f.pid) {
		if c.Comm == f.last.threads[f.pid].Comm && c.Start >= child.Start {
			child = c
		}
	}
	if child.PID == 0 {
		f.add(kernelWait(t))
		return
	}
	f.child(child.PID, "thread %d waits for its child, pid %d, to begin another program", t.PID, child.PID)
}

// childWait follows a thread that sleeps in wait4(2) or waitid(2).
func (f *waiting) childWait(ctx context.Context, t thread) {
	pid := f.awaitedChild(t.call)
	children := slices.DeleteFunc(f.processes(ctx).Children(f.pid), func(c proc.Process) bool {
		return pid > 0 && c.PID != pid && proc.PIDIn(f.procfs, c.PID, f.pid) != pid
	})
	c, ok := f.lastOf(ctx, children)
	if !ok {
		f.doubt("thread %d waits for any of %d children", t.PID, len(children))
		return
	}
	begun := f.symptom.Since
	isOld := !begun.IsZero() && time.Since(begun)+oldChild < age(c)
	switch {
	case c.Comm == "containerd" && c.PPID == f.symptom.DaemonPID: // it runs for as long as dockerd
	case f.isYounger(c):
		out, ok := f.polledLock(ctx, "")
		if !ok {
			out = wait{
				key: "children", state: facts.LinkChild,
				evidence: fmt.Sprintf("thread %d waits for one child after the other, now for pid %d (%s)", t.PID, c.PID, c.Comm),
			}
		}
		f.add(out)
	case len(f.last.threads) > 1 && isOld:
		f.doubt("thread %d waits for its child, pid %d, which has run since long before", t.PID, c.PID)
	default:
		f.child(c.PID, "thread %d waits for its child, pid %d (%s), to end", t.PID, c.PID, c.Comm)
	}
}

// signalWait follows a thread that sleeps until a signal comes: in a helper of one thread that has children this is the end of
// one, as in timeout(1).
func (f *waiting) signalWait(ctx context.Context, t thread) {
	children := f.processes(ctx).Children(f.pid)
	isHelper := f.kindOf(ctx, f.last.threads[f.pid].Process) == facts.KindHelper
	if len(f.last.threads) > 1 || len(children) == 0 || !isHelper {
		f.otherCall(t)
		return
	}
	c, ok := f.lastOf(ctx, children)
	if !ok {
		f.doubt("thread %d waits for a signal, as of any of %d children", t.PID, len(children))
		return
	}
	f.child(c.PID, "thread %d waits for a signal, as at the end of its child, pid %d (%s)", t.PID, c.PID, c.Comm)
}

// maxPipeline is the number of children from which is not looked for the one that holds the others up.
const maxPipeline = 4

// lastOf returns the first one of some children that a CPU quota holds up, else the only one that does not wait for
// another of them or what that has started, as in a pipeline of a shell; false where several are such.
func (f *waiting) lastOf(ctx context.Context, children []proc.Process) (last proc.Process, ok bool) {
	if len(children) == 1 {
		return children[0], true
	}
	all := f.processes(ctx)
	pids := make([]int, len(children))
	for i, child := range children {
		pids[i] = child.PID
	}
	starved := f.starved(pids)
	if starved != 0 {
		return all.ByPID[starved], true
	}
	if len(children) > maxPipeline {
		return last, false
	}
	for _, child := range children {
		next := f.waitOf(ctx, child).next
		line := all.Ancestors(next)
		waits := func(sibling proc.Process) bool { return sibling.PID != child.PID && slices.Contains(line, sibling.PID) }
		if slices.ContainsFunc(children, waits) {
			continue
		}
		if ok {
			return last, false
		}
		last = child
		ok = true
	}
	return last, ok
}

// awaitedChild returns the child that a wait4(2) or waitid(2) names, not above 0 for any.
func (f *waiting) awaitedChild(call proc.Syscall) int {
	switch {
	case call.Number == unix.SYS_WAIT4:
		return int(int32(call.Args[0])) //nolint:gosec // -1 is any child
	case call.Args[0] == unix.P_PID:
		return int(int32(call.Args[1])) //nolint:gosec // a pid
	case call.Args[0] == unix.P_PIDFD:
		return proc.ReadFDInfo(f.procfs, f.pid, int(call.Args[1])).PID //nolint:gosec // a descriptor
	}
	return 0
}

// isYounger reports whether a process was started after the fault began: it cannot be the cause.
func (f *waiting) isYounger(p proc.Process) bool {
	begun := f.symptom.Since
	return !begun.IsZero() && age(p) < time.Since(begun)
}

// helpers adds the helpers of a shim: children that are to end soon. Of several, the one
// that works on the container in question.
func (f *waiting) helpers(ctx context.Context) {
	target, _ := f.sweep.target()
	all, _ := f.helpersOf(ctx, f.pid, target.ID) // where it is not known of one, all count
	if len(all) == 0 {
		all, _ = f.helpersOf(ctx, f.pid, "")
	}
	for _, c := range all {
		f.child(c.PID, "waits for its helper, pid %d (%s), which has run for %s", c.PID, c.Comm,
			age(c).Round(100*time.Millisecond))
	}
}
