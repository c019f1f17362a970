package relist

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

// kubelet is the kubelet's relist loop, strictly serial and obvious (kubelet
// pkg/kubelet/pleg/generic.go, Relist and updateCache; wait.Until, sliding). It
// shares no code with the loop.
type kubelet struct {
	rt      Runtime
	mu      sync.Mutex
	seen    time.Time
	settled []string // "time pod: its result"
	old     map[string]string
	again   map[string]bool
}

func (k *kubelet) run(ctx context.Context) {
	k.old, k.again = map[string]string{}, map[string]bool{}
	for ctx.Err() == nil {
		k.relist(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (k *kubelet) relist(ctx context.Context) {
	start := time.Now()
	call := func(f func(context.Context) error) error {
		c, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		return f(c)
	}
	var sandboxes []*cri.Entry
	var containers []*cri.Entry
	if call(func(c context.Context) (err error) { sandboxes, err = k.rt.ListPodSandbox(c); return err }) != nil ||
		call(func(c context.Context) (err error) { containers, err = k.rt.ListContainers(c); return err }) != nil {
		return
	}
	k.set(func() { k.seen = start })
	current, created := map[string]string{}, map[string]int64{}
	for _, c := range containers {
		current[c.PodUID] += fmt.Sprintf(" %s=%v", c.ID, c.State)
	}
	ids := map[string]*cri.Entry{}
	for _, s := range sandboxes {
		current[s.PodUID] += fmt.Sprintf(" %s=%v", s.ID, s.State)
		created[s.PodUID] = max(created[s.PodUID], s.CreatedAt)
		ids[s.PodUID] = s
	}
	all := maps.Clone(k.old)
	for uid, again := range k.again {
		if again {
			all[uid] = "" // never settled
		}
	}
	for uid := range all {
		if current[uid] == "" {
			created[uid] = 1 << 62 // removed pods first: nothing is asked of them
		}
	}
	maps.Copy(all, current)
	for _, uid := range slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(created[b], created[a]), cmp.Compare(a, b))
	}) {
		now, exists := current[uid]
		if now == k.old[uid] && !k.again[uid] {
			continue
		}
		failed := ids[uid] != nil && call(func(c context.Context) error { return found(k.rt.StatusOf(c, ids[uid])) }) != nil
		for _, c := range containers {
			failed = failed || exists && c.PodUID == uid && call(func(x context.Context) error { return found(k.rt.StatusOf(x, c)) }) != nil
		}
		if ctx.Err() != nil {
			return
		}
		if k.again[uid] = failed; failed {
			continue
		}
		if k.old[uid] = now; !exists {
			delete(k.old, uid)
		}
		k.set(func() { k.settled = append(k.settled, fmt.Sprintf("%s %s", stamp(time.Now()), uid)) })
	}
}

func (k *kubelet) set(f func()) { k.mu.Lock(); defer k.mu.Unlock(); f() }

func found(err error) error {
	if err != nil && strings.Contains(err.Error(), "NotFound") {
		return nil
	}
	return err
}

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // synctest's

func stamp(t time.Time) string { return fmt.Sprintf("%.3f", t.Sub(epoch).Seconds()) }

// world is a runtime for several clients: the result of a call depends only on its
// arguments and its time.
type world struct {
	t    testing.TB
	mu   sync.Mutex
	pods map[string]*worldPod
	// slow is the duration of a call by its operation or its pod, hangs ends its wait,
	// fails makes it fail.
	slow  map[string]time.Duration
	hangs map[string]chan struct{}
	fails map[string]bool
}

type worldPod struct {
	uid     string
	created int64
	state   cri.State
}

func newWorld(t testing.TB) *world {
	return &world{t: t, pods: map[string]*worldPod{}, slow: map[string]time.Duration{}, hangs: map[string]chan struct{}{}, fails: map[string]bool{}}
}

func (w *world) set(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

func (w *world) add(n int) {
	w.set(func() {
		for range n {
			uid := fmt.Sprintf("pod%03d", len(w.pods)+1)
			w.pods[uid] = &worldPod{uid: uid, created: int64(len(w.pods)) + 1, state: cri.StateRunning}
		}
	})
}

func (w *world) hang(key string) {
	w.set(func() {
		if w.hangs[key] == nil {
			w.hangs[key] = make(chan struct{})
		}
	})
}

func (w *world) release(key string) {
	w.set(func() {
		if w.hangs[key] != nil {
			close(w.hangs[key])
			delete(w.hangs, key)
		}
	})
}

// call does what a call about key, of operation op, does.
func (w *world) call(ctx context.Context, op string, key string) error {
	ctx, cancel := context.WithTimeout(ctx, cri.DefaultRPCTimeout)
	defer cancel()
	w.mu.Lock()
	d, hang, fails := max(w.slow[op], w.slow[key]), w.hangs[op], w.fails[op] || w.fails[key]
	if h := w.hangs[key]; h != nil {
		hang = h
	}
	w.mu.Unlock()
	late := func() error {
		code := cri.CodeDeadlineExceeded
		if ctx.Err() == context.Canceled {
			code = cri.CodeCanceled
		}
		return &facts.CallError{Operation: op, Code: code}
	}
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return late()
		}
	}
	if d > 0 {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return late()
		}
	}
	if fails {
		return &facts.CallError{Operation: op, Code: cri.CodeUnknown, Message: "scripted"}
	}
	return nil
}

func (w *world) list() []*worldPod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*worldPod
	for _, uid := range slices.Sorted(maps.Keys(w.pods)) {
		p := *w.pods[uid]
		out = append(out, &p)
	}
	return out
}

func (w *world) ListPodSandbox(ctx context.Context) (out []*cri.Entry, err error) {
	if err := w.call(ctx, cri.OpListPodSandbox, ""); err != nil {
		return nil, err
	}
	for _, p := range w.list() {
		out = append(out, &cri.Entry{Sandbox: true, ID: "s" + p.uid, PodUID: p.uid, PodName: p.uid, PodNamespace: "ns", State: cri.StateRunning, CreatedAt: p.created})
	}
	return out, nil
}

func (w *world) ListContainers(ctx context.Context) (out []*cri.Entry, err error) {
	if err := w.call(ctx, cri.OpListContainers, ""); err != nil {
		return nil, err
	}
	for _, p := range w.list() {
		out = append(out, &cri.Entry{ID: "c" + p.uid, PodUID: p.uid, PodName: p.uid, PodNamespace: "ns", Name: "c", State: p.state, CreatedAt: p.created})
	}
	return out, nil
}

func (w *world) PodLists(context.Context, string) ([]*cri.Entry, []*cri.Entry, error) {
	return nil, nil, nil
}

func (w *world) StatusOf(ctx context.Context, e *cri.Entry) error {
	uid := e.ID[1:]
	if err := w.call(ctx, e.Operation(), uid); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pods[uid] == nil {
		return &facts.CallError{Operation: e.Operation(), Code: cri.CodeNotFound, Message: "NotFound"}
	}
	return nil
}
