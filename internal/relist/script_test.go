package relist

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
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

// script is a Runtime with scripted answers. It fails the test when
// two lists are under way at once, or a list beside an inspection: that would
// be two relists.
type script struct {
	t testing.TB

	mu         sync.Mutex
	sandboxes  []*cri.Sandbox
	containers []*cri.Container

	lastSandboxes  []*cri.Sandbox
	lastContainers []*cri.Container
	// listErr fails the list of an operation, and delay makes any call take its
	// time; hang makes it take for ever.
	listErr map[string]error
	delay   map[string]time.Duration
	hang    map[string]bool
	// fails are the inspections' calls that fail, exit the exit codes.
	fails map[ask]error
	exit  map[string]int32

	lists, inspections int // under way
	asked              []ask
	looks              []string    // pods that were listed alone
	starts             []time.Time // of ListPodSandbox
}

func newScript(t testing.TB) *script {
	return &script{
		t: t, listErr: map[string]error{}, delay: map[string]time.Duration{}, hang: map[string]bool{},
		fails: map[ask]error{}, exit: map[string]int32{},
	}
}

// set changes the script while calls are in flight.
func (s *script) set(change func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// begin notes a call and waits as long as it is to take.
func (s *script) begin(ctx context.Context, op string, list bool) (end func(), err error) {
	s.mu.Lock()
	counter := &s.inspections
	if list {
		counter = &s.lists
	}
	*counter++
	if s.lists > 2 || s.inspections > 2 {
		s.t.Errorf("%d lists and %d inspections at once", s.lists, s.inspections)
	}
	delay, hang := s.delay[op], s.hang[op]
	s.mu.Unlock()
	end = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		*counter--
	}
	switch {
	case hang:
		<-ctx.Done()
		err = s.ended(op, ctx)
	case delay > 0:
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			err = s.ended(op, ctx)
		}
	}
	return end, err
}

// ended is the error of a call whose context ended, as package cri returns it.
func (s *script) ended(op string, ctx context.Context) error { //nolint:revive // the operation reads first
	code := cri.CodeCanceled
	if context.Cause(ctx) == context.DeadlineExceeded { //nolint:errorlint // a context's own error is not wrapped
		code = cri.CodeDeadlineExceeded
	}
	return &health.CallError{Operation: op, Code: code, Message: ctx.Err().Error()}
}

func (s *script) ListPodSandbox(ctx context.Context) ([]*cri.Sandbox, error) {
	s.set(func(s *script) { s.starts = append(s.starts, time.Now()) })
	end, err := s.begin(ctx, cri.OpListPodSandbox, true)
	defer end()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return unchanged(&s.lastSandboxes, s.sandboxes), s.listErr[cri.OpListPodSandbox]
}

// unchanged returns the last list if the list has not changed since, as package cri.
func unchanged[T comparable](last *[]T, list []T) []T {
	if !slices.Equal(*last, list) {
		*last = slices.Clone(list)
	}
	return *last
}

func (s *script) ListContainers(ctx context.Context) ([]*cri.Container, error) {
	end, err := s.begin(ctx, cri.OpListContainers, true)
	defer end()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return unchanged(&s.lastContainers, s.containers), s.listErr[cri.OpListContainers]
}

func (s *script) PodSandboxStatus(ctx context.Context, id string) error {
	return s.single(ctx, ask{cri.OpPodSandboxStatus, id})
}

func (s *script) ContainerStatus(ctx context.Context, id string) (int32, error) {
	err := s.single(ctx, ask{cri.OpContainerStatus, id})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exit[id], err
}

func (s *script) single(ctx context.Context, a ask) error {
	end, err := s.begin(ctx, a.op, false)
	defer end()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, a)
	return s.fails[a]
}

func (s *script) PodLists(_ context.Context, uid string) ([]*cri.Sandbox, []*cri.Container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks = append(s.looks, uid)
	sandboxes := slices.DeleteFunc(slices.Clone(s.sandboxes), func(x *cri.Sandbox) bool { return x.PodUID != uid })
	containers := slices.DeleteFunc(slices.Clone(s.containers), func(x *cri.Container) bool { return x.PodUID != uid })
	return sandboxes, containers, s.listErr[cri.OpListPodSandbox]
}

// watcher is an Observer that counts.
type watcher struct {
	mu         sync.Mutex
	durations  []time.Duration
	ok         []bool
	intervals  []time.Duration
	events     map[EventType]int
	delivered  []Event // since the last drain
	inspected  map[bool]int
	everything int
}

func newWatcher() *watcher { return &watcher{events: map[EventType]int{}, inspected: map[bool]int{}} }

func (w *watcher) lock() func() { w.mu.Lock(); w.everything++; return w.mu.Unlock }

func (w *watcher) RelistDone(d time.Duration, ok bool) {
	defer w.lock()()
	w.durations, w.ok = append(w.durations, d), append(w.ok, ok)
}

func (w *watcher) RelistInterval(d time.Duration) {
	defer w.lock()()
	w.intervals = append(w.intervals, d)
}

func (w *watcher) InspectionDone(ok bool) { defer w.lock()(); w.inspected[ok]++ }

func (w *watcher) Event(e Event) {
	defer w.lock()()
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
	return &health.CallError{Operation: op, Code: code, Message: "scripted"}
}

// sandbox and container are list entries of a pod called after its uid.
func sandbox(uid, id string, ready bool) *cri.Sandbox {
	return &cri.Sandbox{ID: id, PodUID: uid, Name: "pod-" + uid, Namespace: "ns", HasMetadata: true, Ready: ready, CreatedAt: 1}
}

func container(uid, id string, state cri.State) *cri.Container {
	return &cri.Container{ID: id, PodUID: uid, PodName: "pod-" + uid, PodNamespace: "ns", Name: "name-" + id, HasMetadata: true, HasImage: true, State: state, CreatedAt: 2}
}
