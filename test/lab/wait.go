//go:build e2e

package lab

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// PollInterval is the time between two checks of a condition.
const PollInterval = 50 * time.Millisecond

// Within polls a condition until it returns no error; past the limit it returns the condition's last error.
func Within(limit time.Duration, condition func() error) error {
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	for start := time.Now(); ; <-tick.C {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Since(start) > limit {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
	}
}

// Eventually waits until a condition returns no error, and returns how long that took. A
// condition that fails past the limit ends the test with its last error.
func Eventually(t testing.TB, limit time.Duration, what string, condition func() error) time.Duration {
	t.Helper()
	start := time.Now()
	if err := Within(limit, condition); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return time.Since(start)
}

// Throughout polls a condition for a time, and ends the test as soon as it fails.
func Throughout(t testing.TB, span time.Duration, what string, condition func() error) {
	t.Helper()
	start := time.Now()
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	for time.Since(start) < span {
		if err := condition(); err != nil {
			t.Fatalf("not throughout %s, but after %s: %s: %v", span, time.Since(start).Round(time.Millisecond), what, err)
		}
		<-tick.C
	}
}

// Every calls a function now and once in each period, until stop is called or the test
// ends. stop returns when the last call has.
func Every(t testing.TB, period time.Duration, do func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			do()
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	t.Cleanup(stop)
	return stop
}
