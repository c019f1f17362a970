package relist

import (
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/cri"
)

// plegState is a container's state as the generic PLEG compares it.
type plegState uint8

const (
	gone plegState = iota
	running
	exited
	unknown // created counts as unknown, as in the kubelet (convertState)
)

func containerState(s cri.State) plegState {
	switch s {
	case cri.StateRunning:
		return running
	case cri.StateExited:
		return exited
	default:
		return unknown
	}
}

func sandboxState(ready bool) plegState {
	if ready {
		return running
	}
	return exited
}

// eventsFor is the kubelet's table (generateEvents): what a change from one
// state to another is called.
func eventsFor(from, to plegState) []EventType {
	switch {
	case from == to:
		return nil
	case to == running:
		return []EventType{ContainerStarted}
	case to == exited:
		return []EventType{ContainerDied}
	case to == unknown:
		return []EventType{ContainerChanged}
	case from == exited:
		return []EventType{ContainerRemoved}
	default:
		return []EventType{ContainerDied, ContainerRemoved}
	}
}

// record is one sandbox or container of a pod.
type record struct {
	pod     *podRecord
	id      string
	name    string
	sandbox bool
	// old is the state that events were last delivered for, cur the state in
	// the last list.
	old, cur plegState
	// source is the list entry that cur came from: a *cri.Sandbox or a
	// *cri.Container.
	source any
	// seen is the relist that last listed it.
	seen uint64
}

// podRecord is one pod, with everything of it that was in the last list or has
// yet to be reported.
type podRecord struct {
	uid, name, namespace string
	createdAt            int64
	records              []*record
	touched              uint64 // the relist that last found something to compare
	running              uint64 // the relist that last listed a running sandbox
	reinspect            bool
	failures             int
}

// present tells whether the last list held anything of the pod.
func (p *podRecord) present() bool {
	return slices.ContainsFunc(p.records, func(r *record) bool { return r.cur != gone })
}

// changes returns the pod's events, containers before sandboxes.
func (p *podRecord) changes() []Event {
	var events []Event
	for _, sandbox := range []bool{false, true} {
		for _, r := range p.records {
			if r.sandbox != sandbox {
				continue
			}
			for _, t := range eventsFor(r.old, r.cur) {
				events = append(events, Event{
					Type: t, PodUID: p.uid, PodName: p.name, PodNamespace: p.namespace,
					ID: r.id, Sandbox: r.sandbox, Name: r.name,
				})
			}
		}
	}
	return events
}

// records holds what the last lists said, compared in place: a list entry that
// is the very value it was last time costs one look-up, and nothing is rebuilt.
// It belongs to the loop's goroutine.
type records struct {
	gen     uint64
	pods    map[string]*podRecord
	sources map[any]*record // by list entry, for entries that did not change
	count   int             // records with cur != gone
	touched []*podRecord

	runningPods int
	containers  [cri.NumStates]int
}

func newRecords() *records {
	return &records{pods: map[string]*podRecord{}, sources: map[any]*record{}}
}

// update takes over one pair of lists.
func (rs *records) update(sandboxes []*cri.Sandbox, containers []*cri.Container) {
	rs.gen++
	rs.touched = rs.touched[:0]
	rs.runningPods = 0
	rs.containers = [cri.NumStates]int{}
	seen := 0

	for _, s := range sandboxes {
		if !s.HasMetadata || s.ID == "" {
			continue // the kubelet passes over these too
		}
		r := rs.sources[s]
		if r == nil || r.source != any(s) {
			r = rs.change(s, s.PodUID, s.Name, s.Namespace, s.CreatedAt, s.ID, "", true, sandboxState(s.Ready))
		}
		if r.seen != rs.gen {
			r.seen = rs.gen
			seen++
		}
		if s.Ready && r.pod.running != rs.gen {
			r.pod.running = rs.gen
			rs.runningPods++
		}
	}
	for _, c := range containers {
		if !c.HasMetadata || c.ID == "" || !c.HasImage {
			continue
		}
		rs.containers[c.State]++
		r := rs.sources[c]
		if r == nil || r.source != any(c) {
			r = rs.change(c, c.PodUID, c.PodName, c.PodNamespace, c.CreatedAt, c.ID, c.Name, false, containerState(c.State))
		}
		if r.seen != rs.gen {
			r.seen = rs.gen
			seen++
		}
	}
	if seen < rs.count {
		rs.dropUnseen()
	}
}

// change takes over a list entry that was not in the last list in this form.
func (rs *records) change(source any, uid, podName, namespace string, createdAt int64, id, name string, sandbox bool, state plegState) *record {
	p := rs.pods[uid]
	if p == nil {
		p = &podRecord{uid: uid, name: podName, namespace: namespace, createdAt: createdAt}
		rs.pods[uid] = p
	}
	if p.name == "" {
		p.name, p.namespace = podName, namespace
	}
	if sandbox && createdAt > p.createdAt {
		p.createdAt = createdAt
	}
	var r *record
	if i := slices.IndexFunc(p.records, func(r *record) bool { return r.id == id }); i >= 0 {
		r = p.records[i]
	} else {
		r = &record{pod: p, id: id}
		p.records = append(p.records, r)
	}
	rs.touch(p)
	// Of two entries with one id the first counts, but a container before a
	// sandbox (kubelet getContainerState).
	if r.seen == rs.gen && r.sandbox == sandbox {
		return r
	}
	if r.cur == gone {
		rs.count++
	}
	delete(rs.sources, r.source)
	r.name, r.sandbox, r.cur, r.source = name, sandbox, state, source
	rs.sources[source] = r
	return r
}

func (rs *records) touch(p *podRecord) {
	if p.touched != rs.gen {
		p.touched = rs.gen
		rs.touched = append(rs.touched, p)
	}
}

// dropUnseen marks what the last list no longer held.
func (rs *records) dropUnseen() {
	for _, p := range rs.pods {
		for _, r := range p.records {
			if r.seen != rs.gen && r.cur != gone {
				r.cur = gone
				rs.count--
				delete(rs.sources, r.source)
				r.source = nil
				rs.touch(p)
			}
		}
	}
}

// work is a pod that needs attention in this relist, with its events.
type work struct {
	pod    *podRecord
	events []Event
}

// pending returns the pods with events and those that wait for reinspection,
// newest first.
func (rs *records) pending(reinspect map[string]*podRecord) []work {
	for _, p := range reinspect {
		rs.touch(p)
	}
	if len(rs.touched) == 0 {
		return nil
	}
	slices.SortFunc(rs.touched, func(a, b *podRecord) int {
		if a.createdAt != b.createdAt {
			if a.createdAt > b.createdAt {
				return -1
			}
			return 1
		}
		return strings.Compare(a.uid, b.uid)
	})
	var out []work
	for _, p := range rs.touched {
		if events := p.changes(); len(events) > 0 || p.reinspect {
			out = append(out, work{pod: p, events: events})
		}
	}
	return out
}

// advance makes the pod's present state the one that the next changes are
// measured from, and forgets what is gone.
func (rs *records) advance(p *podRecord) {
	p.records = slices.DeleteFunc(p.records, func(r *record) bool {
		r.old = r.cur
		return r.cur == gone
	})
	if len(p.records) == 0 {
		delete(rs.pods, p.uid)
	}
}
