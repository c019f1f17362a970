package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// resting notes the children of the runtime that may run for long by design, as decompressors and NRI plugins, by the time on
// the CPU of theirs and of their descendants: one that runs meanwhile is noted anew. One that sleeps is owed something where
// the runtime alone waits for it.
func (p *pass) resting(ctx context.Context, all *proc.Processes) {
	for _, pid := range p.pids {
		for _, child := range all.Children(pid) {
			p.rests(ctx, all, child, all.ByPID[pid])
		}
	}
}

// rests notes a child that may run for long, where it stands still or its parent waits for it.
func (p *pass) rests(ctx context.Context, all *proc.Processes, child, parent proc.Process) {
	if !p.members.Helper(ctx, child, child, parent).Lasts {
		return
	}
	run, counted := p.timeOf(all, child.PID)
	found := obligation{
		identity: identity{kind: resting, id: run, pid: child.PID}, waiter: parent.PID, debtor: child.PID,
	}
	if p.standsStill(child, parent, counted) {
		found.evidence = fmt.Sprintf("has started pid %d (%s), which has not run since", child.PID, child.Comm)
		p.keep(found).stands = true
		return
	}
	worker := p.members.Worker(ctx, child, parent)
	p.unread.Add(descriptorsOfRuntime, worker.Err)
	if worker.Proven() && counted {
		found.evidence = fmt.Sprintf("reads a pipe from pid %d (%s), which has not run since", child.PID, child.Comm)
		p.keep(found).stands = false
	}
}

// standsStill reports whether a child does not get on by itself: it is stopped, frozen without its parent, or waits in the
// kernel. counted is false where the kernel does not count its time on the CPU: then it may have run between two passes.
func (p *pass) standsStill(child, parent proc.Process, counted bool) bool {
	current, err := p.Table.Alive(child.PID)
	if err != nil || current.ID() != child.ID() {
		return false
	}
	if proc.ThreadState(current.State) == "T" {
		return true
	}
	if p.isFrozen(child.PID) {
		return !p.isFrozen(parent.PID) // else the parent stands still as well
	}
	return current.State == 'D' && counted
}

func (p *pass) isFrozen(pid int) bool {
	frozen, err := p.tree.IsFrozen(pid)
	p.unread.Add(cgroupsOfChildren, err)
	return frozen
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
