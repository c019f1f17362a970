package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// resting notes the children of the runtime that may run for long by design, as decompressors, by the time on the CPU of
// theirs and of their descendants: one that runs meanwhile is noted anew.
func (p *pass) resting(ctx context.Context, all *proc.Processes) {
	for _, pid := range p.pids {
		if pid == 0 { // not known
			continue
		}
		for _, child := range all.Children(pid) {
			worker := p.members.Worker(ctx, child, all.ByPID[pid])
			p.unread.Add(descriptorsOfRuntime, worker.Err)
			run, counted := p.timeOf(all, child.PID)
			if !worker.Proven() || !counted {
				continue
			}
			p.keep(obligation{
				identity: identity{kind: resting, id: run, pid: child.PID}, limit: idleLimit, waiter: pid, debtor: child.PID,
				evidence: fmt.Sprintf("reads a pipe from pid %d (%s), which has not run since", child.PID, child.Comm),
			})
		}
	}
}

// timeOf returns the time on the CPU of a process and its descendants; false where the kernel does not count it.
func (p *pass) timeOf(all *proc.Processes, pid int) (run uint64, counted bool) {
	own := proc.ReadSchedstat(proc.Path(p.Table.ProcFS, pid, ""))
	run = own.Run
	for _, child := range all.Children(pid) {
		of, _ := p.timeOf(all, child.PID)
		run += of
	}
	return run, own.Slices > 0
}

// isStoppedBehind reports whether a child's chain leads to a process behind it that stands still, and not to the runtime, as that
// of a decompressor does during a slow download.
func (p *pass) isStoppedBehind(c *facts.Chain) bool {
	behind := c.Links[min(2, len(c.Links)):]
	isOwn := func(l facts.Link) bool { return slices.Contains(p.pids, l.PID) }
	return !slices.ContainsFunc(behind, isOwn) &&
		slices.ContainsFunc(behind, func(l facts.Link) bool { return l.PID != 0 && l.State.StandsStill() })
}
