package relist

import (
	"cmp"
	"slices"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

// gone is the state of an id that is not listed.
const gone = cri.State(cri.NumStates)

// stateOf returns a state as the generic PLEG compares it (kubelet convertState).
func stateOf(e *cri.Entry) cri.State {
	if e.State == cri.StateCreated {
		return cri.StateUnknown
	}
	return e.State
}

// eventsFor returns the events of a change of state (kubelet generateEvents).
func eventsFor(previous, current cri.State) []EventType {
	switch {
	case previous == current:
		return nil
	case current == cri.StateRunning:
		return []EventType{ContainerStarted}
	case current == cri.StateExited:
		return []EventType{ContainerDied}
	case current == cri.StateUnknown:
		return []EventType{ContainerChanged}
	case previous == cri.StateExited:
		return []EventType{ContainerRemoved}
	default:
		return []EventType{ContainerDied, ContainerRemoved}
	}
}

// indexFrom is the number of items of one pod from which they are found by an index. A usual
// pod has fewer; a pod that restarts for weeks, or a hostile list, has thousands.
const indexFrom = 16

// pod is a pod in one pair of lists: containers before sandboxes, each id once.
// It is immutable once it is listed.
type pod struct {
	uid, name, namespace string
	createdAt            int64 // of its newest sandbox, 0 without one
	items                []*cri.Entry
	index                map[string]*cri.Entry // the items by id, nil for a pod of few
}

// add adds an item, unless one with its id is there: the first of two with one id counts
// (kubelet getContainerState).
func (p *pod) add(e *cri.Entry) {
	if p.item(e.ID) != nil {
		return
	}
	p.items = append(p.items, e)
	switch {
	case p.index != nil:
		p.index[e.ID] = e
	case len(p.items) >= indexFrom:
		p.index = make(map[string]*cri.Entry, 2*indexFrom)
		for _, item := range p.items {
			p.index[item.ID] = item
		}
	}
}

// item returns the item with an id, nil if there is none.
func (p *pod) item(id string) *cri.Entry {
	if p == nil {
		return nil
	}
	if p.index != nil {
		return p.index[id]
	}
	for _, e := range p.items {
		if e.ID == id {
			return e
		}
	}
	return nil
}

// all returns the items, none of a pod that is nil.
func (p *pod) all() []*cri.Entry {
	if p == nil {
		return nil
	}
	return p.items
}

// state returns the state of an item, gone if there is none with that id.
func (p *pod) state(id string) cri.State {
	e := p.item(id)
	if e == nil {
		return gone
	}
	return stateOf(e)
}

// lists is one pair of lists by pod, with its counts. It is immutable.
type lists struct {
	sandboxes, containers []*cri.Entry
	pods                  map[string]*pod
	counts                *facts.Pods
}

// madeOf reports whether l was made of these lists: an unchanged list is the last slice.
func (l *lists) madeOf(sandboxes, containers []*cri.Entry) bool {
	return l != nil && sameSlice(l.sandboxes, sandboxes) && sameSlice(l.containers, containers)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// group groups a pair of lists by pod, without the entries that the kubelet ignores.
func group(sandboxes, containers []*cri.Entry) *lists {
	l := &lists{sandboxes: sandboxes, containers: containers, pods: map[string]*pod{}}
	ready := map[string]bool{}
	states := map[string]int{}
	for state := range cri.State(cri.NumStates) {
		states[state.String()] = 0
	}
	for _, e := range slices.Concat(containers, sandboxes) {
		if e.Ignored {
			continue
		}
		p := l.pods[e.PodUID]
		if p == nil {
			p = &pod{uid: e.PodUID, name: e.PodName, namespace: e.PodNamespace}
			l.pods[e.PodUID] = p
		}
		p.add(e)
		if !e.Sandbox {
			states[e.State.String()]++
			continue
		}
		p.createdAt = max(p.createdAt, e.CreatedAt)
		if e.State == cri.StateRunning {
			ready[e.PodUID] = true
		}
	}
	l.counts = &facts.Pods{Running: len(ready), Containers: states}
	return l
}

// record is a pod: old is the state that events were last delivered for, cur the
// state in the last lists (either may be nil), who the last state listed.
type record struct {
	old, cur, who *pod
	reinspect     bool
	failures      int    // in a row, while the item that failed is listed
	failed        string // its id, "" for none
}

// events returns the changes in the kubelet's order: of the old items, and then of the
// new ones (kubelet getContainersFromPods).
func (r *record) events() (events []Event) {
	for _, e := range r.old.all() {
		for _, t := range eventsFor(stateOf(e), r.cur.state(e.ID)) {
			events = append(events, Event{t, e})
		}
	}
	for _, e := range r.cur.all() {
		if r.old.item(e.ID) != nil {
			continue // among the old ones
		}
		for _, t := range eventsFor(gone, stateOf(e)) {
			events = append(events, Event{t, e})
		}
	}
	return events
}

// work is a pod to settle in this relist, with its events.
type work struct {
	*record
	events []Event
}

// starts reports whether a sandbox or container of the pod has started.
func (w *work) starts() bool {
	return slices.ContainsFunc(w.events, func(e Event) bool { return e.Type == ContainerStarted })
}

// update sets the records to new lists. It returns the pods with events and those
// that wait for reinspection, newest first.
func update(records map[string]*record, listed *lists) (todo []work) {
	for uid := range listed.pods {
		if records[uid] == nil {
			records[uid] = &record{}
		}
	}
	for uid := range records {
		if w, ok := updatePod(records, uid, listed.pods[uid]); ok {
			todo = append(todo, w)
		}
	}
	slices.SortFunc(todo, func(a, b work) int {
		return cmp.Or(cmp.Compare(b.who.createdAt, a.who.createdAt), cmp.Compare(a.who.uid, b.who.uid))
	})
	return todo
}

// updatePod sets the record of one pod; listed is nil if it is gone. ok reports
// whether the pod has events or waits for reinspection.
func updatePod(records map[string]*record, uid string, listed *pod) (w work, ok bool) {
	r := records[uid]
	if r == nil {
		r = &record{}
		records[uid] = r
	}
	r.cur = listed
	r.who = cmp.Or(listed, r.who)
	events := r.events()
	if len(events) > 0 || r.reinspect {
		return work{r, events}, true
	}
	r.old = r.cur
	if r.cur == nil {
		delete(records, uid)
	}
	return work{}, false
}
