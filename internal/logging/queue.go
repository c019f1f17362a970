package logging

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// backlog is how many lines wait for whoever reads the log. plegd logs little:
	// this is hours of it.
	backlog = 512
	// syncTimeout is how long sync waits for them.
	syncTimeout = 200 * time.Millisecond
)

// queue writes entries from a goroutine of its own. put never blocks: a journal
// that does not read, or a full or dead disk, must not hold up plegd, least of all
// the supervisor that feeds the watchdog. Entries that find the queue full are
// dropped, and their number is written as soon as the log can be written again.
type queue[T any] struct {
	write   func(T) error
	note    func(dropped uint64) T
	entries chan queued[T]
	dropped atomic.Uint64
}

// queued is an entry, or a mark: done is closed when all before it are written.
type queued[T any] struct {
	entry T
	done  chan struct{}
}

func newQueue[T any](write func(T) error, note func(dropped uint64) T) *queue[T] {
	q := &queue[T]{write: write, note: note, entries: make(chan queued[T], backlog)}
	go q.run()
	return q
}

func (q *queue[T]) put(entry T) {
	select {
	case q.entries <- queued[T]{entry: entry}:
	default:
		q.dropped.Add(1)
	}
}

func (q *queue[T]) run() {
	for next := range q.entries {
		if next.done != nil {
			close(next.done)
			continue
		}
		if q.write(next.entry) != nil {
			q.dropped.Add(1)
			continue
		}
		if n := q.dropped.Swap(0); n > 0 && q.write(q.note(n)) != nil {
			q.dropped.Add(n)
		}
	}
}

// sync waits until the entries so far are written, for 200 ms at most.
func (q *queue[T]) sync() error {
	done := make(chan struct{})
	timeout := time.NewTimer(syncTimeout)
	defer timeout.Stop()
	select {
	case q.entries <- queued[T]{done: done}:
		select {
		case <-done:
			return nil
		case <-timeout.C:
		}
	case <-timeout.C:
	}
	return fmt.Errorf("write the last lines of the log: they were not taken within %s", syncTimeout)
}
