package ledger

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// unnoticed notes the shims that have fewer processes than the runtime lists as running in their pods: it does not take
// note of an end. Only entries count that have had a process: a sandboxed runtime need not have one for each.
func (p *pass) unnoticed(all *proc.Processes) {
	if p.listed == nil || all.Unread != nil {
		return
	}
	hadProcess := map[string]bool{}
	for pid, entries := range p.runningIn() {
		processes := all.Children(pid)
		entries = p.withProcess(p.shims[pid], entries, processes)
		for _, e := range entries {
			hadProcess[e.ID] = true
		}
		p.keepUnnoticed(p.shims[pid], entries, processes)
	}
	p.hadProcess = hadProcess
	for id := range p.owed {
		if id.kind == unnoticed && !p.seen[id] { // also of a pod that has been removed
			p.noticed = p.moment
		}
	}
}

// withProcess returns those of a shim's entries that have had a process.
func (p *pass) withProcess(shim proc.Process, entries []*cri.Entry, processes []proc.Process) []*cri.Entry {
	_, restored := p.Begun[unnoticedOf(shim).String()]
	if restored || len(processes) >= len(entries) {
		return entries
	}
	return slices.DeleteFunc(entries, func(e *cri.Entry) bool { return !p.hadProcess[e.ID] })
}

// keepUnnoticed notes a shim that has fewer processes than entries.
func (p *pass) keepUnnoticed(shim proc.Process, entries []*cri.Entry, processes []proc.Process) {
	missing := len(entries) - len(processes)
	if missing <= 0 || p.isHeldUp(shim) {
		return
	}
	what := unnoticedOf(shim)
	last, isKnown := p.owed[what]
	if isKnown && missing < int(last.amount) {
		p.noticed = p.moment
	}
	o := p.keep(obligation{identity: what, amount: uint32(missing), waiter: shim.PID}) //nolint:gosec // above 0
	o.lost = p.endedOf(shim, entries, processes)
}

// unnoticedOf is the identity of what a shim has too few processes for.
func unnoticedOf(shim proc.Process) identity {
	return identity{kind: unnoticed, id: shim.Start, pid: shim.PID}
}

// runningIn returns what the runtime lists as running, by the pids of the shims: that of the container, else of its pod.
func (p *pass) runningIn() map[int][]*cri.Entry {
	pids := map[string]int{} // by what they serve
	for shim, last := range p.served {
		if p.shims[shim.PID].ID() == shim {
			pids[last.entry.ID] = shim.PID
		}
	}
	running := map[int][]*cri.Entry{}
	for _, e := range p.listed {
		pid, isOwn := pids[e.ID]
		if !isOwn {
			pid = pids[e.SandboxID]
		}
		if pid != 0 && e.State == cri.StateRunning {
			running[pid] = append(running[pid], e)
		}
	}
	return running
}

// isHeldUp reports whether a shim cannot report an end: it stands still, or a tracer keeps a process that has ended.
func (p *pass) isHeldUp(shim proc.Process) bool {
	for id, o := range p.owed {
		if id.kind == killed && o.waiter == shim.PID {
			return true
		}
	}
	return strings.IndexByte("TtD", shim.State) >= 0
}

// endedOf returns the link of a shim one of whose processes has ended: that of the only entry that none of the others is of
// by its cgroup, else of any in the pod.
func (p *pass) endedOf(shim proc.Process, entries []*cri.Entry, processes []proc.Process) facts.Link {
	groups := ""
	for _, process := range processes {
		cgroups, _ := p.tree.Of(process.PID) // those that cannot be read show nothing
		groups += fmt.Sprint(cgroups)
	}
	id := entries[0].SandboxID
	without := slices.DeleteFunc(slices.Clone(entries), func(e *cri.Entry) bool { return strings.Contains(groups, e.ID) })
	if len(without) == 1 {
		id = without[0].ID
	}
	return facts.Link{
		Kind: facts.KindShim, Name: shim.Comm, RuntimeID: id, Pod: entries[0].Pod(), State: facts.LinkUnlisted,
		Evidence: fmt.Sprintf("pid %d has %d processes, and the runtime still lists %d of its pod as running: it has not taken note of an end",
			shim.PID, len(processes), len(entries)),
	}
}

// isSilent reports whether a process stands still, or did not read at the look before, too.
func (o *obligation) isSilent(peer *facts.Link) bool {
	last := o.silent
	o.silent = peer.PID
	return peer.State.StandsStill() || last == peer.PID
}

// unnoticedFinding returns the finding of the oldest end that the runtime has not taken note of for long, by lists of that
// time; none while it takes note of others: it is merely late.
func (p *pass) unnoticedFinding(ctx context.Context, oldest []*obligation) []facts.Finding {
	for _, o := range oldest {
		if o.kind != unnoticed || min(p.age(o), p.moment.Sub(p.noticed), p.ListedAt().Sub(o.begun)) < idleLimit {
			continue
		}
		debt := p.debtOf(o)
		debt.Evidence = "lists what has ended as running: shim " + o.lost.Evidence
		c := o.explorer.Unnoticed(ctx, debt, slices.Concat(p.pids, []int{o.waiter}))
		reason := p.reasonOf(o, &c)
		if reason == "" {
			o.silent = 0
		} else {
			o.due = p.moment.Add(idleLimit)
		}
		if reason != "" && o.isSilent(&c.Links[1]) {
			c.Links[0].RuntimeID = o.lost.RuntimeID
			c.Links[0].Pod = o.lost.Pod
			return []facts.Finding{{Reason: reason, Since: o.begun, Chain: c}}
		}
		if p.moment.Before(o.due) {
			continue // a process has not read: it reads again or has ended, and the runtime takes note of the end when it tries again
		}
		link := o.lost
		link.Since = o.begun
		return []facts.Finding{{Reason: shimStuck, Since: o.begun, Chain: facts.Chain{
			At: time.Now(), Links: []facts.Link{link}, Unknown: "this does not show why: of the processes that it writes to none is silent, or several are",
		}}}
	}
	return nil
}
