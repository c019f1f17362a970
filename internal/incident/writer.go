package incident

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/logging"
)

// Run stores incidents until ctx is done. Then it closes the open one, writes once
// more and returns nil, without waiting for a disk that does not answer.
func (r *Recorder) Run(ctx context.Context) error {
	w := &writer{r: r}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w.run(stop)
	}()
	<-ctx.Done()
	r.stop(time.Now())
	close(stop)
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
	return nil
}

func (r *Recorder) stop(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	switch {
	case r.open == nil:
		return
	case !r.open.recovered.IsZero():
		r.close(r.open.recovered, Recovered)
	default:
		r.open.updated = now
		r.close(now, Interrupted)
	}
	r.publish()
}

// writer is the only goroutine that changes the directory.
type writer struct {
	r      *Recorder
	loaded bool
	failed logging.OnChange[string] // the last error
	lost   int
}

func (w *writer) run(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var notBefore time.Time
	for stopping := false; ; {
		select {
		case <-stop:
			stopping = true
		case <-w.r.wake:
		case <-timer.C:
		}
		if !stopping && time.Now().Before(notBefore) {
			continue
		}
		wait, err := w.work()
		w.report(err)
		if stopping {
			return
		}
		if err != nil {
			wait = retryAfter
			notBefore = time.Now().Add(wait)
		}
		timer.Reset(wait)
	}
}

// work writes what is due, and returns the time until more is.
func (w *writer) work() (time.Duration, error) {
	if err := w.load(); err != nil {
		return 0, err
	}
	for {
		s, doc, wait := w.next(time.Now())
		if s == nil {
			return wait, nil
		}
		doc.Stored = true
		content, err := encode(doc)
		if err != nil {
			return 0, fmt.Errorf("encode the incident %s: %w", doc.ID, err)
		}
		if err := w.r.o.write(path(w.r.o.Dir, doc.ID), content); err != nil {
			return 0, err
		}
		w.stored(s, doc)
		if err := w.prune(); err != nil {
			return 0, err
		}
	}
}

// next returns the story that is to be written, or the time until one is.
func (w *writer) next(now time.Time) (*story, *Incident, time.Duration) {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) > 0 {
		return r.pending[0], r.pending[0].document(), 0
	}
	o := r.open
	if o == nil || !o.written.IsZero() && o.writtenReason == o.judged.Reason {
		return nil, nil, nothingToWrite
	}
	if wait := o.written.Add(rewriteEvery).Sub(now); wait > 0 {
		return nil, nil, wait
	}
	return o, o.document(), 0
}

func (w *writer) stored(s *story, doc *Incident) {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	s.written, s.doc.Stored = time.Now(), true
	s.writtenReason = doc.Timeline[len(doc.Timeline)-1].Snapshot.Reason
	if doc.Outcome != Open {
		r.pending = slices.DeleteFunc(r.pending, func(p *story) bool { return p == s })
	}
	r.enter(doc.Summary)
	r.publish()
}

// enter adds a file to those that are known, newest first.
func (r *Recorder) enter(s Summary) {
	at, known := slices.BinarySearchFunc(r.stored, s.ID, func(x Summary, id string) int { return strings.Compare(id, x.ID) })
	if known {
		r.stored[at] = s
		return
	}
	r.stored = slices.Insert(r.stored, at, s)
}

// prune removes the oldest incidents beyond MaxFiles.
func (w *writer) prune() error {
	r := w.r
	r.mu.Lock()
	gone := slices.Clone(r.stored[min(MaxFiles, len(r.stored)):])
	r.mu.Unlock()
	var failed error
	for _, s := range gone {
		if err := os.Remove(path(r.o.Dir, s.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
			continue
		}
		r.mu.Lock()
		r.stored = slices.DeleteFunc(r.stored, func(x Summary) bool { return x.ID == s.ID })
		r.publish()
		r.mu.Unlock()
	}
	return failed
}

// load reads the heads of the stored incidents, once. Incidents that are open there
// are closed as interrupted. Files that cannot be read stay where they are.
func (w *writer) load() error {
	if w.loaded {
		return nil
	}
	r := w.r
	if err := os.MkdirAll(r.o.Dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of the incidents: %w", err)
	}
	_, drafts, err := names(r.o.Dir)
	if err != nil {
		return fmt.Errorf("list the incidents: %w", err)
	}
	for _, draft := range drafts {
		_ = os.Remove(draft)
	}
	list, bad, err := read(r.o.Dir)
	if err != nil {
		return fmt.Errorf("list the incidents: %w", err)
	}
	r.mu.Lock()
	for _, s := range list {
		r.enter(s)
	}
	r.publish()
	r.mu.Unlock()
	if err := w.prune(); err != nil {
		return err
	}
	for _, s := range r.List() {
		if s.Outcome != Open || !s.Began.IsZero() {
			continue
		}
		doc, err := ReadOne(r.o.Dir, s.ID)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		if err := w.interrupted(doc); err != nil {
			return err
		}
	}
	if len(bad) > 0 {
		r.o.Log.Warn("files in the directory of the incidents cannot be used; they are left alone",
			zap.Int("files", len(bad)), zap.Error(bad[0]))
	}
	w.loaded = true
	return nil
}

// interrupted closes an incident that an earlier plegd left open.
func (w *writer) interrupted(doc *Incident) error {
	doc.Outcome, doc.Closed = Interrupted, &doc.Updated
	content, err := encode(doc)
	if err != nil {
		return err
	}
	if err := w.r.o.write(path(w.r.o.Dir, doc.ID), content); err != nil {
		return err
	}
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.enter(doc.Summary)
	w.r.publish()
	return nil
}

// report logs a failure once, and that writes succeed again.
func (w *writer) report(err error) {
	r := w.r
	r.mu.Lock()
	lost := r.lost
	r.mu.Unlock()
	if lost > w.lost {
		r.o.Log.Warn("incidents were lost: they could not be stored", zap.Int("lost", lost))
		w.lost = lost
	}
	if err == nil {
		if _, changed := w.failed.Set(""); changed {
			r.o.Log.Info("incidents can be stored again", zap.String("dir", r.o.Dir))
		}
		return
	}
	if _, changed := w.failed.Set(err.Error()); changed {
		r.o.Log.Warn("incidents cannot be stored; they stay in memory and plegd tries again",
			zap.Error(err), zap.Duration("every", retryAfter))
	}
}
