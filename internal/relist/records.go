package relist

import (
	"cmp"
	"slices"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
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

// eventsFor returns the events of a change of state (kubelet generateEvents).
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

// item is a sandbox or a container of a pod.
type item struct {
	id, name string
	sandbox  bool
	state    plegState
}

// pod is a pod in one pair of lists: containers before sandboxes, each id once.
// It is immutable once it is listed.
type pod struct {
	uid, name, namespace string
	createdAt            int64
	items                []item
}

// all returns the items, none of a pod that is nil.
func (p *pod) all() []item {
	if p == nil {
		return nil
	}
	return p.items
}

func (p *pod) state(id string) plegState {
	for _, it := range p.all() {
		if it.id == id {
			return it.state
		}
	}
	return gone
}

// add adds an item. The first of two with one id counts (kubelet getContainerState).
func (p *pod) add(it item) {
	if p.state(it.id) == gone {
		p.items = append(p.items, it)
	}
}

// lists is one pair of lists by pod, with its counts. It is immutable.
type lists struct {
	sandboxes  []*cri.Sandbox
	containers []*cri.Container
	pods       map[string]*pod
	counts     *health.Pods
}

// of reports whether l was made of these lists: an unchanged list is the last slice.
func (l *lists) of(sandboxes []*cri.Sandbox, containers []*cri.Container) bool {
	return l != nil && sameSlice(l.sandboxes, sandboxes) && sameSlice(l.containers, containers)
}

func sameSlice[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// group groups a pair of lists by pod. It skips entries without metadata or image,
// as the kubelet does.
func group(sandboxes []*cri.Sandbox, containers []*cri.Container) *lists {
	l := &lists{sandboxes: sandboxes, containers: containers, pods: map[string]*pod{}}
	of := func(uid, name, namespace string, createdAt int64) *pod {
		if l.pods[uid] == nil {
			l.pods[uid] = &pod{uid: uid, name: name, namespace: namespace, createdAt: createdAt}
		}
		return l.pods[uid]
	}
	listed := func(s *cri.Sandbox) bool { return s.HasMetadata && s.ID != "" }
	ready, states := map[string]bool{}, map[string]int{}
	for state := range cri.State(cri.NumStates) {
		states[state.String()] = 0
	}
	for _, s := range sandboxes {
		if listed(s) {
			p := of(s.PodUID, s.Name, s.Namespace, s.CreatedAt)
			p.createdAt = max(p.createdAt, s.CreatedAt)
			if s.Ready {
				ready[s.PodUID] = true
			}
		}
	}
	for _, c := range containers {
		if c.HasMetadata && c.ID != "" && c.HasImage {
			states[c.State.String()]++
			p := of(c.PodUID, c.PodName, c.PodNamespace, c.CreatedAt)
			p.add(item{c.ID, c.Name, false, containerState(c.State)})
		}
	}
	for _, s := range sandboxes {
		if listed(s) {
			state := exited
			if s.Ready {
				state = running
			}
			l.pods[s.PodUID].add(item{s.ID, "", true, state})
		}
	}
	l.counts = &health.Pods{Running: len(ready), Containers: states}
	return l
}

// record is a pod: old is the state that events were last delivered for, cur the
// state in the last lists (either may be nil), who the last state listed.
type record struct {
	old, cur, who *pod
	reinspect     bool
	failures      int
}

// events returns the changes, containers before sandboxes.
func (r *record) events() (events []Event) {
	p := r.who
	for _, sandboxes := range []bool{false, true} {
		for i, list := range [][]item{r.old.all(), r.cur.all()} {
			for _, it := range list {
				if it.sandbox != sandboxes || i == 1 && r.old.state(it.id) != gone {
					continue // of the old state already
				}
				for _, t := range eventsFor(r.old.state(it.id), r.cur.state(it.id)) {
					events = append(events, Event{
						Type: t, PodUID: p.uid, PodName: p.name, PodNamespace: p.namespace,
						ID: it.id, Sandbox: it.sandbox, Name: it.name,
					})
				}
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
	if r.old != nil && now != nil && now.name == "" {
		now.name, now.namespace = r.old.name, r.old.namespace
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
