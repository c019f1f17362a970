package chain

import (
	"context"
	"fmt"

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
func (f *waiting) openWait(t thread) {
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
	f.add(wait{
		key: "fifo " + direction, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d opens a FIFO to %s, which no process has opened to %s it", t.PID, direction, partner),
	})
}
