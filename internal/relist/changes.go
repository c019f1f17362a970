package relist

import "github.com/plegd/plegd/internal/cri"

// changeReporter is a Runtime that tells what its last lists changed. A second in which
// nothing changed then costs the records nothing, whatever the number of pods:
// no entry, no record is touched.
type changeReporter interface {
	SandboxChanges() cri.Changes[cri.Sandbox]
	ContainerChanges() cri.Changes[cri.Container]
}

// refused is why the kubelet's lists would fail where these were streamed.
func refused(rt changeReporter) *cri.Error {
	if e := rt.SandboxChanges().Refused; e != nil {
		return e
	}
	return rt.ContainerChanges().Refused
}

// take takes over one pair of lists by what has changed, where that is known
// and leads to the very same records; entry by entry where not.
func (rs *records) take(sandboxes []*cri.Sandbox, containers []*cri.Container, rt changeReporter) {
	s, c := rt.SandboxChanges(), rt.ContainerChanges()
	known := s.Before != nil && c.Before != nil && rs.lists == [2]*cri.ListID{s.Before, c.Before}
	rs.lists = [2]*cri.ListID{s.List, c.List}
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

// simple reports whether changes concern only the records of their own entries.
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
	for _, ch := range sandboxes.Items {
		r := rs.bySandbox[ch.Old]
		if ch.Old != nil && r == nil {
			return false
		}
		if s := ch.New; s != nil && (sandboxPassedOver(s) || !own(s.PodUID, s.ID, r)) {
			return false
		}
	}
	for _, ch := range containers.Items {
		r := rs.byContainer[ch.Old]
		if ch.Old != nil && r == nil {
			return false
		}
		if c := ch.New; c != nil && (containerPassedOver(c) || !own(c.PodUID, c.ID, r)) {
			return false
		}
	}
	return true
}

// apply takes over simple changes: all would do the same with the entries that
// it finds changed, in the same order, and nothing with the others.
func (rs *records) apply(sandboxes cri.Changes[cri.Sandbox], containers cri.Changes[cri.Container]) {
	for _, ch := range sandboxes.Items {
		if ch.New != nil {
			rs.change(sandboxEntry(ch.New)).seen = rs.gen
		}
	}
	for _, ch := range containers.Items {
		if ch.Old != nil {
			rs.containers[ch.Old.State]--
		}
		if ch.New != nil {
			rs.containers[ch.New.State]++
			rs.change(containerEntry(ch.New)).seen = rs.gen
		}
	}
	for _, ch := range sandboxes.Items {
		if ch.New == nil {
			rs.drop(rs.bySandbox[ch.Old])
		}
	}
	for _, ch := range containers.Items {
		if ch.New == nil {
			rs.drop(rs.byContainer[ch.Old])
		}
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
