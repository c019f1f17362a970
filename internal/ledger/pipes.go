package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
)

// standardFDs are the descriptors that a process is started with: what is behind them is not the
// runtime's to end.
const standardFDs = 3

// pipes notes the pipes that the runtime, or a hop behind it, reads and that only strangers keep
// open, as a daemon does that a CNI plugin has left: the call ends when they are closed.
func (p *pass) pipes(ctx context.Context) {
	if p.moment.Before(p.pipesDue) && !p.owesPipe() {
		return
	}
	p.pipesDue = p.moment.Add(idleLimit)
	present := map[identity]bool{}
	for _, pid := range p.pids {
		_ = proc.EachFD(p.Table.ProcFS, pid, func(fd int, leads string) bool { // a process that is gone has none
			id, ok := pipeIdentity(leads)
			if ok && fd >= standardFDs {
				present[id] = true
				p.readPipe(ctx, pid, fd, id, leads)
			}
			return ctx.Err() == nil
		})
	}
	maps.DeleteFunc(p.settled, func(id identity, _ bool) bool { return !present[id] })
}

// readPipe notes a pipe that a process has open, if it reads from it.
func (p *pass) readPipe(ctx context.Context, pid, fd int, id identity, name string) {
	if p.settled[id] || !reads(proc.ReadFDInfo(p.Table.ProcFS, pid, fd)) {
		return
	}
	o := p.keep(obligation{identity: id, waiter: pid, name: name})
	if p.isDue(o) || !p.passed {
		p.resolvePipe(ctx, o)
	}
}

// owesPipe reports whether a pipe is read that may be a stranger's.
func (p *pass) owesPipe() bool {
	for id := range p.owed {
		if id.kind == openPipe {
			return true
		}
	}
	return false
}

// pipeIdentity decodes pipe:[123], what a pipe's descriptor is a link to.
func pipeIdentity(leads string) (identity, bool) {
	text, ok := strings.CutPrefix(leads, "pipe:[")
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return identity{kind: openPipe, id: inode}, ok && err == nil
}

// reads reports whether a descriptor is the end of a pipe that is read.
func reads(info proc.FDInfo) bool { return info.Flags&unix.O_ACCMODE == unix.O_RDONLY }

// resolvePipe finds who keeps a pipe open that has been read from for long. One of the runtime's
// own, or of its children, is none of a stranger's.
func (p *pass) resolvePipe(ctx context.Context, o *obligation) {
	all, err := p.Table.Processes(ctx, owedTableAge)
	if err != nil {
		return
	}
	writers, err := proc.Holders(ctx, p.Table.ProcFS, func(pid, fd int, leads string) bool {
		return leads == o.name && !reads(proc.ReadFDInfo(p.Table.ProcFS, pid, fd))
	})
	if err != nil && len(writers) == 0 {
		return // who has it cannot be seen
	}
	o.debtor = 0
	for _, pid := range writers {
		writer := all.ByPID[pid]
		switch {
		case slices.Contains(p.pids, pid) || pid == 1 || p.isShim(ctx, writer):
			p.settle(o)
			return
		case p.descends(all, pid):
			return // a helper, which has an age of its own
		case o.debtor == 0 || writer.Start < all.ByPID[o.debtor].Start:
			o.debtor = pid
		}
	}
	if o.debtor == 0 {
		return // it is about to be closed
	}
	o.begun = earlier(o.begun, proc.StartedAt(p.moment, proc.Uptime(), all.ByPID[o.debtor].Start))
	o.evidence = fmt.Sprintf("reads from %s, which pid %d (%s) keeps open: no process of its own",
		o.name, o.debtor, all.ByPID[o.debtor].Comm)
}

// settle forgets a pipe until it is closed.
func (p *pass) settle(o *obligation) {
	p.settled[o.identity] = true
	delete(p.owed, o.identity)
}

// descends reports whether a process descends from the runtime or a hop behind it.
func (p *pass) descends(all *proc.Processes, pid int) bool {
	return slices.ContainsFunc(all.Ancestors(pid), func(ancestor int) bool { return slices.Contains(p.pids, ancestor) })
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
