package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

const (
	// slowHelper is the age from which a helper makes its call slow: most end within 0.2 s. From idleLimit on it hangs.
	slowHelper = 2 * time.Second
	// slowWaits so many waits for the same are a finding. They are over once none has come for twice the time between two of
	// them, from overSoonest to overLatest.
	slowWaits   = 3
	overSoonest = 10 * time.Second
	overLatest  = time.Minute
	// slowTable is how old the process table may be while calls are slow.
	slowTable = time.Second
	// maxFollowed bounds the helpers that one pass follows.
	maxFollowed = 3
	// maxRuntimeThreads bounds the threads of the runtime that are read.
	maxRuntimeThreads = 2048
)

// delay is something for which the runtime and its helpers wait again and again: each wait ends, and none of them is a hang.
type delay struct {
	since, last time.Time
	helpers     map[proc.ID]bool
	ended       int  // those of the helpers that had ended when the latest of them was seen
	waits       int  // of the runtime itself
	isWaiting   bool // the runtime waited at the last pass
	chain       facts.Chain
	isStarved   bool // the helpers do not get a CPU
}

// isOver reports whether another wait would have come by now.
func (d *delay) isOver(moment time.Time) bool {
	between := overLatest
	if d.count() > 1 {
		between = 2 * d.last.Sub(d.since) / time.Duration(d.count()-1)
	}
	return moment.Sub(d.last) > min(max(between, overSoonest), overLatest)
}

// culprit tells delays apart.
type culprit struct {
	kind facts.LinkKind
	name string
	pid  int
}

// delays follows the helpers that have run for long while calls for pods are slow, and the threads of the runtime that wait in
// the kernel meanwhile.
func (p *pass) delays(ctx context.Context) {
	maps.DeleteFunc(p.delayed, func(_ culprit, d *delay) bool { return d.isOver(p.moment) })
	if !p.started.areSlow(p.moment) && len(p.delayed) == 0 && !p.Suspects() {
		return
	}
	all := p.readProcesses(ctx, slowTable)
	if all == nil {
		return
	}
	followed := 0
	for _, helper := range p.slowHelpers(ctx, all) {
		if followed == maxFollowed {
			break
		}
		if p.isCounted(helper.ID()) {
			continue
		}
		followed++
		explorer := chain.New(p.Table, p.SysFS, nil)
		c := explorer.Owed(ctx, chain.Debt{
			Waiter: helper.PPID, Debtor: helper.PID, Begun: p.moment, RuntimePID: p.pids[0], DaemonPID: p.daemonPID(), Pod: p.Pod,
		})
		d := p.delayOf(all, c, helper.PID)
		if d != nil {
			d.helpers[helper.ID()] = true
		}
	}
	p.delayedThreads(ctx, all)
}

// delayedThreads follows the runtime where one of its threads is in D. One wait may last over several passes.
func (p *pass) delayedThreads(ctx context.Context, all *proc.Processes) {
	waiting := map[*delay]bool{}
	defer func() {
		for _, d := range p.delayed {
			d.isWaiting = waiting[d]
		}
	}()
	for _, pid := range p.pids {
		threads, err := proc.ThreadStates(p.Table.ProcFS, pid, maxRuntimeThreads)
		p.unread.Add(threadsOfRuntime, err)
		if !slices.ContainsFunc(threads, func(t proc.Process) bool { return t.State == 'D' }) {
			continue
		}
		explorer := chain.New(p.Table, p.SysFS, nil)
		c := explorer.Explore(ctx, chain.Symptom{
			Symptom: facts.Symptom{Process: pid, Since: p.moment}, RuntimePID: p.pids[0], DaemonPID: p.daemonPID(), Pod: p.Pod,
		})
		isInKernel := len(c.Links) == 2 && c.Links[1].PID == 0
		if !isInKernel {
			continue
		}
		d := p.delayOf(all, c, pid)
		if d == nil {
			continue
		}
		if !d.isWaiting && !waiting[d] {
			d.waits++
		}
		waiting[d] = true
	}
}

// slowHelpers returns the helpers of the runtime and its shims that are old enough to make a call slow, and do not hang yet.
func (p *pass) slowHelpers(ctx context.Context, all *proc.Processes) (out []proc.Process) {
	up := proc.Uptime()
	for _, pid := range slices.Concat(p.pids, slices.Sorted(maps.Keys(p.shims))) {
		parent := all.ByPID[pid]
		for _, child := range all.Children(pid) {
			age := up - proc.TicksToDuration(child.Start)
			if age < slowHelper || age >= idleLimit {
				continue
			}
			answer := p.members.Helper(ctx, child, child, parent)
			p.unread.Add(helpersOfRuntime, answer.Err)
			if answer.Proven() {
				out = append(out, child)
			}
		}
	}
	return out
}

// isCounted reports whether a helper's wait is known.
func (p *pass) isCounted(id proc.ID) bool {
	for _, d := range p.delayed {
		if d.helpers[id] {
			return true
		}
	}
	return false
}

// delayOf returns the delay that a chain from a process shows, nil where that ends inside the process but for the wait for a CPU,
// or at a local disk: on a busy node such waits are many.
func (p *pass) delayOf(all *proc.Processes, c facts.Chain, pid int) *delay {
	last := c.Culprit()
	if last == nil || len(c.Links) < 2 {
		return nil
	}
	isStarved := last.State == facts.LinkStarved
	key := culprit{kind: last.Kind, name: last.Name, pid: last.PID}
	switch {
	case isStarved:
		key = culprit{} // one for all
	case !isOthers(last) || p.isOwn(all, last.PID, pid):
		return nil
	}
	d := p.delayed[key]
	if d == nil {
		d = &delay{since: p.moment, helpers: map[proc.ID]bool{}, isStarved: isStarved}
		p.delayed[key] = d
	}
	d.last = p.moment
	d.chain = c
	d.ended = p.endedIn(d)
	return d
}

// isOwn reports whether a process is one from which a chain begins, descends from it, or is the runtime or a shim; false for 0.
func (p *pass) isOwn(all *proc.Processes, pid, first int) bool {
	_, isShim := p.shims[pid]
	return isShim || pid != 0 && (slices.Contains(p.pids, pid) || pid == first || slices.Contains(all.Ancestors(pid), first))
}

// isOthers reports whether a chain ends at something that others keep from going on: not where it ends at a disk, or at a
// function of the kernel that does not say so.
func isOthers(last *facts.Link) bool {
	switch last.Kind {
	case facts.KindMount:
		return last.State == facts.LinkFrozen || wchan.HasServer(last.Fingerprint)
	case facts.KindKernel:
		kind := wchan.Of(last.Name).Kind
		return kind == wchan.Thaw || kind == wchan.Semaphore
	case facts.KindCall, facts.KindContainer, facts.KindPod:
		return false
	default:
		return true
	}
}

// endedIn returns how many of the helpers of a delay have ended.
func (p *pass) endedIn(d *delay) (count int) {
	for id := range d.helpers {
		process, err := p.Table.Alive(id.PID)
		if err != nil || process.ID() != id {
			count++
		}
	}
	return count
}

// count is how many waits there were one after the other. Helpers that wait at the same time, and end together, are one.
func (d *delay) count() int {
	if len(d.helpers) == 0 {
		return d.waits
	}
	return d.waits + d.ended + 1
}

// delayFindings returns the delays that have come often enough.
func (p *pass) delayFindings() (out []facts.Finding) {
	for _, d := range p.delayed {
		if d.count() < slowWaits {
			continue
		}
		reason := helperStuck
		switch {
		case d.isStarved:
			reason = runtimeStarved
		case len(d.helpers) == 0:
			reason = storageStall
		}
		out = append(out, facts.Finding{Reason: reason, Since: d.since, Chain: d.text(p.moment)})
	}
	return out
}

// text returns the chain of the latest wait, which says how many there were.
func (d *delay) text(moment time.Time) facts.Chain {
	c := d.chain
	c.At = moment
	c.Links = slices.Clone(c.Links)
	c.Links[0].Evidence = fmt.Sprintf("%d waits for the same, one after the other, since %s", d.count(), d.since.UTC().Format(clock))
	c.Links[0].Since = d.since
	return c
}
