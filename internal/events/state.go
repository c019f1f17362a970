package events

import (
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// Phase is how the subscription is.
type Phase string

// The phases of the subscription.
const (
	// Waiting: no stream has held yet.
	Waiting Phase = "waiting"
	// Streaming: a stream holds.
	Streaming Phase = "streaming"
	// Broken: the last stream failed, and another is being tried.
	Broken Phase = "broken"
	// Refused: a subscription would do harm on this runtime.
	Refused Phase = "refused"
	// Unsupported: the runtime has no event stream.
	Unsupported Phase = "unsupported"
	// EndsAtOnce: the runtime ends every stream as soon as it is opened.
	EndsAtOnce Phase = "ends_at_once"
)

// State is the subscription at one moment. Times that are zero mean never.
type State struct {
	Phase Phase
	// Since is when Phase began, Detail says more.
	Since  time.Time
	Detail string
	// InUse is true while the loop relies on events (only where asked to).
	// FellBack is true from the fallback to the generic loop until a stream
	// holds again.
	InUse, FellBack bool
	// Failures counts the failures of the stream since it last came into use;
	// where the loop does not rely on it, since one last held.
	Failures   int
	LastFailed time.Time
	LastErr    *cri.Error
	LastEvent  time.Time

	// What follows counts since plegd started. Opened are the streams opened,
	// Errors those that failed. Lapses are the times that no lease was open for a
	// while and none had failed: plegd or the runtime was paused.
	Opened, Errors, Lapses uint64
	// Events are those that came, by type and each once; Duplicates the copies
	// of them; Backlog those that are older than the subscription.
	Events              [cri.NumEventTypes]uint64
	Duplicates, Backlog uint64
}

// State returns the subscription as it is. It waits for no stream.
func (s *Subscriber) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Subscriber) update(change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.state)
}

// enter begins a phase; nothing changes where it lasts already.
func (s *Subscriber) enter(p Phase, detail string) {
	s.update(func(st *State) {
		if st.Phase != p {
			st.Phase, st.Since = p, time.Now()
		}
		st.Detail = detail
	})
}
