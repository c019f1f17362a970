package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	// The values of waitid(2).
	waitForPID   = 1
	waitForPIDFD = 3
	// oldChild is how much older than the fault a child may be that a process with
	// several threads waits for: the kubelet's deadline for a pod, and some.
	oldChild = 5 * time.Minute
)

// holder returns the process that holds a descriptor for which keep is true: where it
// leads and, on request, its fdinfo decide. Of several, pid and pid 1 do not count, since
// systemd keeps the sockets that it made; else the only one that does not run counts. It
// is pid itself where no other holds one. The text is the reason why there is none.
func (w *Walker) holder(
	ctx context.Context, pid int, what string, keep func(to string, info func() node.FDInfo) bool,
) (next int, unknown string) {
	pids, err := node.Holders(ctx, w.procfs, func(p, fd int, to string) bool {
		return keep(to, func() node.FDInfo { return w.fdInfo(p, fd) })
	})
	rest := slices.DeleteFunc(slices.Clone(pids), func(p int) bool { return p == pid || p == 1 && len(pids) > 1 })
	held := slices.DeleteFunc(slices.Clone(rest), func(p int) bool {
		s, err := node.ReadStat(w.procfs, p)
		return err != nil || strings.IndexByte("TtD", s.State) < 0
	})
	if len(rest) > 1 && len(held) == 1 {
		rest = held
	}
	switch {
	case len(rest) == 1:
		return rest[0], ""
	case len(rest) > 1:
		return 0, fmt.Sprintf("%d processes hold the other end of %s", len(rest), what)
	case err != nil:
		return 0, "the holder of the other end of " + what + " cannot be read (CAP_SYS_PTRACE)"
	case len(pids) > 0:
		return pid, ""
	}
	return 0, "no process that plegd can see holds the other end of " + what
}

// fileLocks adds the holders of the locks for which the process waits by /proc/locks. The
// wait for a lock of an open file stands there without a process: threads show the file.
func (w *Walker) fileLocks(ctx context.Context, f *waiting) {
	b, _ := node.ReadFile(w.procfs, "locks") // what cannot be read shows none
	path := func(file string) string { return f.lockPaths[file[strings.LastIndexByte(file, ':')+1:]] }
	var waits []node.Lock
	for _, l := range node.ParseLocks(b) {
		if l.WaitsFor(f.pid) || l.Waiting && l.PID < 0 && path(l.File) != "" {
			waits = append(waits, l)
		}
	}
	if l := w.symptom.Lock; l != nil && w.symptom.LockedPID == f.pid && len(f.found)+len(waits) == 0 {
		waits = append(waits, node.Lock{File: l.File, Holder: l.HolderPID})
	}
	for _, l := range waits {
		name := l.File
		if p := path(l.File); p != "" {
			name = p
		} else if !strings.HasPrefix(name, "/") {
			name = "file " + name
		}
		out := wait{
			key: "lock " + l.File, state: health.LinkLocked, evidence: "waits for the lock of " + name, next: l.Holder,
		}
		if l.Holder == 0 {
			// The descriptor shows a lock of an open file, which has no process.
			out.next, out.unknown = w.holder(ctx, f.pid, "the lock", func(to string, info func() node.FDInfo) bool {
				return strings.HasPrefix(to, "/") && slices.ContainsFunc(info().Locks, func(held node.Lock) bool {
					return held.File == l.File && !held.Waiting
				})
			})
		}
		if out.next != 0 {
			out.evidence += fmt.Sprintf(", which pid %d has", out.next)
		}
		f.add(out)
	}
}

// vforkWait follows a thread that waits until its child has begun another program: to the
// youngest child, which still is the same program.
func (w *Walker) vforkWait(ctx context.Context, f *waiting, p place) {
	var child node.Process
	for _, c := range w.processes(ctx).Children(f.pid) {
		if c.Comm == f.now.stat.Comm && c.Start >= child.Start {
			child = c
		}
	}
	if child.PID == 0 {
		f.add(kernelWait(p))
		return
	}
	f.add(wait{
		state: health.LinkChild, next: child.PID,
		evidence: fmt.Sprintf("thread %d waits for its child, pid %d, to begin another program", p.tid, child.PID),
	})
}

// childWait follows a thread that sleeps in wait4(2) or waitid(2).
func (w *Walker) childWait(ctx context.Context, f *waiting, p place) {
	var pid int
	switch call := p.call; {
	case call.Number == unix.SYS_WAIT4:
		pid = int(int32(call.Args[0])) //nolint:gosec // -1 is any child
	case call.Args[0] == waitForPID:
		pid = int(int32(call.Args[1])) //nolint:gosec // a pid
	case call.Args[0] == waitForPIDFD:
		if pid = w.fdInfo(f.pid, int(call.Args[1])).PID; pid == 0 {
			w.denied = true
			return
		}
	}
	children := slices.Clone(w.processes(ctx).Children(f.pid))
	if pid > 0 {
		children = slices.DeleteFunc(children, func(c node.Process) bool { return c.PID != pid })
	}
	if len(children) != 1 {
		f.doubt("thread %d waits for any of %d children", p.tid, len(children))
		return
	}
	s, begun := children[0], w.symptom.Since
	switch {
	case s.Comm == "containerd": // dockerd's runs for as long as its parent
	case !f.single() && !begun.IsZero() && time.Since(begun)+oldChild < age(s):
		f.doubt("thread %d waits for its child, pid %d, which has run since long before", p.tid, s.PID)
	default:
		f.add(wait{
			state: health.LinkChild, next: s.PID,
			evidence: fmt.Sprintf("thread %d waits for its child, pid %d (%s), to end", p.tid, s.PID, s.Comm),
		})
	}
}

// helpers adds the helpers of a shim: children that are to end soon. Of several, the one
// that works on the container in question.
func (w *Walker) helpers(ctx context.Context, f *waiting) {
	all := w.helpersOf(ctx, f.pid, w.about)
	if len(all) == 0 {
		all = w.helpersOf(ctx, f.pid, "")
	}
	for _, c := range all {
		f.add(wait{
			state: health.LinkChild, next: c.PID,
			evidence: fmt.Sprintf("waits for its helper, pid %d (%s), which has run for %s",
				c.PID, c.Comm, age(c).Round(100*time.Millisecond)),
		})
	}
}
