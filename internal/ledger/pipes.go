package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

// standardFDs are the descriptors that a process is started with: the runtime does not own the
// other end of their pipes.
const standardFDs = 3

// pipes notes the pipes that the runtime, or a hop behind it, reads and that only strangers keep
// open, as a daemon does that a CNI plugin has left: the call ends when they are closed.
func (p *pass) pipes(ctx context.Context) {
	if p.moment.Before(p.pipesDue) && !p.owes(openPipe) {
		return
	}
	p.pipesDue = p.moment.Add(idleLimit)
	present := map[identity]bool{}
	due := map[string]*obligation{}
	opened := p.readHops()
	for _, hop := range p.hops {
		for _, end := range opened[hop].pipes {
			if ctx.Err() != nil {
				break
			}
			present[end.identity] = true
			if o := p.readPipe(hop.PID, end); o != nil {
				due[end.name] = o
			}
		}
	}
	maps.DeleteFunc(p.settled, func(id identity, _ bool) bool { return !present[id] })
	if len(due) > 0 {
		p.resolvePipes(ctx, due)
	}
}

// readPipe notes a pipe that a process has open, if it reads from it, and returns it where it is
// time to look up who keeps it open.
func (p *pass) readPipe(pid int, end pipeEnd) *obligation {
	if p.settled[end.identity] || !proc.ReadFDInfo(p.Table.ProcFS, pid, end.fd).ReadOnly() {
		return nil
	}
	o := p.keep(obligation{identity: end.identity, waiter: pid, name: end.name})
	if p.isDue(o) || !p.passed {
		return o
	}
	return nil
}

// owes reports whether something of a kind is owed, or may be.
func (p *pass) owes(what kind) bool {
	for id := range p.owed {
		if id.kind == what {
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

// resolvePipes finds who keeps pipes open that have been read from for long, in one pass over
// all descriptors.
func (p *pass) resolvePipes(ctx context.Context, due map[string]*obligation) {
	all := p.readProcesses(ctx, owedTableAge)
	if all == nil {
		return
	}
	writers := map[string][]int{}
	_, err := proc.Holders(ctx, p.Table.ProcFS, func(pid, fd int, leads string) bool {
		if due[leads] != nil && !proc.ReadFDInfo(p.Table.ProcFS, pid, fd).ReadOnly() {
			writers[leads] = append(writers[leads], pid)
		}
		return false // it may have several of them
	})
	for name, o := range due {
		if len(writers[name]) == 0 && err != nil { // its holder cannot be seen
			p.unread.Add(holdersOfPipes, err)
			continue
		}
		p.resolvePipe(ctx, o, all, writers[name])
	}
}

// resolvePipe names the oldest stranger that keeps a pipe open. One of the runtime's own, or of its
// children, is none of a stranger's.
func (p *pass) resolvePipe(ctx context.Context, o *obligation, all *proc.Processes, writers []int) {
	o.debtor = 0
	debtor := 0
	for _, pid := range writers {
		writer := all.ByPID[pid]
		shim := p.members.Shim(ctx, writer, p.pids[0]) // also of another runtime
		p.unread.Add(family.UnreadShims, shim.Err)
		switch {
		case slices.Contains(p.pids, pid) || pid == 1 || shim.Proven():
			p.settle(o)
			return
		case shim.Err != nil:
			return // it may be one
		case p.descends(all, pid):
			return // a helper, which has an age of its own
		case debtor == 0 || writer.Start < all.ByPID[debtor].Start:
			debtor = pid
		}
	}
	if debtor == 0 {
		return // it is about to be closed
	}
	o.debtor = debtor
	o.begun = facts.Earliest(o.begun, proc.StartedAt(p.moment, proc.Uptime(), all.ByPID[o.debtor].Start))
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
