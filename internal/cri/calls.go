package cri

import (
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// tracker keeps the history of one operation. Its lock is never held across a call.
type tracker struct {
	mu       sync.Mutex
	history  facts.Call  // without InFlightSince
	inFlight []time.Time // start times of the calls under way
}

func (t *tracker) start(start time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight = append(t.inFlight, start)
}

func (t *tracker) end(c *Call, err *facts.CallError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(t.inFlight, c.Start.Equal); i >= 0 {
		t.inFlight = slices.Delete(t.inFlight, i, i+1)
	}
	end := c.Start.Add(c.Duration)
	if err == nil {
		t.history.LastOK = end
		t.history.LastOKDuration = c.Duration
	} else {
		t.history.LastFailed = end
		t.history.LastErr = err
	}
	if c.Bytes > 0 || err == nil {
		t.history.Bytes = c.Bytes
	}
}

// get returns the history as of now.
func (t *tracker) get() facts.Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.history
	if len(t.inFlight) > 0 {
		h.InFlightSince = slices.MinFunc(t.inFlight, time.Time.Compare)
	}
	return h
}
