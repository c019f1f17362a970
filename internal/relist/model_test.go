package relist

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/leaktest"
)

// model is the kubelet's generic PLEG once more, slow and obvious: every relist
// copies all pods, rebuilds every map, and compares the old copy of each pod
// with the new one. Where the kubelet walks a map, so does this.
//
// One thing it does not copy: the kubelet makes a pod even of an entry that it
// then cannot use (without an id or an image), and remembers that empty pod for
// ever. Here as in plegd such an entry is nothing.
type model struct {
	records   map[string]*modelRecord
	reinspect map[string]bool
}

type modelRecord struct{ old, current *modelPod }

type modelPod struct{ containers, sandboxes []modelItem }

type modelItem struct {
	id    string
	state string // running, exited or unknown
}

// modelRelist is what a relist has to come to.
type modelRelist struct {
	events      map[string][]modelEvent // by pod
	inspected   map[string][]ask        // by pod
	runningPods int
	containers  map[string]int
}

type modelEvent struct {
	typ EventType
	id  string
}

func newModel() *model {
	return &model{records: map[string]*modelRecord{}, reinspect: map[string]bool{}}
}

func (m *model) relist(sandboxes []*cri.Entry, containers []*cri.Entry, fails map[ask]error) modelRelist {
	out := modelRelist{events: map[string][]modelEvent{}, inspected: map[string][]ask{}, containers: map[string]int{"created": 0, "running": 0, "exited": 0, "unknown": 0}}

	pods := map[string]*modelPod{}
	pod := func(uid string) *modelPod {
		if pods[uid] == nil {
			pods[uid] = &modelPod{}
		}
		return pods[uid]
	}
	ready := map[string]bool{}
	for _, s := range sandboxes {
		if s.Ignored {
			continue
		}
		state := "exited"
		if s.State == cri.StateRunning {
			state = "running"
			ready[s.PodUID] = true
		}
		p := pod(s.PodUID)
		p.sandboxes = append(p.sandboxes, modelItem{s.ID, state})
	}
	out.runningPods = len(ready)
	for _, c := range containers {
		if c.Ignored {
			continue
		}
		out.containers[c.State.String()]++
		state := map[cri.State]string{cri.StateRunning: "running", cri.StateExited: "exited"}[c.State]
		if state == "" {
			state = "unknown"
		}
		p := pod(c.PodUID)
		p.containers = append(p.containers, modelItem{c.ID, state})
	}

	for _, r := range m.records {
		r.current = nil
	}
	for uid, p := range pods {
		if m.records[uid] == nil {
			m.records[uid] = &modelRecord{}
		}
		m.records[uid].current = p
	}

	needs := map[string]bool{}
	for _, uid := range slices.Collect(maps.Keys(m.records)) {
		r := m.records[uid]
		var events []modelEvent
		for _, id := range r.ids() {
			for _, typ := range modelEvents(r.old.state(id), r.current.state(id)) {
				events = append(events, modelEvent{typ, id})
			}
		}
		if len(events) == 0 && !m.reinspect[uid] {
			continue
		}
		if r.current == nil {
			delete(m.records, uid)
		} else {
			out.inspected[uid] = r.current.asks()
			failed := slices.ContainsFunc(out.inspected[uid], func(a ask) bool { return isFailure(fails[a]) })
			if failed {
				needs[uid] = true
				continue
			}
			r.old = r.current
		}
		if len(events) == 0 {
			events = []modelEvent{{PodSync, ""}}
		}
		out.events[uid] = events
	}
	m.reinspect = needs
	return out
}

// isFailure: a pod that was removed between list and inspection is no failure.
func isFailure(err error) bool { return err != nil && cri.AsError(err).Code != cri.CodeNotFound }

// ids are those of the old and the current pod, containers first.
func (r *modelRecord) ids() []string {
	var ids []string
	for _, p := range []*modelPod{r.old, r.current} {
		if p == nil {
			continue
		}
		for _, it := range slices.Concat(p.containers, p.sandboxes) {
			if !slices.Contains(ids, it.id) {
				ids = append(ids, it.id)
			}
		}
	}
	return ids
}

// state is that of the first container with the id, else of the first sandbox.
func (p *modelPod) state(id string) string {
	if p == nil {
		return "non-existent"
	}
	for _, it := range slices.Concat(p.containers, p.sandboxes) {
		if it.id == id {
			return it.state
		}
	}
	return "non-existent"
}

// requests are the calls of the pod's inspection: one for each id.
func (p *modelPod) asks() []ask {
	var out []ask
	for _, it := range p.containers {
		if a := (ask{cri.OpContainerStatus, it.id}); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	for _, it := range p.sandboxes {
		if a := (ask{cri.OpPodSandboxStatus, it.id}); !slices.Contains(out, a) && !slices.Contains(out, ask{cri.OpContainerStatus, it.id}) {
			out = append(out, a)
		}
	}
	return out
}

// modelEvents is the table of events.
func modelEvents(from, to string) []EventType {
	if from == to {
		return nil
	}
	switch to {
	case "running":
		return []EventType{ContainerStarted}
	case "exited":
		return []EventType{ContainerDied}
	case "unknown":
		return []EventType{ContainerChanged}
	}
	if from == "exited" {
		return []EventType{ContainerRemoved}
	}
	return []EventType{ContainerDied, ContainerRemoved}
}

func TestMain(m *testing.M) { leaktest.Check(m) }

func run(t *testing.T, l *Loop) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = l.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
}

// ask is one call of an inspection.
type ask struct {
	op string
	id string
}

// script is a Runtime with scripted answers.
type script struct {
	mu         sync.Mutex
	sandboxes  []*cri.Entry
	containers []*cri.Entry

	lastSandboxes  []*cri.Entry
	lastContainers []*cri.Entry
	listErr        map[string]error // by operation
	fails          map[ask]error    // of inspections

	asked []ask
	looks []string // pods that were listed alone
	hangs bool     // the lists of one pod are not answered
}

func newScript() *script {
	return &script{listErr: map[string]error{}, fails: map[ask]error{}}
}

// set changes the script while calls are in flight.
func (s *script) set(change func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// unchanged returns the last list if the list has not changed since, as package cri.
func unchanged[T comparable](last *[]T, list []T) []T {
	if !slices.Equal(*last, list) {
		*last = slices.Clone(list)
	}
	return *last
}

func (s *script) ListPodSandbox(context.Context) ([]*cri.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return unchanged(&s.lastSandboxes, s.sandboxes), s.listErr[cri.OpListPodSandbox]
}

func (s *script) ListContainers(context.Context) ([]*cri.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return unchanged(&s.lastContainers, s.containers), s.listErr[cri.OpListContainers]
}

func (s *script) StatusOf(_ context.Context, e *cri.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := ask{e.Operation(), e.ID}
	s.asked = append(s.asked, a)
	return s.fails[a]
}

func (s *script) PodLists(ctx context.Context, uid string) ([]*cri.Entry, []*cri.Entry, error) {
	s.mu.Lock()
	hangs := s.hangs
	s.looks = append(s.looks, uid)
	s.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sandboxes := slices.DeleteFunc(slices.Clone(s.sandboxes), func(x *cri.Entry) bool { return x.PodUID != uid })
	containers := slices.DeleteFunc(slices.Clone(s.containers), func(x *cri.Entry) bool { return x.PodUID != uid })
	return sandboxes, containers, s.listErr[cri.OpListPodSandbox]
}

// watcher is an Observer that keeps events.
type watcher struct {
	mu        sync.Mutex
	events    map[EventType]int
	delivered []Event // since the last drain
}

func newWatcher() *watcher { return &watcher{events: map[EventType]int{}} }

func (w *watcher) RelistDone(time.Duration, bool) {}
func (w *watcher) RelistInterval(time.Duration)   {}
func (w *watcher) InspectionDone(bool)            {}

func (w *watcher) Event(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events[e.Type]++
	if e.Type != ContainerChanged { // the kubelet does not deliver it
		w.delivered = append(w.delivered, e)
	}
}

// drain takes the events that were delivered.
func drain(l *Loop) (out []Event) {
	w := l.obs.(*watcher)
	w.mu.Lock()
	defer w.mu.Unlock()
	out, w.delivered = w.delivered, nil
	return out
}

// failed is an error of a call that package cri would return.
func failed(op string, code string) error {
	return &facts.CallError{Operation: op, Code: code, Message: "scripted"}
}

// sandbox and container are list entries of a pod called after its uid.
func sandbox(uid, id string, state cri.State) *cri.Entry {
	return &cri.Entry{Sandbox: true, ID: id, PodUID: uid, PodName: "pod-" + uid, PodNamespace: "ns", State: state, CreatedAt: 1}
}

func container(uid, id string, state cri.State) *cri.Entry {
	return &cri.Entry{ID: id, PodUID: uid, PodName: "pod-" + uid, PodNamespace: "ns", Name: "name-" + id, State: state, CreatedAt: 2}
}
