package relist

import (
	"slices"

	"github.com/plegd/plegd/internal/cri"
)

// deleted ranks after exited: a container only ever goes forward.
const deleted = 4

// rank orders the states that a container goes through.
func (s plegState) rank() int {
	switch s {
	case gone:
		return 0
	case unknown:
		return 1
	case running:
		return 2
	default:
		return 3
	}
}

// tell takes over what an event says of one sandbox or container: events have
// now been delivered for that state, and the next lists are compared with it.
// during is the relist whose lists may be from before or after the event, 0 when
// there is none. It returns the rank of the state that was known before; where
// that is as far or further, nothing changes.
func (rs *records) tell(e *cri.ContainerEvent, name string, state plegState, during uint64) (before int) {
	rank := rankOf(e.Type)
	p := rs.pods[e.PodUID]
	var r *record
	if p != nil {
		r = p.record(e.ContainerID)
	}
	switch {
	case r != nil && r.old == gone && r.event:
		before = deleted
	case r != nil:
		before = r.old.rank()
	}
	if before >= rank || r == nil && state == gone {
		return before
	}
	p = rs.podOf(entry{uid: e.PodUID, podName: e.PodName, namespace: e.PodNamespace, createdAt: e.Sandbox.CreatedAt})
	rs.lead(p.recordOf(e.ContainerID, name, e.ContainerID == e.Sandbox.ID), state, during)
	return before
}

// lead sets the state that events have been delivered for, ahead of the lists.
func (rs *records) lead(r *record, state plegState, during uint64) {
	p := r.pod
	r.old, r.told, r.event = state, during, true
	if state == gone && r.cur == gone && during == 0 { // no list has held it, and none will
		p.records = slices.DeleteFunc(p.records, func(other *record) bool { return other == r })
		if len(p.records) == 0 {
			delete(rs.pods, p.uid)
		}
	}
	if !p.ahead {
		p.ahead = true
		rs.ahead = append(rs.ahead, p)
	}
}

// lookedAt takes over what a list of one pod says of one entry.
func (rs *records) lookedAt(e entry) {
	rs.lead(rs.podOf(e).recordOf(e.id, e.name, e.sandbox != nil), e.state, 0)
}

// listsFailed says that the relist whose lists were under way has none.
func (rs *records) listsFailed() {
	for _, p := range rs.ahead {
		for _, r := range p.records {
			if r.told > rs.gen {
				r.told = 0
			}
		}
	}
}

// catchUp makes the next comparison look at the pods that events have told of.
func (rs *records) catchUp() {
	ahead := rs.ahead
	rs.ahead = nil
	for _, p := range ahead {
		p.ahead = false
		if rs.pods[p.uid] != p {
			continue
		}
		rs.touch(p)
		if slices.ContainsFunc(p.records, func(r *record) bool { return r.told == rs.gen }) {
			p.ahead = true
			rs.ahead = append(rs.ahead, p)
		}
	}
}

// untold leaves out the events of records that an event has told of since they
// were found.
func (rs *records) untold(p *podRecord, found []Event) []Event {
	return slices.DeleteFunc(found, func(e Event) bool {
		r := p.record(e.ID)
		return r != nil && r.told == rs.gen
	})
}

// oldState is the state that events were last delivered for.
func (rs *records) oldState(uid, id string) plegState {
	if p := rs.pods[uid]; p != nil {
		if r := p.record(id); r != nil {
			return r.old
		}
	}
	return gone
}

// compare returns what lists of one pod hold otherwise than what events were
// last delivered for, containers before sandboxes. It changes nothing.
func (rs *records) compare(uid string, sandboxes []*cri.Sandbox, containers []*cri.Container) []entry {
	var found, changed []entry
	for _, c := range containers {
		if !containerPassedOver(c) && c.PodUID == uid {
			found = append(found, containerEntry(c))
		}
	}
	for _, s := range sandboxes {
		if !sandboxPassedOver(s) && s.PodUID == uid {
			found = append(found, sandboxEntry(s))
		}
	}
	for _, e := range found {
		if rs.oldState(uid, e.id) != e.state {
			changed = append(changed, e)
		}
	}
	p := rs.pods[uid]
	if p == nil {
		return changed
	}
	for _, r := range p.records {
		listed := slices.ContainsFunc(found, func(e entry) bool { return e.id == r.id })
		if r.old == gone || listed {
			continue
		}
		e := entry{uid: uid, podName: p.name, namespace: p.namespace, createdAt: p.createdAt, id: r.id, name: r.name, state: gone}
		if r.sandbox {
			e.sandbox = &cri.Sandbox{}
		}
		changed = append(changed, e)
	}
	slices.SortStableFunc(changed, func(a, b entry) int { return boolInt(a.sandbox != nil) - boolInt(b.sandbox != nil) })
	return changed
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
