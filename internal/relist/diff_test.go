package relist

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/cri"
)

// FuzzRelistDiff plays random histories of pods and containers, odd entries
// included, to the loop and to the model, relist by relist, with inspections
// and lists that fail, and compares what both make of it.
func FuzzRelistDiff(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x05abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
	for seed := range byte(24) {
		b := make([]byte, 300)
		x := uint32(seed)*2654435761 + 1
		for i := range b {
			x ^= x << 13
			x ^= x >> 17
			x ^= x << 5
			b[i] = byte(x >> 11)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		h := newHistory(t, program)
		for range 2 + h.next(12) {
			h.change()
			h.relist()
		}
		h.end()
	})
}

// history is a node with its loop and its model.
type history struct {
	t       *testing.T
	program []byte
	rt      *script
	loop    *Loop
	seen    *watcher
	model   *model
	tame    bool // few unusual entries, so that changes are visible
	ids     int
	steps   []string // shown with a failure
}

func newHistory(t *testing.T, program []byte) *history {
	h := &history{t: t, program: program, rt: newScript(), seen: newWatcher(), model: newModel()}
	h.tame = h.next(3) > 0
	h.loop = New(h.rt, time.Second, h.seen)
	return h
}

// next makes a choice out of the fuzzer's bytes; at their end it chooses 0.
func (h *history) next(n int) int {
	if len(h.program) == 0 {
		return 0
	}
	b := h.program[0]
	h.program = h.program[1:]
	return int(b) % n
}

func (h *history) say(format string, args ...any) {
	h.steps = append(h.steps, fmt.Sprintf(format, args...))
}

func (h *history) uid() string { return []string{"u1", "u2", "u3", "u4", ""}[h.next(5)] }
func (h *history) id() string {
	if h.tame && h.next(16) > 0 {
		h.ids++
		return fmt.Sprint("x", h.ids)
	}
	return []string{"a", "b", "c", "d", "e", "f", "g", ""}[min(h.next(22)/3, 7)]
}

// odd is seldom true, and hardly ever in a tame history.
func (h *history) odd() bool { return h.next(10) == 1 && (!h.tame || h.next(6) == 1) }

// change changes what the lists hold. Entries are replaced and never changed,
// as package cri has it.
func (h *history) change() {
	for range h.next(6) {
		rt := h.rt
		switch op := h.next(16); op {
		case 0, 1:
			s := sandbox(h.uid(), h.id(), []cri.State{cri.StateRunning, cri.StateExited}[h.next(2)])
			s.CreatedAt, s.Ignored = int64(h.next(5)), h.odd() || s.ID == ""
			rt.sandboxes = append(rt.sandboxes, s)
		case 2, 3, 4:
			c := container(h.uid(), h.id(), cri.State(h.next(cri.NumStates)))
			c.CreatedAt, c.Ignored = int64(h.next(5)), h.odd() || c.ID == ""
			rt.containers = append(rt.containers, c)
		case 5, 6, 7:
			if i := h.next(max(1, len(rt.containers))); i < len(rt.containers) {
				c := *rt.containers[i]
				c.State = cri.State(h.next(cri.NumStates))
				rt.containers[i] = &c
			}
		case 8:
			if i := h.next(max(1, len(rt.sandboxes))); i < len(rt.sandboxes) {
				s := *rt.sandboxes[i]
				s.State = cri.StateRunning + cri.StateExited - s.State
				rt.sandboxes[i] = &s
			}
		case 9, 10:
			if i := h.next(max(1, len(rt.containers))); i < len(rt.containers) {
				rt.containers = slices.Delete(rt.containers, i, i+1)
			}
		case 11:
			if i := h.next(max(1, len(rt.sandboxes))); i < len(rt.sandboxes) {
				rt.sandboxes = slices.Delete(rt.sandboxes, i, i+1)
			}
		case 12: // to another pod
			if i := h.next(max(1, len(rt.containers))); i < len(rt.containers) {
				c := *rt.containers[i]
				c.PodUID = h.uid()
				rt.containers[i] = &c
			}
		case 13: // a duplicate: the very entry, or another in another state
			if i := h.next(max(1, len(rt.containers))); i < len(rt.containers) && (!h.tame || h.next(8) == 0) {
				c := rt.containers[i]
				if h.next(2) == 0 {
					other := *c
					other.State = cri.State(h.next(cri.NumStates))
					c = &other
				}
				rt.containers = slices.Insert(rt.containers, h.next(len(rt.containers)+1), c)
			}
		case 14: // another order
			n := h.next(8)
			if len(rt.containers) > 0 {
				n %= len(rt.containers)
				rt.containers = slices.Concat(rt.containers[n:], rt.containers[:n])
			}
			slices.Reverse(rt.sandboxes)
		case 15: // a pod goes with all that is its own
			uid := h.uid()
			rt.sandboxes = slices.DeleteFunc(rt.sandboxes, func(s *cri.Entry) bool { return s.PodUID == uid })
			rt.containers = slices.DeleteFunc(rt.containers, func(c *cri.Entry) bool { return c.PodUID == uid })
		}
	}
	h.rt.fails = map[ask]error{}
	for range h.next(4) {
		code := []string{cri.CodeUnavailable, cri.CodeDeadlineExceeded, cri.CodeNotFound}[h.next(3)]
		op := []string{cri.OpPodSandboxStatus, cri.OpContainerStatus}[h.next(2)]
		h.rt.fails[ask{op, h.id()}] = failed(op, code)
	}
	h.rt.listErr = map[string]error{}
	if h.next(8) == 1 {
		op := []string{cri.OpListPodSandbox, cri.OpListContainers}[h.next(2)]
		h.rt.listErr[op] = failed(op, cri.CodeUnavailable)
	}
}

// relist makes one relist in the loop and in the model, and compares.
func (h *history) relist() {
	h.t.Helper()
	for _, s := range h.rt.sandboxes {
		h.say("  sandbox %s/%s %s, ignored %t", s.PodUID, s.ID, s.State, s.Ignored)
	}
	for _, c := range h.rt.containers {
		h.say("  container %s/%s %s, ignored %t", c.PodUID, c.ID, c.State, c.Ignored)
	}
	h.say("  failing: %v, lists: %v", slices.Collect(maps.Keys(h.rt.fails)), h.rt.listErr)

	before := *h.loop.Snapshot()
	generated := maps.Clone(h.seen.events)
	h.rt.asked = nil
	h.loop.relist(h.t.Context())
	snap, events := h.loop.Snapshot(), drain(h.loop)
	h.say("relist %d done", snap.Attempts)

	if len(h.rt.listErr) > 0 {
		if snap.Last.Err == nil || !snap.LastSeen.Equal(before.LastSeen) || snap.Pods != before.Pods || snap.Failures != before.Failures+1 {
			h.fail("a list failed: %+v, before %+v", snap, before)
		}
		if len(events) > 0 || len(h.rt.asked) > 0 {
			h.fail("a list failed: events %v, inspections %v", events, h.rt.asked)
		}
		h.invariants()
		return
	}
	want := h.model.relist(h.rt.sandboxes, h.rt.containers, h.rt.fails)
	if snap.Last.Err != nil || !snap.LastSeen.Equal(snap.Last.Start) || snap.Failures != 0 {
		h.fail("the relist did not succeed: %+v", snap)
	}
	if snap.Pods.Running != want.runningPods || !maps.Equal(snap.Pods.Containers, want.containers) {
		h.fail("pods %+v, want %d running and containers %v", snap.Pods, want.runningPods, want.containers)
	}
	h.inspections(want, snap.Last.Inspections)
	h.events(want, events, generated)

	reinspect := map[string]bool{}
	for uid, r := range h.loop.records {
		if r.reinspect {
			reinspect[uid] = true
		}
	}
	if diff := cmp.Diff(h.model.reinspect, reinspect); diff != "" || snap.Reinspect != len(reinspect) {
		h.fail("to be reinspected are %d (-want +got):\n%s", snap.Reinspect, diff)
	}
	h.invariants()
}

// inspections compares which pods were inspected, with which calls: each asks
// until one fails.
func (h *history) inspections(want modelRelist, got []*Inspection) {
	h.t.Helper()
	asked := h.rt.asked
	for _, in := range got {
		p, _, _ := in.State()
		todo, ok := want.inspected[p.UID]
		if !ok {
			h.fail("pod %q was inspected, or twice", p.UID)
		}
		delete(want.inspected, p.UID)
		todo = slices.Clone(todo)
		stopped := false
		for len(todo) > 0 && !stopped {
			if len(asked) == 0 {
				h.fail("pod %q: nobody asked %v", p.UID, todo)
			}
			i := slices.Index(todo, asked[0])
			if i < 0 {
				h.fail("pod %q: asked %v, want one of %v", p.UID, asked[0], todo)
			}
			stopped = isFailure(h.rt.fails[asked[0]])
			todo, asked = slices.Delete(todo, i, i+1), asked[1:]
		}
		if r, _, ended := in.State(); !ended || (r.Err != nil) != stopped {
			h.fail("pod %q: the inspection's result is %+v, failed %t", r.UID, r, stopped)
		}
	}
	if len(want.inspected) > 0 || len(asked) > 0 {
		h.fail("not inspected: %v; asked beyond that: %v", want.inspected, asked)
	}
}

// events compares the events of each container of each pod, in their order.
func (h *history) events(want modelRelist, got []Event, before map[EventType]int) {
	h.t.Helper()
	type key struct{ Pod, ID string }
	delivered, expected := map[key][]EventType{}, map[key][]EventType{}
	counted := map[EventType]int{}
	for uid, events := range want.events {
		for _, e := range events {
			counted[e.typ]++
			if e.typ != ContainerChanged {
				expected[key{uid, e.id}] = append(expected[key{uid, e.id}], e.typ)
			}
		}
	}
	for _, e := range got {
		delivered[key{e.PodUID, e.ID}] = append(delivered[key{e.PodUID, e.ID}], e.Type)
	}
	if diff := cmp.Diff(expected, delivered); diff != "" {
		h.fail("events by container (-want +got):\n%s", diff)
	}
	for _, typ := range EventTypes() {
		if n := h.seen.events[typ] - before[typ]; n != counted[typ] {
			h.fail("the observer got %d %s, want %d", n, typ, counted[typ])
		}
	}
}

// invariants checks that the loop's records fit together.
func (h *history) invariants() {
	h.t.Helper()
	for uid, r := range h.loop.records {
		if r.old == nil && r.cur == nil && !r.reinspect || r.who.uid != uid || !r.reinspect && r.old != r.cur {
			h.fail("pod %q: %+v", uid, r)
		}
	}
}

// end removes everything and checks that nothing is left.
func (h *history) end() {
	h.t.Helper()
	h.rt.sandboxes, h.rt.containers = nil, nil
	h.rt.fails, h.rt.listErr = map[ask]error{}, map[string]error{}
	h.relist()
	if len(h.loop.records) > 0 {
		h.fail("%d records are left of nothing", len(h.loop.records))
	}
	// And nothing more comes of it.
	h.relist()
}

func (h *history) fail(format string, args ...any) {
	h.t.Helper()
	h.t.Fatalf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(h.steps, "\n"))
}
