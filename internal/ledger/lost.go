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
	listed := p.Listed()
	if len(p.shims) > 0 && listed != nil {
		p.unlisted(listed)
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
	served := map[proc.ID]*cri.Entry{}
	for _, shim := range p.shims {
		id := p.servedID(shim)
		entry := cmp.Or(listed[id], p.served[shim.ID()], p.dropped[id])
		if !running[id] {
			entry = p.noteLost(shim, id, entry)
		}
		if entry != nil {
			served[shim.ID()] = entry
		}
	}
	p.served = served
}

// servedID returns the id of what a shim serves. Only a new shim's arguments are read: those of the
// others are proved with each new table of processes (family.Shims).
func (p *pass) servedID(shim proc.Process) string {
	entry := p.served[shim.ID()]
	if entry != nil {
		return entry.ID
	}
	return family.ShimID(shim, p.Table.Args(shim.ID()))
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
	}
	return entry
}

// lostFinding returns the finding of all that the runtime has lost, as that of the oldest; none for nothing.
func (p *pass) lostFinding(oldest []*obligation) (out []facts.Finding) {
	all := slices.DeleteFunc(slices.Clone(oldest), func(o *obligation) bool {
		return o.kind != lostPod || p.age(o) < idleLimit
	})
	if len(all) == 0 {
		return nil
	}
	link := all[0].lost
	link.Since = all[0].begun
	link.Evidence = "runs, but the runtime no longer lists its pod or container as running"
	if len(all) > 1 {
		link.Evidence += fmt.Sprintf("; so do %d more", len(all)-1)
	}
	c := facts.Chain{At: time.Now(), Links: []facts.Link{link}}
	return []facts.Finding{{Reason: podsLost, Since: link.Since, Chain: c}}
}
