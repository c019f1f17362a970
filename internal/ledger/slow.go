package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

const (
	// slowHelper is the age from which a helper makes its call slow: most end within 0.2 s. From idleLimit on it hangs.
	slowHelper = 2 * time.Second
	// slowWaits so many waits for the same are a finding, of which the latest is not older than slowOver.
	slowWaits = 3
	slowOver  = time.Minute
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
	waits       int // of the runtime itself, one a pass at most
	chain       facts.Chain
	isStarved   bool // the helpers do not get a CPU
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
	maps.DeleteFunc(p.delayed, func(_ culprit, d *delay) bool { return p.moment.Sub(d.last) > slowOver })
	if !p.started.areSlow && len(p.delayed) == 0 && !p.Suspects() {
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

// delayedThreads follows the runtime where one of its threads is in D.
func (p *pass) delayedThreads(ctx context.Context, all *proc.Processes) {
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
		if d != nil {
			d.waits++
		}
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

// delayFindings returns the delays that have come often enough. A helper that has not ended may hang, which others find.
func (p *pass) delayFindings() (out []facts.Finding) {
	for _, d := range p.delayed {
		ended := 0
		for id := range d.helpers {
			process, err := p.Table.Alive(id.PID)
			if err != nil || process.ID() != id {
				ended++
			}
		}
		if d.waits+ended < slowWaits {
			continue
		}
		reason := helperStuck
		switch {
		case d.isStarved:
			reason = runtimeStarved
		case ended == 0:
			reason = storageStall
		}
		out = append(out, facts.Finding{Reason: reason, Since: d.since, Chain: d.text(d.waits+ended, p.moment)})
	}
	return out
}

// text returns the chain of the latest wait, which says how many there were.
func (d *delay) text(waits int, moment time.Time) facts.Chain {
	c := d.chain
	c.At = moment
	c.Links = slices.Clone(c.Links)
	c.Links[0].Evidence = fmt.Sprintf("%d waits for the same, one after the other, since %s", waits, d.since.UTC().Format(clock))
	c.Links[0].Since = d.since
	return c
}

// noteSlow notes whether a start that was under way at the pass before still is.
func (s *starts) noteSlow(moment time.Time, listed map[string]*cri.Entry) {
	pending := s.pending(moment, listed)
	s.areSlow = slices.ContainsFunc(pending, func(name string) bool { return slices.Contains(s.underWay, name) })
	s.underWay = pending
}

// pending returns the entries of starts that are under way: of what is not listed yet, and of containers that do not run yet. One
// that is there for startsOver is none, or hangs.
func (s *starts) pending(moment time.Time, listed map[string]*cri.Entry) (out []string) {
	for _, d := range s.dirs {
		for _, name := range d.names {
			came := d.came[name]
			isComing := listed[name] == nil && moment.Sub(came) < startsOver
			if isComing || isCreated(listed[name], moment) {
				out = append(out, name)
			}
		}
	}
	return out
}

// isCreated reports whether an entry is a container that was created lately and does not run yet.
func isCreated(e *cri.Entry, moment time.Time) bool {
	if e == nil || e.Sandbox || e.State != cri.StateCreated {
		return false
	}
	age, isKnown := e.Age(moment)
	return isKnown && age < startsOver
}
