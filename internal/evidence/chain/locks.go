package chain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// The values of linux/fcntl.h, and of wait4(2) and waitid(2).
	ofdSetLockWait = 38
	waitForPID     = 1
	waitForPIDFD   = 3
	// oldChild is how much older than the fault a child may be that a process with
	// several threads waits for: the kubelet's deadline for a pod, and some.
	oldChild = 5 * time.Minute
)

// fileLocks adds the holders of the locks for which the process waits by /proc/locks.
func (w *Walker) fileLocks(ctx context.Context, f *waiting) {
	b, err := proc.ReadFile(w.procfs, "locks")
	if err != nil {
		return
	}
	for _, l := range proc.LockWaits(b, f.pid) {
		name := "file " + clean(l.File)
		if len(f.lockPaths) == 1 {
			name = f.lockPaths[0]
		}
		out := wait{key: "lock " + l.File, state: health.LinkLocked, evidence: "waits for the lock of " + name, next: l.PID}
		if l.PID == 0 {
			out.next, out.unknown = w.lockHolder(ctx, f.pid, l.File)
		}
		f.add(out.heldBy())
	}
}

// heldBy names the holder of a lock.
func (out wait) heldBy() wait {
	if out.next != 0 {
		out.evidence += fmt.Sprintf(", which pid %d has", out.next)
	}
	return out
}

// lockHolder finds the holder of a lock of an open file, which /proc/locks shows without
// a process: the fdinfo of the descriptor that holds it has it.
func (w *Walker) lockHolder(ctx context.Context, pid int, file string) (next int, unknown string) {
	next, unknown, _ = w.holder(ctx, pid, "the lock", func(to string, info func() []byte) bool {
		return strings.HasPrefix(to, "/") && slices.ContainsFunc(proc.ParseFDInfo(info()).Locks, func(l proc.Lock) bool {
			return l.File == file && !l.Waiting
		})
	})
	return next, unknown
}

// lockWait follows a thread that sleeps in fcntl(2) or flock(2): one that
// /proc/locks does not show by its process is a lock of an open file.
func (w *Walker) lockWait(ctx context.Context, f *waiting, p place) {
	path := w.fd(f.pid, p.call.Args[0])
	switch {
	case path == "":
		f.denied = true
		return
	case !slices.Contains(f.lockPaths, clean(path)):
		f.lockPaths = append(f.lockPaths, clean(path))
	}
	if p.call.Number != unix.SYS_FCNTL || p.call.Args[1] != ofdSetLockWait {
		return
	}
	out := wait{key: "lock " + path, state: health.LinkLocked}
	out.evidence = fmt.Sprintf("thread %d waits for the lock of %s", p.tid, clean(path))
	inode := proc.FDInode(w.rawFDInfo(f.pid, strconv.FormatUint(p.call.Args[0], 10)))
	b, err := proc.ReadFile(w.procfs, "locks")
	var files []string
	for line := range strings.Lines(string(b)) {
		l, ok := proc.ParseLock([]byte(line))
		if ok && l.Waiting && strings.HasSuffix(l.File, ":"+inode) && !slices.Contains(files, l.File) {
			files = append(files, l.File)
		}
	}
	if err != nil || inode == "" || len(files) != 1 {
		out.unknown = "which lock it is cannot be seen"
	} else {
		out.next, out.unknown = w.lockHolder(ctx, f.pid, files[0])
	}
	f.add(out.heldBy())
}

// isVforkChannel reports whether a thread in that kernel function waits until its child has
// begun another program.
func isVforkChannel(channel string) bool {
	return proc.In(channel, "wait_for_vfork_done", "kernel_clone")
}

// vforkWait follows a thread to its youngest child, which still is the same program.
func (w *Walker) vforkWait(ctx context.Context, f *waiting, p place) {
	var child proc.Stat
	for _, c := range w.processes(ctx).Children(f.pid) {
		if c.Comm == f.now.stat.Comm && c.Start >= child.Start {
			child = c.Stat
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
		if pid = w.fdInfo(f.pid, call.Args[1]).PID; pid == 0 {
			f.denied = true
			return
		}
	}
	if pid <= 0 {
		children := w.processes(ctx).Children(f.pid)
		if len(children) != 1 {
			f.doubt("thread %d waits for any of %d children", p.tid, len(children))
			return
		}
		pid = children[0].PID
	}
	s, err := proc.ReadStat(w.procfs, pid)
	if err != nil || s.PPID != f.pid || s.Comm == "containerd" {
		return // dockerd's containerd runs for as long as its parent
	}
	if !f.single() && !w.Begun.IsZero() && time.Since(w.Begun)+oldChild < age(s) {
		f.doubt("thread %d waits for its child, pid %d, which has run since long before", p.tid, pid)
		return
	}
	f.add(wait{
		state: health.LinkChild, next: pid,
		evidence: fmt.Sprintf("thread %d waits for its child, pid %d (%s), to end", p.tid, pid, clean(s.Comm)),
	})
}
