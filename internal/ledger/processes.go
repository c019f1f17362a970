package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// processes notes what the process table shows: shims of which nothing is listed, and killed
// processes that do not end.
func (p *pass) processes(ctx context.Context) {
	all := p.readProcesses(ctx, p.tableAge())
	if all == nil {
		return
	}
	p.shims = p.shimsIn(ctx, all)
	p.lost(all)
	p.killed(all)
	p.unreaped(all)
	p.unnoticed(all)
	p.unreapedTasks(all)
	p.resting(ctx, all)
}

// shimsIn returns the shims and conmons of the runtime by their pids.
func (p *pass) shimsIn(ctx context.Context, all *proc.Processes) map[int]proc.Process {
	found := p.Shims.In(ctx, all, p.pids[0], p.serving)
	maps.Copy(p.unread, found.Unread)
	shims := map[int]proc.Process{}
	for _, shim := range found.Shims {
		shims[shim.PID] = shim
	}
	return shims
}

// tableAge is how old the process table may be.
func (p *pass) tableAge() time.Duration {
	if p.owes(killed) || p.owes(lostPod) || p.owes(unnoticed) || p.owes(resting) || len(p.dropped) > 0 || p.started.areSlow(p.moment) || p.Suspects() {
		return owedTableAge
	}
	return tableAge
}

// killed notes the killed processes of shims that do not end: they wait in the kernel or for a tracer, or their
// PID namespace has a member that waits in the kernel.
func (p *pass) killed(all *proc.Processes) {
	for _, candidate := range all.ByPID {
		if !candidate.Exiting && !mayNotEnd(candidate) {
			continue
		}
		shim := p.ownerOf(all, candidate)
		if shim == 0 {
			continue
		}
		process, err := p.Table.Alive(candidate.PID) // as it is now
		if err != nil || process.ID() != candidate.ID() || !p.isDying(process) {
			continue
		}
		o := p.keep(obligation{identity: identity{kind: killed, id: process.Start, pid: process.PID}, waiter: shim})
		if candidate.Exiting {
			o.begun = facts.Earliest(o.begun, all.At)
		}
		o.debtor = p.heldMember(all, process)
		o.evidence = fmt.Sprintf("waits for the end of pid %d (%s), which has been killed", process.PID, process.Comm)
	}
}

// mayNotEnd reports whether a process, as it waits, does not get to a SIGKILL.
func mayNotEnd(process proc.Process) bool { return process.State == 'D' || process.State == 't' }

// unreaped notes the processes of shims that have ended and that a tracer has not reaped: the shim learns of the
// end afterwards.
func (p *pass) unreaped(all *proc.Processes) {
	for _, zombie := range all.Zombies {
		_, isOfShim := p.shims[zombie.PPID]
		if !isOfShim || p.tracerOf(zombie) == 0 {
			continue
		}
		o := p.keep(obligation{identity: identity{kind: killed, id: zombie.Start, pid: zombie.PID}, waiter: zombie.PPID})
		o.begun = facts.Earliest(o.begun, all.At)
		o.debtor = zombie.PID
		o.evidence = fmt.Sprintf("waits for the end of pid %d (%s)", zombie.PID, zombie.Comm)
	}
}

// ownerOf returns the shim that a process descends from, 0 for none.
func (p *pass) ownerOf(all *proc.Processes, process proc.Process) int {
	for _, pid := range all.Ancestors(process.PPID) {
		if _, ok := p.shims[pid]; ok {
			return pid
		}
	}
	return 0
}

// isDying reports whether a process is ending, or has a SIGKILL that it does not get to.
func (p *pass) isDying(process proc.Process) bool {
	if process.Exiting || !mayNotEnd(process) {
		return process.Exiting
	}
	pending, err := proc.KillPending(p.Table.ProcFS, process.PID)
	p.unread.Add(pendingSignals, err)
	return pending
}

// heldMember returns the process for which a killed one waits, in D, held by a tracer, or ended and not reaped by a parent outside:
// itself, else one of its descendants or of its PID namespace, as a process that was started there by exec; itself where none is.
func (p *pass) heldMember(all *proc.Processes, process proc.Process) int {
	if process.State == 'D' {
		return process.PID
	}
	for _, candidate := range all.ByPID {
		if !mayNotEnd(candidate) || !p.isMember(all, process.PID, candidate.PID) {
			continue
		}
		member, err := p.Table.Alive(candidate.PID) // as it is now
		if err == nil && mayNotEnd(member) {
			return member.PID
		}
	}
	i := slices.IndexFunc(all.Zombies, func(zombie proc.Process) bool { return p.isUnreaped(all, process, zombie) })
	if i >= 0 {
		return all.Zombies[i].PID
	}
	return process.PID
}

// isUnreaped reports whether a killed process waits for a zombie that others have to reap: a tracer, or a parent outside of its
// PID namespace.
func (p *pass) isUnreaped(all *proc.Processes, process, zombie proc.Process) bool {
	if zombie.PPID == process.PID {
		return p.tracerOf(zombie) != 0
	}
	return p.isMember(all, process.PID, zombie.PID)
}

// tracerOf returns the process that traces a zombie and has not reaped it, 0 for none.
func (p *pass) tracerOf(zombie proc.Process) int {
	current, err := proc.ReadStat(p.Table.ProcFS, zombie.PID)
	if err != nil || current.ID() != zombie.ID() {
		return 0
	}
	tracer, err := proc.TracerPID(p.Table.ProcFS, zombie.PID)
	p.unread.Add(tracers, err)
	return tracer
}

// isMember reports whether a process descends from another one, or is in a PID namespace of which
// that one is the first.
func (p *pass) isMember(all *proc.Processes, first, pid int) bool {
	if slices.Contains(all.Ancestors(pid), first) {
		return true
	}
	shares, err := proc.SharesNamespace(p.Table.ProcFS, first, pid, "pid")
	return err == nil && shares && proc.PIDIn(p.Table.ProcFS, first, first) == 1
}
