package relist

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
