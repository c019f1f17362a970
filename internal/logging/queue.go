package logging

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/plain"
)

const (
	// backlog is the number of lines that the queue holds: hours of plegd's log.
	backlog     = 512
	syncTimeout = 200 * time.Millisecond
)

// queue is a zapcore.WriteSyncer that writes lines from its own goroutine, so
// that a journal that does not read or a full disk cannot block the caller. A
// line that finds the queue full is dropped. The number of dropped lines is
// written with the next line that succeeds.
type queue struct {
	w       io.Writer
	report  func(dropped uint64) error // writes it to w
	lines   chan line
	dropped atomic.Uint64
}

// line is one line, or a mark without text: done is closed once all lines before
// it are written.
type line struct {
	text []byte
	done chan struct{}
}

func newQueue(w io.Writer, report func(dropped uint64) error) *queue {
	q := &queue{w: w, report: report, lines: make(chan line, backlog)}
	go q.run()
	return q
}

// Write queues one entry as one line. Characters that a terminal could interpret
// are escaped. It never fails.
func (q *queue) Write(p []byte) (int, error) {
	text := bytes.ReplaceAll(bytes.TrimSuffix(p, []byte{'\n'}), []byte{'\n'}, []byte(`\n`)) // a copy
	select {
	case q.lines <- line{text: append(plain.JSON(text), '\n')}:
	default:
		q.dropped.Add(1)
	}
	return len(p), nil
}

func (q *queue) run() {
	for next := range q.lines {
		if next.done != nil {
			close(next.done)
			continue
		}
		if _, err := q.w.Write(next.text); err != nil {
			q.dropped.Add(1)
			continue
		}
		if n := q.dropped.Swap(0); n > 0 {
			if q.report(n) != nil {
				q.dropped.Add(n)
			}
		}
	}
}

// Sync waits until the queued lines are written, for at most 200 ms.
func (q *queue) Sync() error {
	var written bounded.Slot[struct{}]
	_, err := written.Do(context.Background(), syncTimeout, func(context.Context) (struct{}, error) {
		done := make(chan struct{})
		q.lines <- line{done: done}
		return <-done, nil
	})
	return err
}
