package relist

import "github.com/plegd/plegd/internal/cri"

// teller is a Runtime that tells what its last lists changed. A second in which
// nothing changed then costs the records nothing, whatever the number of pods:
// no entry, no record is touched.
type teller interface {
	SandboxChanges() cri.Changes[cri.Sandbox]
	ContainerChanges() cri.Changes[cri.Container]
}

// refused is why the kubelet's lists would fail where these were streamed.
func refused(rt teller) *cri.Error {
	if e := rt.SandboxChanges().Refused; e != nil {
		return e
	}
	return rt.ContainerChanges().Refused
}

// take takes over one pair of lists by what has changed, where that is known
// and leads to the very same records; entry by entry where not.
func (rs *records) take(sandboxes []*cri.Sandbox, containers []*cri.Container, rt teller) {
	s, c := rt.SandboxChanges(), rt.ContainerChanges()
	known := s.Before != 0 && c.Before != 0 && rs.lists == [2]uint64{s.Before, c.Before}
	rs.lists = [2]uint64{s.List, c.List}
	rs.begin()
	if !known || !rs.plain || !rs.simple(s, c) {
		rs.all(sandboxes, containers)
		return
	}
	rs.apply(s, c)
	if rs.count != len(sandboxes)+len(containers) { // a new sandbox and a new container of one id
		rs.all(sandboxes, containers)
		rs.plain = false
	}
}

// simple tells whether changes concern only the records of their own entries.
// Where they do not (a sandbox and a container of one id, an id that moves to
// another pod, entries that are passed over), what stands elsewhere in the
// lists matters too.
func (rs *records) simple(sandboxes cri.Changes[cri.Sandbox], containers cri.Changes[cri.Container]) bool {
	own := func(uid, id string, r *record) bool {
		p := rs.pods[uid]
		if p == nil {
			return r == nil
		}
		switch there := p.record(id); {
		case there == nil, there.cur == gone:
			return r == nil
		default:
			return r == there
		}
	}
	for _, s := range sandboxes.Removed {
		if r := at(rs.bySandbox, s.Slot); r == nil || r.fromSandbox != s {
			return false
		}
	}
	for _, c := range containers.Removed {
		if r := at(rs.byContainer, c.Slot); r == nil || r.fromContainer != c {
			return false
		}
	}
	for _, s := range sandboxes.Changed {
		if sandboxPassedOver(s) || s.Slot < 0 || !own(s.PodUID, s.ID, at(rs.bySandbox, s.Slot)) {
			return false
		}
	}
	for _, c := range containers.Changed {
		if containerPassedOver(c) || c.Slot < 0 || !own(c.PodUID, c.ID, at(rs.byContainer, c.Slot)) {
			return false
		}
	}
	return true
}

// apply takes over simple changes: all would do the same with the entries that
// it finds changed, in the same order, and nothing with the others.
func (rs *records) apply(sandboxes cri.Changes[cri.Sandbox], containers cri.Changes[cri.Container]) {
	for _, s := range sandboxes.Changed {
		rs.change(sandboxEntry(s)).seen = rs.gen
	}
	for _, c := range containers.Changed {
		if r := at(rs.byContainer, c.Slot); r != nil {
			rs.containers[r.fromContainer.State]--
		}
		rs.containers[c.State]++
		rs.change(containerEntry(c)).seen = rs.gen
	}
	for _, s := range sandboxes.Removed {
		rs.drop(rs.bySandbox[s.Slot])
	}
	for _, c := range containers.Removed {
		rs.containers[c.State]--
		rs.drop(rs.byContainer[c.Slot])
	}
	for _, p := range rs.touched {
		if p.ranBefore {
			rs.runningPods--
		}
		if p.runs() {
			rs.runningPods++
		}
	}
}
