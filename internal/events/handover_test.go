package events

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/cri"
)

func event(n int) *cri.ContainerEvent {
	return &cri.ContainerEvent{ContainerID: fmt.Sprint(n), CreatedAt: int64(n), Bytes: 100}
}

type passed struct {
	ids    []string
	copies int
}

func passing() (*handover, *passed) {
	p := &passed{}
	return newHandover(func(e *cri.ContainerEvent) { p.ids = append(p.ids, e.ContainerID) }, func() { p.copies++ }), p
}

// TestHandover plays streams that overlap, each of which has the runtime's events
// in their order from some event to some other, and reads them in a random
// interleaving: the events come out whole, in order, each once.
func TestHandover(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		h, got := passing()
		const events = 200
		type reader struct {
			s        *stream
			next, to int
		}
		var open []*reader
		add := func(from, to int) {
			r := &reader{&stream{}, from, to}
			h.add(r.s)
			open = append(open, r)
		}
		end, received := 30+rng.IntN(30), 0
		add(0, end)
		for len(open) > 0 {
			i := rng.IntN(len(open))
			r := open[i]
			if last := open[len(open)-1]; r == last && len(open) < 3 && last.to < events && last.next > last.to-15 {
				// The next one begins before this one ends.
				from := last.next + rng.IntN(last.to-last.next+1)
				to := min(events, from+20+rng.IntN(30))
				if to > last.to {
					add(from, to)
				}
			}
			if r.next < r.to {
				h.receive(r.s, event(r.next))
				r.next++
				received++
				continue
			}
			if r == open[len(open)-1] && r.to < events {
				from := r.to
				add(from, min(events, from+40))
			}
			h.end(r.s)
			open = slices.Delete(open, i, i+1)
		}
		var want []string
		for n := range events {
			want = append(want, fmt.Sprint(n))
		}
		if !slices.Equal(got.ids, want) {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(got.ids, " "))
		}
		if got.copies != received-events {
			t.Errorf("seed %d: %d copies of %d events received", seed, got.copies, received)
		}
	}
}

// TestHandoverIsBounded: what waits for the end of a stream has a limit, in
// number and in bytes, and nothing is lost by it.
func TestHandoverIsBounded(t *testing.T) {
	for _, bytes := range []int{1, 100_000} {
		h, got := passing()
		first, second := &stream{}, &stream{}
		h.add(first)
		h.add(second)
		for n := range 10_000 {
			e := event(n)
			e.Bytes = bytes
			h.receive(second, e)
		}
		if n := len(second.waiting); n > heldBack || n*bytes > heldBytes+bytes {
			t.Errorf("%d events of %d bytes wait", n, bytes)
		}
		h.end(first)
		h.end(second)
		if len(got.ids) != 10_000 || len(second.waiting) != 0 {
			t.Errorf("%d events came out, %d wait", len(got.ids), len(second.waiting))
		}
		if len(h.seen) > remembered || len(h.ring) > remembered {
			t.Errorf("%d events are remembered", len(h.seen))
		}
	}
}

// TestPromote: a stream that does not end is not waited for.
func TestPromote(t *testing.T) {
	h, got := passing()
	first, second := &stream{}, &stream{}
	h.add(first)
	h.add(second)
	h.receive(second, event(1))
	h.receive(first, event(1))
	h.receive(second, event(2))
	if !slices.Equal(got.ids, []string{"1"}) {
		t.Fatalf("%v came out while the first stream is followed", got.ids)
	}
	if before := h.promote(second); len(before) != 1 || before[0] != first {
		t.Errorf("let go of %v", before)
	}
	h.receive(second, event(3))
	h.receive(first, event(2)) // late
	if !slices.Equal(got.ids, []string{"1", "2", "3"}) || got.copies != 2 {
		t.Errorf("%v, %d copies", got.ids, got.copies)
	}
}
