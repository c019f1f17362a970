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
	// event is true while old comes from an event, not from the lists.
	event bool
	// old is the state that events were last delivered for, cur the state in
	// the last list.
	old, cur plegState
	// fromSandbox or fromContainer is the list entry that cur came from.
	fromSandbox   *cri.Sandbox
	fromContainer *cri.Container
	// seen is the relist that last listed it.
	seen uint64
	// told is the relist during which an event told of it: that relist's lists
	// may be from before or after it, and are not compared with it.
	told uint64
}

// podRecord is one pod, with everything of it that was in the last list or has
// yet to be reported.
type podRecord struct {
	uid, name, namespace string
	createdAt            int64
	records              []*record
	touched              uint64 // the relist that last found something to compare
	running              uint64 // the relist that last listed a running sandbox
	failures             int
	ranBefore            bool // before the relist of touched it had a running sandbox
	reinspect            bool
	ahead                bool // events have told of it since the last relist
}

// present reports whether the last list held anything of the pod.
func (p *podRecord) present() bool {
	return slices.ContainsFunc(p.records, func(r *record) bool { return r.cur != gone })
}

// runs reports whether the last list held a running sandbox of the pod.
func (p *podRecord) runs() bool {
	return slices.ContainsFunc(p.records, func(r *record) bool { return r.sandbox && r.cur == running })
}

// record returns the record of an id, nil when there is none.
func (p *podRecord) record(id string) *record {
	if i := slices.IndexFunc(p.records, func(r *record) bool { return r.id == id }); i >= 0 {
		return p.records[i]
	}
	return nil
}

// changes returns the pod's events, containers before sandboxes.
func (p *podRecord) changes(gen uint64) []Event {
	var events []Event
	for _, sandbox := range []bool{false, true} {
		for _, r := range p.records {
			if r.sandbox != sandbox || r.told == gen {
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
	gen  uint64
	pods map[string]*podRecord
	// bySandbox and byContainer hold the record of each entry of the last lists.
	bySandbox   map[*cri.Sandbox]*record
	byContainer map[*cri.Container]*record
	count       int // records with cur != gone
	touched     []*podRecord
	ahead       []*podRecord // those whose ahead is true

	runningPods int
	containers  [cri.NumStates]int

	// plain is true while every entry of the last lists has a record of its
	// own. lists identifies those lists.
	plain bool
	lists [2]*cri.ListID
}

func newRecords() *records {
	return &records{
		pods:      map[string]*podRecord{},
		bySandbox: map[*cri.Sandbox]*record{}, byContainer: map[*cri.Container]*record{},
	}
}

// update takes over one pair of lists.
func (rs *records) update(sandboxes []*cri.Sandbox, containers []*cri.Container) {
	rs.begin()
	rs.all(sandboxes, containers)
}

func (rs *records) begin() {
	rs.gen++
	clear(rs.touched)
	rs.touched = rs.touched[:0]
}

// all takes over a pair of lists entry by entry.
func (rs *records) all(sandboxes []*cri.Sandbox, containers []*cri.Container) {
	rs.runningPods = 0
	rs.containers = [cri.NumStates]int{}
	seen := 0

	for _, s := range sandboxes {
		if sandboxPassedOver(s) {
			continue
		}
		r := rs.bySandbox[s]
		if r == nil {
			r = rs.change(sandboxEntry(s))
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
		if containerPassedOver(c) {
			continue
		}
		rs.containers[c.State]++
		r := rs.byContainer[c]
		if r == nil {
			r = rs.change(containerEntry(c))
		}
		if r.seen != rs.gen {
			r.seen = rs.gen
			seen++
		}
	}
	if seen < rs.count {
		rs.dropUnseen()
	}
	rs.plain = seen == len(sandboxes)+len(containers)
}

// entry is a list entry that was not in the last list in this form: a sandbox
// or a container.
type entry struct {
	sandbox                 *cri.Sandbox
	container               *cri.Container
	uid, podName, namespace string
	createdAt               int64
	id, name                string
	state                   plegState
}

func sandboxEntry(s *cri.Sandbox) entry {
	return entry{sandbox: s, uid: s.PodUID, podName: s.Name, namespace: s.Namespace, createdAt: s.CreatedAt, id: s.ID, state: sandboxState(s.Ready)}
}

func containerEntry(c *cri.Container) entry {
	return entry{container: c, uid: c.PodUID, podName: c.PodName, namespace: c.PodNamespace, createdAt: c.CreatedAt, id: c.ID, name: c.Name, state: containerState(c.State)}
}

// The kubelet passes over entries without metadata or image too.
func sandboxPassedOver(s *cri.Sandbox) bool { return !s.HasMetadata || s.ID == "" }

func containerPassedOver(c *cri.Container) bool { return !c.HasMetadata || c.ID == "" || !c.HasImage }

// podOf returns the pod of an entry, made where it is not known.
func (rs *records) podOf(e entry) *podRecord {
	p := rs.pods[e.uid]
	if p == nil {
		p = &podRecord{uid: e.uid, name: e.podName, namespace: e.namespace, createdAt: e.createdAt}
		rs.pods[e.uid] = p
	}
	return p
}

// recordOf returns the record of an id, made with this name and kind where there
// is none.
func (p *podRecord) recordOf(id, name string, sandbox bool) *record {
	r := p.record(id)
	if r == nil {
		r = &record{pod: p, id: id, name: name, sandbox: sandbox}
		p.records = append(p.records, r)
	}
	return r
}

// change takes over such an entry.
func (rs *records) change(e entry) *record {
	sandbox := e.sandbox != nil
	p := rs.podOf(e)
	if p.name == "" {
		p.name, p.namespace = e.podName, e.namespace
	}
	if sandbox && e.createdAt > p.createdAt {
		p.createdAt = e.createdAt
	}
	rs.touch(p)
	r := p.recordOf(e.id, e.name, sandbox)
	// Of two entries with one id the first counts, but a container before a
	// sandbox (kubelet getContainerState).
	if r.seen == rs.gen && r.sandbox == sandbox {
		return r
	}
	if r.cur == gone {
		rs.count++
	}
	rs.release(r)
	r.name, r.sandbox, r.cur = e.name, sandbox, e.state
	r.fromSandbox, r.fromContainer = e.sandbox, e.container
	if sandbox {
		rs.bySandbox[e.sandbox] = r
	} else {
		rs.byContainer[e.container] = r
	}
	return r
}

// release takes a record's list entry away from it.
func (rs *records) release(r *record) {
	delete(rs.bySandbox, r.fromSandbox)
	delete(rs.byContainer, r.fromContainer)
	r.fromSandbox, r.fromContainer = nil, nil
}

func (rs *records) touch(p *podRecord) {
	if p.touched != rs.gen {
		p.touched, p.ranBefore = rs.gen, p.runs()
		rs.touched = append(rs.touched, p)
	}
}

// dropUnseen marks what the last list no longer held.
func (rs *records) dropUnseen() {
	for _, p := range rs.pods {
		for _, r := range p.records {
			if r.seen != rs.gen && r.cur != gone {
				rs.drop(r)
			}
		}
	}
}

// drop marks what is listed no longer.
func (rs *records) drop(r *record) {
	rs.touch(r.pod)
	r.cur = gone
	rs.count--
	rs.release(r)
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
	rs.catchUp()
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
		if events := p.changes(rs.gen); len(events) > 0 || p.reinspect {
			out = append(out, work{pod: p, events: events})
		} else {
			rs.advance(p)
		}
	}
	return out
}

// advance makes the pod's present state the one that the next changes are
// measured from, and forgets what is gone.
func (rs *records) advance(p *podRecord) {
	p.records = slices.DeleteFunc(p.records, func(r *record) bool {
		if r.told == rs.gen { // what was told is newer, and is compared with the next lists
			return false
		}
		r.old, r.event = r.cur, false
		return r.cur == gone
	})
	if len(p.records) == 0 {
		delete(rs.pods, p.uid)
	}
}
