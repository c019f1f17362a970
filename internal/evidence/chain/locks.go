package chain

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// What linux/fcntl.h defines, and what wait4(2) and waitid(2) take.
	ofdSetLockWait = 38
	waitForPID     = 1
	waitForPIDFD   = 3
	// oldChild is how much older than the fault a child may be that a process with
	// several threads waits for: the kubelet's deadline for a pod, and some.
	oldChild = 5 * time.Minute
)

// fileLocks adds the holders of the locks that /proc/locks says the process waits
// for.
func (w *Walker) fileLocks(ctx context.Context, f *waiting) {
	b, err := w.reader.Read(w.procfs + "/locks")
	if err != nil {
		return
	}
	for _, l := range proc.LockWaits(b, f.pid) {
		out := wait{state: health.LinkLocked, evidence: "waits for the lock of " + f.lockName(l.File)}
		if out.next = l.PID; l.PID > 0 {
			out.evidence += fmt.Sprintf(", which pid %d has", l.PID)
		} else {
			w.lockHolder(ctx, &out, f.pid, l.File)
		}
		f.add(candidate{keyOf(out.next, "lock "+l.File), out})
	}
}

// lockName is the path of the file whose lock is waited for, where there is only
// one; else file, which is major:minor:inode.
func (f *waiting) lockName(file string) string {
	if len(f.lockPaths) == 1 {
		for path := range f.lockPaths {
			if path != "" {
				return clean(path)
			}
		}
	}
	return "file " + clean(file)
}

// lockHolder finds the holder of a lock of an open file, which /proc/locks shows without
// a process: the fdinfo of the descriptor that holds it has it.
func (w *Walker) lockHolder(ctx context.Context, out *wait, pid int, file string) {
	var pids []int
	complete := w.eachFD(ctx, func(p int, fd, to string) {
		if !strings.HasPrefix(to, "/") {
			return
		}
		n, err := strconv.ParseUint(fd, 10, 64)
		if err != nil {
			return
		}
		for _, l := range w.fdInfo(p, n).Locks {
			if l.File == file && !l.Waiting {
				pids = append(pids, p)
			}
		}
	})
	out.next, out.unknown = w.other(pid, distinct(pids), complete, "the lock")
	if out.next != 0 {
		out.unknown = ""
		out.evidence += fmt.Sprintf(", which pid %d has", out.next)
	}
}

// lockWait follows a thread that sleeps in fcntl(2) or flock(2): one that
// /proc/locks does not show by its process is a lock of an open file.
func (w *Walker) lockWait(ctx context.Context, f *waiting, p place) {
	call := p.call
	if call.Number != unix.SYS_FCNTL || call.Args[1] != ofdSetLockWait {
		return
	}
	path := w.fd(f.pid, call.Args[0])
	if path == "" {
		f.denied = true
		return
	}
	out := wait{state: health.LinkLocked, evidence: fmt.Sprintf("thread %d waits for the lock of %s", p.tid, clean(path))}
	b, err := w.reader.Read(w.procfs + "/locks")
	if err != nil {
		return
	}
	inode := proc.FDInode(w.rawFDInfo(f.pid, call.Args[0]))
	files := map[string]bool{}
	for line := range strings.Lines(string(b)) {
		if l, ok := proc.ParseLock([]byte(line)); ok && l.Waiting && inode != "" && strings.HasSuffix(l.File, ":"+inode) {
			files[l.File] = true
		}
	}
	if len(files) != 1 {
		out.unknown = "which lock it is cannot be seen"
		f.add(candidate{"lock " + path, out})
		return
	}
	for file := range files {
		w.lockHolder(ctx, &out, f.pid, file)
	}
	f.add(candidate{keyOf(out.next, "lock "+path), out})
}

// childWait follows a thread that sleeps in wait4(2) or waitid(2).
func (w *Walker) childWait(ctx context.Context, f *waiting, p place) {
	var pid int
	switch call := p.call; {
	case call.Number == unix.SYS_WAIT4:
		pid = int(int32(call.Args[0]))
	case call.Args[0] == waitForPID:
		pid = int(int32(call.Args[1]))
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
	s, err := w.reader.Stat(w.procfs, pid)
	if err != nil || s.PPID != f.pid || s.Comm == "containerd" {
		return // dockerd's containerd runs for as long as its parent
	}
	started := proc.StartedAt(time.Now(), proc.Uptime(), s.Start)
	if !f.single && !w.Begun.IsZero() && started.Before(w.Begun.Add(-oldChild)) {
		f.doubt("thread %d waits for its child, pid %d, which has run since long before", p.tid, pid)
		return
	}
	f.add(candidate{fmt.Sprintf("pid %d", pid), wait{
		state: health.LinkChild, next: pid,
		evidence: fmt.Sprintf("thread %d waits for its child, pid %d (%s), to end", p.tid, pid, clean(s.Comm)),
	}})
}
