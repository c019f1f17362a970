package server

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// task is the house's shape of a long-running part.
type task interface {
	fmt.Stringer
	Run(ctx context.Context) error
	Ready() <-chan struct{}
}

var (
	_ task = (*WebServer)(nil)
	_ task = (*ControlServer)(nil)
)

// start runs a task until the test ends, or until stop is called; stop returns
// how long it took to end.
func start(t *testing.T, task task) (stop func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- task.Run(ctx) }()
	stopped := false
	stop = func() time.Duration {
		if stopped {
			return 0
		}
		stopped = true
		began := time.Now()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", task, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s does not stop", task)
		}
		return time.Since(began)
	}
	t.Cleanup(func() { stop() })
	select {
	case <-task.Ready():
	case <-time.After(10 * time.Second):
		t.Fatalf("%s is not ready", task)
	}
	return stop
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}
