//go:build e2e

package lab

import (
	"testing"
	"time"
)

// pollInterval is how often a condition is looked at.
const pollInterval = 50 * time.Millisecond

// Eventually waits until a condition holds, that is, until it returns no error,
// and returns how long that took. A condition that does not come to hold within
// the limit ends the test with its last error.
func Eventually(t testing.TB, limit time.Duration, what string, condition func() error) time.Duration {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := condition()
		took := time.Since(start)
		if err == nil {
			return took
		}
		if took > limit {
			t.Fatalf("not within %s: %s: %v", limit, what, err)
		}
		<-tick.C
	}
}

// Throughout looks at a condition again and again for a while, and ends the
// test as soon as it does not hold.
func Throughout(t testing.TB, span time.Duration, what string, condition func() error) {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for time.Since(start) < span {
		if err := condition(); err != nil {
			t.Fatalf("not throughout %s, but after %s: %s: %v", span, time.Since(start).Round(time.Millisecond), what, err)
		}
		<-tick.C
	}
}
