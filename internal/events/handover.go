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
	// heldBytes is how much memory these may take.
	heldBytes = 4 << 20
)

// stream is one lease.
type stream struct {
	lease   time.Duration
	ends    time.Time // when the runtime is to end it
	cancel  context.CancelFunc
	waiting []*cri.ContainerEvent
	bytes   int // of waiting
	ended   bool
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
	if i := slices.Index(h.streams, s); i > 0 && len(s.waiting) < heldBack && s.bytes < heldBytes {
		s.waiting = append(s.waiting, e)
		s.bytes += e.Bytes
		return
	}
	h.take(e)
}

// end says that a stream has ended. What it has brought is passed on when its
// turn comes, which is at once for the oldest.
func (h *handover) end(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.ended = true
	h.advance()
}

// promote follows s from now on, and returns the streams before it: what these
// still bring is passed on as it comes.
func (h *handover) promote(s *stream) (before []*stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, other := range h.streams {
		if other == s {
			break
		}
		other.ended = true
		before = append(before, other)
	}
	h.advance()
	return before
}

// advance drops what has ended, and passes on what the stream to be followed has
// brought.
func (h *handover) advance() {
	for len(h.streams) > 0 {
		s := h.streams[0]
		for _, e := range s.waiting {
			h.take(e)
		}
		s.waiting, s.bytes = nil, 0
		if !s.ended {
			return
		}
		h.streams = slices.Delete(h.streams, 0, 1)
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
