package incident

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/logging"
)

// Run reads what is stored, writes what changes, until ctx ends; then it writes
// once more and returns nil, without waiting for a disk that does not answer.
func (r *Recorder) Run(ctx context.Context) error {
	w := &writer{r: r, writes: bucket{n: r.o.Limits.WriteBurst, period: r.o.Limits.WriteEvery}}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		w.run(stop)
	}()
	<-ctx.Done()
	r.end(time.Now())
	close(stop)
	select {
	case <-done:
	case <-time.After(stopWithin):
	}
	return nil
}

// end is plegd's own: what had just begun belongs to a node that shuts down, or
// to an upgrade; what stands longer continues with the next plegd.
func (r *Recorder) end(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	switch {
	case r.open == nil:
		return
	case now.Sub(r.open.opened) < shutdownWithin:
		r.close(now, Shutdown)
	default:
		r.open.updated = now
		r.open.version++
	}
	r.publish()
}

// writer is the only goroutine that touches the disk for the recorder.
type writer struct {
	r      *Recorder
	boot   string
	writes bucket
	beat   time.Time                // of the last write of the open incident
	failed logging.OnChange[string] // the last error, while incidents cannot be stored
	lost   int
}

func (w *writer) run(stop <-chan struct{}) {
	timer := time.NewTimer(heartbeat)
	defer timer.Stop()
	var notBefore time.Time
	stopping := false
	for {
		wait := time.Until(notBefore)
		if stopping || wait <= 0 {
			var err error
			wait, err = w.work(stopping)
			if err != nil {
				wait = retryAfter
				notBefore = time.Now().Add(wait)
			}
			w.tell(err)
		}
		if stopping {
			return
		}
		timer.Reset(wait)
		select {
		case <-stop:
			stopping = true
		case <-w.r.wake:
		case <-timer.C:
		}
	}
}

// work does what there is to do, and returns how long there is nothing more.
func (w *writer) work(stopping bool) (time.Duration, error) {
	if !w.r.isLoaded() {
		if err := w.load(); err != nil {
			return 0, err
		}
	}
	for {
		s, doc, moments, version := w.next()
		if s == nil {
			return heartbeat, nil
		}
		if now := time.Now(); !stopping && !w.writes.take(now) {
			return w.writes.wait(now), nil
		}
		s.finish(doc)
		doc.Revision++
		doc.Stored, doc.BootID = true, cmp.Or(doc.BootID, w.boot)
		content, err := encode(doc, moments, &w.r.o.Limits)
		if err != nil {
			return 0, fmt.Errorf("encode the incident %s: %w", doc.ID, err)
		}
		if err := w.r.files.write(doc.ID, content); err != nil {
			return 0, err
		}
		if w.r.o.stored != nil {
			w.r.o.stored(doc)
		}
		w.beat = time.Now()
		w.stored(s, doc, version, int64(len(content)))
		if err := w.prune(); err != nil {
			return 0, err
		}
	}
}

// next returns what is to be written next, nil when nothing is.
func (w *writer) next() (s *story, doc *Incident, moments []*moment, version int) {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.pending) > 0:
		s = r.pending[0]
	case r.open != nil && (r.open.version != r.open.written || time.Since(w.beat) >= heartbeat):
		s = r.open
	default:
		return nil, nil, nil, 0
	}
	doc, moments = s.document()
	return s, doc, moments, s.version
}

// stored takes note that a version is on disk for good.
func (w *writer) stored(s *story, doc *Incident, version int, bytes int64) {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	s.written, s.doc.Revision, s.doc.Stored, s.doc.BootID = version, doc.Revision, true, doc.BootID
	if s.version == version {
		r.pending = slices.DeleteFunc(r.pending, func(p *story) bool { return p == s })
	}
	r.enter(entry{Summary: doc.Summary, bytes: bytes})
	r.publish()
}

// enter puts a file into the list of those that are known, newest first.
func (r *Recorder) enter(e entry) {
	at, known := slices.BinarySearchFunc(r.stored, e.ID, func(x entry, id string) int { return strings.Compare(id, x.ID) })
	if known {
		r.stored[at] = e
		return
	}
	r.stored = slices.Insert(r.stored, at, e)
}

// prune removes the oldest incidents that are too many or too much, but for the
// one that continues: others that are open have only not been closed yet.
func (w *writer) prune() error {
	r, l := w.r, &w.r.o.Limits
	r.mu.Lock()
	var gone []string
	var total int64
	for i := range r.stored {
		total += r.stored[i].bytes
	}
	for i := len(r.stored) - 1; i >= 0 && (len(r.stored) > l.Number || total > l.TotalBytes); i-- {
		e := r.stored[i]
		if r.open != nil && e.ID == r.open.doc.ID {
			continue
		}
		gone = append(gone, e.ID)
		total -= e.bytes
		r.stored = slices.Delete(r.stored, i, i+1)
	}
	if len(gone) > 0 {
		r.publish()
	}
	r.mu.Unlock()
	for _, id := range gone {
		if r.o.removing != nil {
			r.o.removing(id)
		}
		if err := r.files.fs.Remove(r.files.path(id)); err != nil {
			return err
		}
	}
	return nil
}

// tell says what does not work, once, and that it works again.
func (w *writer) tell(err error) {
	r := w.r
	r.mu.Lock()
	lost := r.lost
	r.mu.Unlock()
	if lost > w.lost {
		r.o.Log.Warn("incidents were given up: they could not be stored and more have come", zap.Int("given_up", lost))
		w.lost = lost
	}
	if err == nil {
		if _, changed := w.failed.Set(""); changed {
			r.o.Log.Info("incidents can be stored again", zap.String("dir", r.o.Dir))
		}
		return
	}
	if r.o.WriteFailed != nil {
		r.o.WriteFailed()
	}
	if _, changed := w.failed.Set(err.Error()); changed {
		r.o.Log.Warn("incidents cannot be stored; they stay in memory and plegd tries again", zap.Error(err), zap.Duration("every", retryAfter))
	}
}

// Get returns one incident with its whole story. The error wraps ErrUnknown
// where there is none of this id; it waits for the disk at most 2 s.
func (r *Recorder) Get(ctx context.Context, id string) (*Incident, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("%.40q: %w", id, ErrUnknown)
	}
	if doc := r.inMemory(id); doc != nil {
		return doc, nil
	}
	if !slices.ContainsFunc(r.List(), func(s Summary) bool { return s.ID == id }) {
		return nil, fmt.Errorf("%s: %w", id, ErrUnknown)
	}
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	select {
	case r.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("read the incident %s: others wait for %s already: %w", id, r.o.Dir, ctx.Err())
	}
	type result struct {
		doc *Incident
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-r.reading }()
		doc, _, err := r.files.read(id)
		done <- result{doc, err}
	}()
	select {
	case got := <-done:
		return got.doc, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read the incident %s: %s does not answer: %w", id, r.o.Dir, ctx.Err())
	}
}

// inMemory returns an incident that is open or waits to be stored, nil when
// there is none of this id.
func (r *Recorder) inMemory(id string) *Incident {
	r.mu.Lock()
	var s *story
	for _, one := range append(slices.Clone(r.pending), r.open, r.lastClosed) {
		if one != nil && one.doc.ID == id {
			s = one
		}
	}
	if s == nil {
		r.mu.Unlock()
		return nil
	}
	doc, moments := s.document()
	r.mu.Unlock()
	s.finish(doc)
	doc.Timeline = make([]Moment, len(moments))
	for i, m := range moments {
		doc.Timeline[i] = m.Moment
	}
	return doc
}

func (r *Recorder) isLoaded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loaded
}
