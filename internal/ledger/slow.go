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
	slowHelper = time.Second
	// slowWaits so many waits for the same are a finding. They are over once none has come for twice the time between two of
	// them, from overSoonest to overLatest.
	slowWaits   = 3
	overSoonest = 10 * time.Second
	overLatest  = time.Minute
	// namedFor is how long after the last wait they are a finding.
	namedFor = 30 * time.Second
	// slowInterval is the time between two passes while calls are slow, and slowJitter is added at random: calls that follow each
	// other in time with the passes would be seen at the same moment of their lives.
	slowInterval = owedInterval
	slowJitter   = time.Second
	// slowTable is how old the process table may be while calls are slow.
	slowTable = time.Second
	// maxFollowed bounds the helpers that one pass follows.
	maxFollowed = 3
	// maxRuntimeThreads bounds the threads of the runtime that are read.
	maxRuntimeThreads = 2048
)

// delay is something for which the runtime and its helpers wait again and again: each wait ends, and none of them is a hang.
type delay struct {
	begun, last time.Time
	helpers     map[proc.ID]bool
	past        int  // helpers that had ended when the latest of them was seen, and are no longer in that map
	waits       int  // of the runtime itself
	isWaiting   bool // the runtime waited at the last pass
	chain       facts.Chain
	isStarved   bool // the helpers do not get a CPU
}

// isOver reports whether another wait would have come by now.
func (d *delay) isOver(moment time.Time) bool {
	pause := overLatest
	if d.count() > 1 {
		pause = 2 * d.last.Sub(d.begun) / time.Duration(d.count()-1)
	}
	return moment.Sub(d.last) > min(max(pause, overSoonest), overLatest)
}

// culprit tells delays apart.
type culprit struct {
	kind facts.LinkKind
	name string
	pid  int
}

// starvation stands for the culprit of all that do not get a CPU.
var starvation = culprit{}

// delays follows the helpers that have run for long while calls for pods are slow, and the threads of the runtime that wait in
// the kernel meanwhile.
func (p *pass) delays(ctx context.Context) {
	maps.DeleteFunc(p.delayed, func(_ culprit, d *delay) bool { return d.isOver(p.moment) })
	if !p.callsAreSlow() && !p.Suspects() {
		return
	}
	all := p.readProcesses(ctx, slowTable)
	if all == nil {
		return
	}
	helpers := slices.DeleteFunc(p.slowHelpers(ctx, all), func(helper proc.Process) bool { return p.isCounted(helper.ID()) })
	for _, helper := range helpers[:min(len(helpers), maxFollowed)] {
		d := p.delayOfHelper(ctx, all, helper)
		if d != nil {
			d.helpers[helper.ID()] = true
		}
	}
	waiting := map[*delay]bool{}
	for _, pid := range p.pids {
		waiting[p.delayOfThread(ctx, all, pid)] = true
	}
	for _, d := range p.delayed {
		if waiting[d] && !d.isWaiting {
			d.waits++
		}
		d.isWaiting = waiting[d] // one wait may last over several passes
	}
}

// callsAreSlow reports whether a start is slow, the kubelet's calls were lately, or a wait of a delay was seen.
func (p *pass) callsAreSlow() bool {
	return p.started.areSlow(p.moment) || len(p.delayed) > 0 || p.CallsAreSlow()
}

// delayOfHelper follows a helper, and returns the delay that this shows, nil for none.
func (p *pass) delayOfHelper(ctx context.Context, all *proc.Processes, helper proc.Process) *delay {
	explorer := chain.New(p.Table, p.SysFS, nil)
	c := explorer.Owed(ctx, p.debtOf(&obligation{waiter: helper.PPID, debtor: helper.PID, begun: p.moment}))
	d := p.delayOf(all, c, helper.PID)
	share := p.shareOf(all, helper)
	isBusy := share >= busyShare && len(c.Links) > 1 && c.Links[1].PID == helper.PID
	if d == nil && isBusy {
		return p.noteDelay(culprit{kind: facts.KindHelper, name: helper.Comm}, busyHelper(c, share)) // each runs the same program
	}
	return d
}

// delayOfThread follows the runtime, or a hop behind it, where one of its threads is in D, and returns the delay that this shows,
// nil for none.
func (p *pass) delayOfThread(ctx context.Context, all *proc.Processes, pid int) *delay {
	threads, err := proc.ThreadStates(p.Table.ProcFS, pid, maxRuntimeThreads)
	p.unread.Add(threadsOfRuntime, err)
	if !slices.ContainsFunc(threads, func(t proc.Process) bool { return t.State == 'D' }) {
		return nil
	}
	explorer := chain.New(p.Table, p.SysFS, nil)
	c := explorer.Explore(ctx, p.symptomOf(facts.Symptom{Process: pid, Since: p.moment}))
	isInKernel := len(c.Links) == 2 && c.Links[1].PID == 0
	if !isInKernel {
		return nil
	}
	return p.delayOf(all, c, pid)
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

// busyHelper returns a chain that ends at its helper, which has a CPU for a share of its life.
func busyHelper(c facts.Chain, share float64) facts.Chain {
	c.Links = slices.Clone(c.Links[:2])
	last := &c.Links[1]
	last.State = facts.LinkRunning
	last.Evidence = fmt.Sprintf("runs, with its children: %d %% of a CPU", int(100*share))
	c.Unknown = ""
	return c
}

// delayOf returns the delay that a chain from a process shows, nil where that ends inside the process, unless this gets no CPU, or at
// a local disk: on a busy node such waits are many.
func (p *pass) delayOf(all *proc.Processes, c facts.Chain, pid int) *delay {
	last := c.Culprit()
	switch {
	case last == nil || len(c.Links) < 2:
		return nil
	case last.State == facts.LinkStarved:
		return p.noteDelay(starvation, c)
	case !isOthers(last) || p.isOwn(all, last.PID, pid):
		return nil
	}
	return p.noteDelay(culprit{kind: last.Kind, name: last.Name, pid: last.PID}, c)
}

// noteDelay notes one more wait, and returns its delay.
func (p *pass) noteDelay(key culprit, c facts.Chain) *delay {
	d := p.delayed[key]
	if d == nil {
		d = &delay{begun: p.moment, helpers: map[proc.ID]bool{}, isStarved: key == starvation}
		p.delayed[key] = d
	}
	d.last = p.moment
	d.chain = c
	p.forgetEnded(d)
	return d
}

// busyShare is the share of its life for which a helper that keeps a CPU busy has had one.
const busyShare = 0.5

// shareOf returns the share of its life for which a process and its children have had a CPU.
func (p *pass) shareOf(all *proc.Processes, helper proc.Process) float64 {
	age := proc.Uptime() - proc.TicksToDuration(helper.Start)
	return p.timeOfTree(all, helper.PID).Seconds() / age.Seconds()
}

// timeOfTree returns for how long a process and its children have had a CPU.
func (p *pass) timeOfTree(all *proc.Processes, pid int) time.Duration {
	sum, err := proc.CPUTime(p.Table.ProcFS, pid)
	p.unread.Add(helpersOfRuntime, err)
	for _, child := range all.Children(pid) {
		sum += p.timeOfTree(all, child.PID)
	}
	return sum
}

// isOwn reports whether a process is one from which a chain begins, descends from it, or is the runtime or a shim; false for 0.
func (p *pass) isOwn(all *proc.Processes, pid, first int) bool {
	_, isShim := p.shims[pid]
	return isShim || pid != 0 && (slices.Contains(p.pids, pid) || pid == first || slices.Contains(all.Ancestors(pid), first))
}

// isOthers reports whether a chain ends at something that others keep from going on: not where it ends at a disk, or in the kernel's
// work for one or for memory.
func isOthers(last *facts.Link) bool {
	switch last.Kind {
	case facts.KindMount:
		return last.State == facts.LinkFrozen || wchan.HasServer(last.Fingerprint)
	case facts.KindKernel:
		return slices.Contains([]wchan.Kind{wchan.Thaw, wchan.Semaphore, wchan.Other}, wchan.Of(last.Name).Kind)
	case facts.KindCall, facts.KindContainer, facts.KindPod:
		return false
	default:
		return true
	}
}

// forgetEnded counts the helpers of a delay that have ended.
func (p *pass) forgetEnded(d *delay) {
	maps.DeleteFunc(d.helpers, func(id proc.ID, _ bool) bool {
		process, err := p.Table.Alive(id.PID)
		hasEnded := err != nil || process.ID() != id
		if hasEnded {
			d.past++
		}
		return hasEnded
	})
}

// count is how many waits there were one after the other. Helpers that wait at the same time, and end together, are one.
func (d *delay) count() int {
	if len(d.helpers) == 0 {
		return d.waits
	}
	return d.waits + d.past + 1
}

// delayFindings returns the delays that have come often enough, the oldest first.
func (p *pass) delayFindings() (out []facts.Finding) {
	oldest := slices.SortedFunc(maps.Values(p.delayed), func(a, b *delay) int { return a.begun.Compare(b.begun) })
	for _, d := range oldest {
		if d.count() < slowWaits || p.moment.Sub(d.last) > namedFor {
			continue
		}
		reason := helperStuck
		switch {
		case d.isStarved:
			reason = runtimeStarved
		case len(d.helpers) == 0:
			reason = storageStall
		}
		out = append(out, facts.Finding{Reason: reason, Since: d.begun, Chain: d.text(p.moment)})
	}
	return out
}

// text returns the chain of the latest wait, which says how many there were.
func (d *delay) text(moment time.Time) facts.Chain {
	c := d.chain
	c.At = moment
	c.Links = slices.Clone(c.Links)
	c.Links[0].Evidence = fmt.Sprintf("%d waits for the same, one after the other, since %s", d.count(), d.begun.UTC().Format(clock))
	c.Links[0].Since = d.begun
	return c
}
