package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// agentWait adds the fanotify agent without whose answer a thread may not continue.
func (f *waiting) agentWait(ctx context.Context, t thread) {
	const what, link = "fanotify permission events", "anon_inode:[fanotify]"
	out := wait{
		key: link, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in %s for the agent that decides about %s", t.PID, t.channel, what),
	}
	path, _, _ := f.mountOf(ctx, t)
	if path != "" {
		out.evidence += ", to access " + path
	}
	f.add(f.heldBy(ctx, out, what, leadsTo(link), func(info proc.FDInfo) bool { return info.Permits }))
}

// seccompWait adds the supervisor without whose answer a system call does not begin. The
// kernel does not show whose filter it is: it is known where only one process supervises.
func (f *waiting) seccompWait(ctx context.Context, t thread) {
	const link = "anon_inode:seccomp notify"
	out := wait{
		key: link, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in %s for the supervisor of its seccomp filter", t.PID, t.channel),
	}
	f.add(f.heldBy(ctx, out, "a seccomp notify descriptor", leadsTo(link, "anon_inode:[seccomp notify]"), nil))
}

// faultWait adds the process that does not supply a page of memory (userfaultfd).
func (f *waiting) faultWait(ctx context.Context, t thread) {
	const link = "anon_inode:[userfaultfd]"
	out := wait{
		key: link, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in %s for a page of its memory", t.PID, t.channel),
	}
	f.add(f.heldBy(ctx, out, "a userfaultfd", leadsTo(link), func(info proc.FDInfo) bool { return info.Faults > 0 }))
}

// openWait adds the wait of a thread in openat(2) for the other end of a FIFO. The path is in
// the process's memory, which plegd does not read.
func (f *waiting) openWait(ctx context.Context, t thread) {
	if t.kind() != wchan.FIFO {
		f.otherCall(t)
		return
	}
	opensOutputs := f.pid == f.runtime() && family.OpensOutputs(f.last.threads[f.pid].Comm)
	if opensOutputs && t.call.OpensToRead() {
		f.calls["open of a FIFO"]++ // the output of a container that is created and not started
		return
	}
	direction := "read"
	partner := "write to"
	if t.call.Args[2]&unix.O_ACCMODE == unix.O_WRONLY {
		direction = "write"
		partner = "read from"
	}
	out := wait{
		key: "fifo " + direction, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d opens a FIFO to %s, which no process has opened to %s it", t.PID, direction, partner),
	}
	out.next = f.awaitedInit(ctx)
	f.add(out)
}

// awaitedInit returns the first process of the container that a `runc start` is to start, 0 for another program: by
// its exec.fifo, which that process opens when it gets to.
func (f *waiting) awaitedInit(ctx context.Context) int {
	p := f.last.threads[f.pid]
	args := f.table.Args(p.ID())
	if !slices.Contains(args, "start") {
		return 0
	}
	fifo := "/" + args[len(args)-1] + "/exec.fifo"
	pids, _ := proc.Holders(ctx, f.procfs, func(_, _ int, leads string) bool { return strings.HasSuffix(leads, fifo) })
	pids = without(pids, func(pid int) bool { return pid == f.pid })
	if len(pids) != 1 {
		return 0
	}
	return pids[0]
}
