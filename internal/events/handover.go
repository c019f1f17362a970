package events

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// remembered is how many events are known again when a second stream brings
	// them: more than come in the time that two overlap.
	remembered = 4096
	// heldBack is how many events of the next stream wait for the end of the one
	// before; further ones are passed on at once.
	heldBack = 1024
)

// stream is one lease.
type stream struct {
	lease   time.Duration
	cancel  context.CancelFunc
	waiting []*cri.ContainerEvent
}

// handover makes one stream of overlapping ones: in the order in which the
// runtime sent them, each event once. The oldest stream is followed to its end;
// what the next one has brought by then and the oldest had not comes after that.
type handover struct {
	mu      sync.Mutex
	streams []*stream // the oldest first
	seen    map[key]struct{}
	ring    []key // of seen, to forget the oldest
	at      int

	pass func(*cri.ContainerEvent) // an event for the first time
	copy func()                    // a copy of one
}

// key is what an event is known again by.
type key struct {
	id      string
	kind    cri.EventType
	created int64
}

func newHandover(pass func(*cri.ContainerEvent), drop func()) *handover {
	return &handover{seen: map[key]struct{}{}, pass: pass, copy: drop}
}

func (h *handover) add(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams = append(h.streams, s)
}

func (h *handover) receive(s *stream, e *cri.ContainerEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.streams, s); i > 0 && len(s.waiting) < heldBack {
		s.waiting = append(s.waiting, e)
		return
	}
	h.take(e)
}

// end lets go of a stream that has ended, or is no longer waited for.
func (h *handover) end(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(s)
}

// promote lets go of every stream before s.
func (h *handover) promote(s *stream) (before []*stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.streams) > 0 && h.streams[0] != s {
		before = append(before, h.streams[0])
		h.drop(h.streams[0])
	}
	return before
}

func (h *handover) drop(s *stream) {
	i := slices.Index(h.streams, s)
	if i < 0 {
		return
	}
	h.streams = slices.Delete(h.streams, i, i+1)
	for _, e := range s.waiting { // it ended before its turn came
		h.take(e)
	}
	s.waiting = nil
	if i == 0 && len(h.streams) > 0 {
		next := h.streams[0]
		for _, e := range next.waiting {
			h.take(e)
		}
		next.waiting = nil
	}
}

func (h *handover) take(e *cri.ContainerEvent) {
	k := key{e.ContainerID, e.Type, e.CreatedAt}
	if _, ok := h.seen[k]; ok {
		h.copy()
		return
	}
	if len(h.ring) < remembered {
		h.ring = append(h.ring, k)
	} else {
		delete(h.seen, h.ring[h.at])
		h.ring[h.at] = k
		h.at = (h.at + 1) % remembered
	}
	h.seen[k] = struct{}{}
	h.pass(e)
}
