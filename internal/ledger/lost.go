package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

// lost notes the shims that live on while the runtime no longer lists their pod or container as
// running, as after a start without the directory of its state.
func (p *pass) lost(all *proc.Processes) {
	for _, entry := range p.TakeDropped() {
		p.dropped[entry.ID] = entry
		p.droppedAt = p.moment
	}
	p.listed = p.Listed() // after the table of processes
	if len(p.shims)+len(p.served) > 0 && p.listed != nil {
		p.unlisted(p.listed)
	}
	if all.At.After(p.droppedAt) { // the shims of all that was dropped were in the table
		clear(p.dropped)
	}
}

// unlisted notes the shims of which nothing runs by the lists.
func (p *pass) unlisted(listed map[string]*cri.Entry) {
	running := map[string]bool{}
	for _, e := range listed {
		if e.State != cri.StateExited {
			running[e.ID] = true
			running[e.SandboxID] = true // it has a shim for all of its containers
		}
	}
	current := map[proc.ID]served{}
	isServed := map[string]bool{}
	for _, shim := range p.shims {
		id := p.servedID(shim)
		entry := cmp.Or(listed[id], p.served[shim.ID()].entry, p.dropped[id])
		if !running[id] {
			entry = p.noteLost(shim, id, entry)
		}
		if entry != nil {
			current[shim.ID()] = served{entry: entry, comm: shim.Comm}
			isServed[id] = true
		}
	}
	for shim, last := range p.served {
		id := last.entry.ID
		if !isServed[id] && p.noteUnserved(shim, last.comm, listed[id]) {
			current[shim] = last
		}
	}
	p.served = current
}

// served is what a shim of a name serves, as the runtime last listed it.
type served struct {
	entry *cri.Entry
	comm  string
}

// noteUnserved notes a pod or container that the runtime lists as running although its shim has ended, as a conmon
// by a signal, and reports whether it is so.
func (p *pass) noteUnserved(shim proc.ID, comm string, entry *cri.Entry) bool {
	current, err := p.Table.Alive(shim.PID)
	hasEnded := proc.Gone(err) || err == nil && current.ID() != shim
	if !hasEnded || entry == nil || entry.State != cri.StateRunning {
		return false
	}
	what := identity{kind: unserved, id: shim.Start, pid: shim.PID}
	_, isKnown := p.owed[what]
	if !isKnown && p.Suspects() {
		return true // the lists may be old
	}
	o := p.keep(obligation{identity: what, name: entry.ID})
	o.lost = facts.Link{
		Kind: facts.KindShim, Name: comm, RuntimeID: entry.ID, Pod: entry.Pod(), State: facts.LinkEnded,
		Evidence: fmt.Sprintf("pid %d has ended, and the runtime still lists its pod or container as running", shim.PID),
	}
	return true
}

// servedID returns the id of what a shim serves, "" for a conmon that serves an exec alone. Only a new shim's arguments
// are read: those of the others are proved with each new table of processes (family.Shims).
func (p *pass) servedID(shim proc.Process) string {
	last, known := p.served[shim.ID()]
	if known {
		return last.entry.ID
	}
	args := p.Table.Args(shim.ID())
	if family.IsExec(args) {
		return ""
	}
	return family.ShimID(shim, args)
}

// noteLost notes a shim whose pod or container does not run by the lists, and returns its entry: of
// these lists, earlier ones, or the plegd before. It is nil where none of them had it, and
// for a shim that has ended.
func (p *pass) noteLost(shim proc.Process, id string, entry *cri.Entry) *cri.Entry {
	what := identity{kind: lostPod, id: shim.Start, pid: shim.PID}
	_, restored := p.Begun[what.String()]
	if entry == nil && restored {
		entry = &cri.Entry{ID: id}
	}
	current, err := p.Table.Alive(shim.PID) // the table may be old
	if entry == nil || err != nil || current.ID() != shim.ID() {
		return nil
	}
	if strings.IndexByte("TtD", current.State) >= 0 { // it is stuck, and could not end with its pod
		return entry
	}
	o := p.keep(obligation{identity: what, name: id})
	o.lost = facts.Link{
		Kind: facts.KindShim, Name: shim.Comm, PID: shim.PID, RuntimeID: id, Pod: entry.Pod(), State: facts.LinkUnlisted,
		Evidence: "runs, but the runtime no longer lists its pod or container as running",
	}
	return entry
}

// listFinding returns the finding of all that a kind of obligation shows beside the lists and that is old enough, as that of
// the oldest; none for nothing.
func (p *pass) listFinding(oldest []*obligation, what kind, reason string) (out []facts.Finding) {
	all := slices.DeleteFunc(slices.Clone(oldest), func(o *obligation) bool {
		return o.kind != what || p.age(o) < idleLimit
	})
	if len(all) == 0 {
		return nil
	}
	link := all[0].lost
	link.Since = all[0].begun
	if len(all) > 1 {
		link.Evidence += fmt.Sprintf("; likewise %d more", len(all)-1)
	}
	c := facts.Chain{At: time.Now(), Links: []facts.Link{link}}
	return []facts.Finding{{Reason: reason, Since: link.Since, Chain: c}}
}
