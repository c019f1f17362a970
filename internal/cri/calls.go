package cri

import (
	"sync/atomic"
	"time"
)

// trackedInFlight is how many calls of one operation are timed at once; calls
// beyond it run untimed until they end.
const trackedInFlight = 64

// History is the recent history of one operation. Zero times mean "never".
type History struct {
	// LastOK is when the last successful call ended, LastOKDuration its time.
	LastOK         time.Time
	LastOKDuration time.Duration
	// LastFailed is when the last failed call ended, LastErr why.
	LastFailed time.Time
	LastErr    *Error
	// InFlightSince is the start of the oldest call under way.
	InFlightSince time.Time
	// Bytes is the size of the last answer, or of the one refused for it.
	Bytes int
}

type outcome struct {
	at       time.Time
	duration time.Duration
	err      *Error
}

// tracker keeps the history of one operation. It is read while calls go on and
// takes no lock, so that no reader can hold up a call.
type tracker struct {
	ok, failed atomic.Pointer[outcome]
	bytes      atomic.Int64
	inFlight   [trackedInFlight]atomic.Pointer[time.Time]
}

// begin notes a call's start and returns what ends it.
func (t *tracker) begin(start time.Time) (end func()) {
	for i := range t.inFlight {
		if t.inFlight[i].CompareAndSwap(nil, &start) {
			return func() { t.inFlight[i].Store(nil) }
		}
	}
	return func() {}
}

func (t *tracker) done(c Call, err *Error) {
	o := &outcome{at: c.Start.Add(c.Duration), duration: c.Duration, err: err}
	if err == nil {
		t.ok.Store(o)
	} else {
		t.failed.Store(o)
	}
	if c.Bytes > 0 || err == nil {
		t.bytes.Store(int64(c.Bytes))
	}
}

func (t *tracker) history() History {
	var h History
	if o := t.ok.Load(); o != nil {
		h.LastOK, h.LastOKDuration = o.at, o.duration
	}
	if o := t.failed.Load(); o != nil {
		h.LastFailed, h.LastErr = o.at, o.err
	}
	h.Bytes = int(t.bytes.Load())
	for i := range t.inFlight {
		if s := t.inFlight[i].Load(); s != nil && (h.InFlightSince.IsZero() || s.Before(h.InFlightSince)) {
			h.InFlightSince = *s
		}
	}
	return h
}
