package facts

import (
	"slices"
	"time"
)

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Earliest returns the first of the times that are known, zero for none.
func Earliest(times ...time.Time) time.Time {
	var first time.Time
	for _, t := range times {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Unanswered reports whether a call that began at start has had no answer at t for limit; zero is
// none under way.
func Unanswered(start, t time.Time, limit time.Duration) bool {
	return !start.IsZero() && t.Sub(start) >= limit
}

// Median returns the median of durations, of an even number the lower one; there must be one.
func Median(durations []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[(len(sorted)-1)/2]
}

// Plus returns the time d after t, zero where t is zero.
func Plus(t time.Time, d time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(d)
}
