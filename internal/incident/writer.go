package incident

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"
)

const (
	retryInterval = 5 * time.Second // after a failed write
	stopTimeout   = 500 * time.Millisecond
)

// Run stores incidents until ctx is done. Then it closes the open one, writes once
// more and returns nil, without waiting for a disk that does not answer.
func (r *Recorder) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.write(ctx)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
	return nil
}

// write is the only goroutine that changes the directory.
func (r *Recorder) write(ctx context.Context) {
	for ctx.Err() == nil {
		wake, retry := r.wake, (<-chan time.Time)(nil)
		if err := r.save(); err != nil {
			wake, retry = nil, time.After(retryInterval)
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-retry:
		}
	}
	r.stop(time.Now())
	_ = r.save() // logged
}

// stop closes the open incident. No further one is opened.
func (r *Recorder) stop(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	switch o := r.open; {
	case o == nil:
	case !o.recovered.IsZero():
		r.close(o.recovered, Recovered)
	default:
		o.updated = now
		r.close(now, Interrupted)
	}
}

// save writes the queued incidents, and removes the oldest files beyond MaxFiles. It
// logs the first failure, and the recovery.
func (r *Recorder) save() error {
	err := r.load()
	for doc := r.next(); err == nil && doc != nil; doc = r.next() {
		err = r.store(doc)
	}
	if err == nil {
		err = r.prune()
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch _, changed := r.failed.Set(text); {
	case !changed:
	case err == nil:
		r.o.Log.Info("incidents can be stored again", zap.String("dir", r.o.Dir))
	default:
		r.o.Log.Warn("incidents cannot be stored; they stay in memory and plegd tries again",
			zap.Error(err), zap.String("dir", r.o.Dir), zap.Duration("every", retryInterval))
	}
	return err
}

func (r *Recorder) next() *Incident {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.unsaved) == 0 {
		return nil
	}
	return r.unsaved[0]
}

func (r *Recorder) store(doc *Incident) error {
	out := *doc
	out.Stored = true
	content, err := encode(&out)
	if err != nil {
		return fmt.Errorf("encode the incident %s: %w", doc.ID, err)
	}
	if err := r.o.write(path(r.o.Dir, doc.ID), content); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved = slices.DeleteFunc(r.unsaved, func(d *Incident) bool { return d == doc })
	if r.open != nil && r.open.ID == doc.ID {
		r.open.Stored = true
	}
	for _, s := range slices.Clone(r.list) { // a newer version may have been queued meanwhile
		if s.ID == doc.ID {
			s.Stored = true
			r.enter(s)
		}
	}
	return nil
}

// prune removes the oldest files beyond MaxFiles. A file that is already gone is no
// failure.
func (r *Recorder) prune() error {
	var failed error
	list := r.List()
	for _, s := range list[min(MaxFiles, len(list)):] {
		if err := os.Remove(path(r.o.Dir, s.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
			continue
		}
		r.mu.Lock()
		r.forget(s.ID)
		r.mu.Unlock()
	}
	return failed
}

// load reads the heads of the stored incidents, once, and closes an open incident as
// interrupted. Files that cannot be read stay where they are.
func (r *Recorder) load() error {
	if r.loaded {
		return nil
	}
	if err := os.MkdirAll(r.o.Dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of the incidents: %w", err)
	}
	list, bad, err := Read(r.o.Dir)
	if err != nil {
		return fmt.Errorf("list the incidents: %w", err)
	}
	var interrupted []*Incident
	for _, s := range list {
		if s.Outcome != Open {
			continue
		}
		doc, err := ReadOne(r.o.Dir, s.ID)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		doc.Outcome, doc.Closed = Interrupted, &doc.Updated
		interrupted = append(interrupted, doc)
	}
	if len(bad) > 0 {
		r.o.Log.Warn("files in the directory of the incidents cannot be used; they are left alone",
			zap.Int("files", len(bad)), zap.Error(bad[0]))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = true
	for _, s := range list {
		r.enter(s)
	}
	for _, doc := range interrupted {
		r.queue(doc)
	}
	return nil
}
