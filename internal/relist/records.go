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
func eventsFor(from, to cri.State) []EventType {
	switch {
	case from == to:
		return nil
	case to == cri.StateRunning:
		return []EventType{ContainerStarted}
	case to == cri.StateExited:
		return []EventType{ContainerDied}
	case to == cri.StateUnknown:
		return []EventType{ContainerChanged}
	case from == cri.StateExited:
		return []EventType{ContainerRemoved}
	default:
		return []EventType{ContainerDied, ContainerRemoved}
	}
}

// pod is a pod in one pair of lists: containers before sandboxes, each id once.
// It is immutable once it is listed.
type pod struct {
	uid, name, namespace string
	createdAt            int64 // of its newest sandbox, 0 without one
	items                []*cri.Entry
}

// all returns the items, none of a pod that is nil.
func (p *pod) all() []*cri.Entry {
	if p == nil {
		return nil
	}
	return p.items
}

func (p *pod) state(id string) cri.State {
	for _, e := range p.all() {
		if e.ID == id {
			return stateOf(e)
		}
	}
	return gone
}

// lists is one pair of lists by pod, with its counts. It is immutable.
type lists struct {
	sandboxes, containers []*cri.Entry
	pods                  map[string]*pod
	counts                *facts.Pods
}

// of reports whether l was made of these lists: an unchanged list is the last slice.
func (l *lists) of(sandboxes, containers []*cri.Entry) bool {
	return l != nil && sameSlice(l.sandboxes, sandboxes) && sameSlice(l.containers, containers)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// group groups a pair of lists by pod, without the entries that the kubelet ignores.
func group(sandboxes, containers []*cri.Entry) *lists {
	l := &lists{sandboxes: sandboxes, containers: containers, pods: map[string]*pod{}}
	ready, states := map[string]bool{}, map[string]int{}
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
		if !e.Sandbox {
			states[e.State.String()]++
		} else if p.createdAt = max(p.createdAt, e.CreatedAt); e.State == cri.StateRunning {
			ready[e.PodUID] = true
		}
		if p.state(e.ID) == gone { // the first of two with one id counts (kubelet getContainerState)
			p.items = append(p.items, e)
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
	failures      int
}

// events returns the changes in the kubelet's order: of the old items, and then of the
// new ones (kubelet getContainersFromPods).
func (r *record) events() (events []Event) {
	for i, items := range [][]*cri.Entry{r.old.all(), r.cur.all()} {
		for _, e := range items {
			was := r.old.state(e.ID)
			if i == 1 && was != gone {
				continue // among the old ones
			}
			for _, t := range eventsFor(was, r.cur.state(e.ID)) {
				events = append(events, Event{t, e})
			}
		}
	}
	return events
}

// work is a pod to settle in this relist, with its events.
type work struct {
	*record
	events []Event
}

// update sets the records to new lists. It returns the pods with events and those
// that wait for reinspection, newest first.
func update(records map[string]*record, now *lists) (todo []work) {
	for uid := range now.pods {
		if records[uid] == nil {
			records[uid] = &record{}
		}
	}
	for uid := range records {
		if w, ok := updatePod(records, uid, now.pods[uid]); ok {
			todo = append(todo, w)
		}
	}
	slices.SortFunc(todo, func(a, b work) int {
		return cmp.Or(cmp.Compare(b.who.createdAt, a.who.createdAt), cmp.Compare(a.who.uid, b.who.uid))
	})
	return todo
}

// updatePod sets the record of one pod; now is nil if it is gone. ok reports
// whether the pod has events or waits for reinspection.
func updatePod(records map[string]*record, uid string, now *pod) (w work, ok bool) {
	r := records[uid]
	if r == nil {
		r = &record{}
		records[uid] = r
	}
	r.cur = now
	r.who = cmp.Or(now, r.who)
	events := r.events()
	if len(events) > 0 || r.reinspect {
		return work{r, events}, true
	}
	if r.old = r.cur; r.cur == nil {
		delete(records, uid)
	}
	return work{}, false
}
