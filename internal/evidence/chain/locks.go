package chain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
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

// fileLocks adds the holders of the locks for which the process waits by /proc/locks. The
// wait for a lock of an open file stands there without a process: threads show the file.
func (w *Walker) fileLocks(ctx context.Context, f *waiting) {
	b, err := proc.ReadFile(w.procfs, "locks")
	if err != nil {
		return
	}
	inode := func(file string) string { return file[strings.LastIndexByte(file, ':')+1:] }
	waits := proc.LockWaits(b, f.pid)
	for line := range strings.Lines(string(b)) {
		l, ok := proc.ParseLock([]byte(line))
		if ok && l.Waiting && l.PID < 0 && f.lockPaths[inode(l.File)] != "" {
			waits = append(waits, proc.Lock{File: l.File})
		}
	}
	for _, l := range waits {
		name := "file " + clean(l.File)
		if path := f.lockPaths[inode(l.File)]; path != "" {
			name = path
		}
		out := wait{key: "lock " + l.File, state: health.LinkLocked, evidence: "waits for the lock of " + name, next: l.PID}
		if l.PID == 0 {
			out.next, out.unknown, _ = w.holder(ctx, f.pid, "the lock", holdsLock(l.File))
		}
		if out.next != 0 {
			out.evidence += fmt.Sprintf(", which pid %d has", out.next)
		}
		f.add(out)
	}
	if l := w.lock; l != nil && w.locked == f.pid && len(f.found) == 0 {
		f.add(wait{
			state: health.LinkLocked, next: l.HolderPID,
			evidence: fmt.Sprintf("waits for the lock of %s, which pid %d has", clean(l.File), l.HolderPID),
		})
	}
}

// holdsLock finds the descriptor that has a lock, which /proc/locks shows without a
// process where it is one of an open file.
func holdsLock(file string) func(to string, info func() []byte) bool {
	return func(to string, info func() []byte) bool {
		return strings.HasPrefix(to, "/") && slices.ContainsFunc(proc.ParseFDInfo(info()).Locks, func(l proc.Lock) bool {
			return l.File == file && !l.Waiting
		})
	}
}

// lockWait notes the file in whose fcntl(2) or flock(2) a thread sleeps, by inode.
func (w *Walker) lockWait(f *waiting, p place) {
	path := w.fd(f.pid, p.call.Args[0])
	if path == "" {
		f.denied = true
		return
	}
	f.lockPaths[proc.FDInode(w.rawFDInfo(f.pid, strconv.FormatUint(p.call.Args[0], 10)))] = clean(path)
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
	children := slices.Clone(w.processes(ctx).Children(f.pid))
	if pid > 0 {
		children = slices.DeleteFunc(children, func(c node.Process) bool { return c.PID != pid && w.innerPID(c.PID) != pid })
	}
	if len(children) != 1 {
		f.doubt("thread %d waits for any of %d children", p.tid, len(children))
		return
	}
	s := children[0].Stat
	if s.Comm == "containerd" {
		return // dockerd's containerd runs for as long as its parent
	}
	if !f.single() && !w.Begun.IsZero() && time.Since(w.Begun)+oldChild < age(s) {
		f.doubt("thread %d waits for its child, pid %d, which has run since long before", p.tid, s.PID)
		return
	}
	f.add(wait{
		state: health.LinkChild, next: s.PID,
		evidence: fmt.Sprintf("thread %d waits for its child, pid %d (%s), to end", p.tid, s.PID, clean(s.Comm)),
	})
}

// innerPID returns the pid of a process in its own pid namespace: wait4(2) has that of a
// runtime in a container.
func (w *Walker) innerPID(pid int) int {
	b, err := proc.ReadFile(proc.Path(w.procfs, pid, "status"))
	all := strings.Fields(proc.Value(b, "NSpid"))
	if err != nil || len(all) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(all[len(all)-1])
	return n
}
