package incident

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/health"
)

// MaxFiles is the number of incidents that are kept, MaxFileBytes the size of one.
const (
	MaxFiles     = 100
	MaxFileBytes = 512 << 10
)

const (
	// SlowestKept is the number of inspections kept for each relist.
	SlowestKept    = 3
	relistsKept    = 120
	maxPending     = 8                // closed incidents that wait for the disk
	rewriteEvery   = 10 * time.Second // least time between two writes of an open incident
	retryAfter     = 5 * time.Second  // after a failed write
	stopTimeout    = 500 * time.Millisecond
	readTimeout    = 2 * time.Second
	maxReaders     = 4
	nothingToWrite = time.Hour
)

// Options configure a Recorder.
type Options struct {
	Dir     string // directory of the files, created if missing
	Version string // plegd's own
	Log     *zap.Logger
	// Opened is called for each new incident. It must not block; nil is allowed.
	Opened func()

	write func(path string, content []byte) error // for tests
}

// Recorder records incidents. It is a task.
type Recorder struct {
	o       Options
	wake    chan struct{}
	readers chan struct{}
	list    atomic.Pointer[[]Summary] // replaced, never changed

	// mu guards what follows. It is never held over a read, a write or an encoding.
	mu      sync.Mutex
	relists []health.RelistResult
	well    *health.Snapshot // the newest healthy one
	open    *story
	pending []*story  // closed and not stored, oldest first
	lost    int       // closed incidents that were given up
	stored  []Summary // heads of the files, newest first
	stopped bool
}

// New returns a recorder. Run reads what is stored.
func New(o Options) *Recorder {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.write == nil {
		o.write = writeFile
	}
	r := &Recorder{o: o, wake: make(chan struct{}, 1), readers: make(chan struct{}, maxReaders)}
	r.list.Store(&[]Summary{})
	return r
}

// String names the task.
func (r *Recorder) String() string { return "incidents" }

// List returns the incidents, newest first. Callers must not change the slice.
func (r *Recorder) List() []Summary { return *r.list.Load() }

// Relisted takes the result of each relist.
func (r *Recorder) Relisted(one health.RelistResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.relists) == relistsKept {
		copy(r.relists, r.relists[1:])
		r.relists = r.relists[:relistsKept-1]
	}
	r.relists = append(r.relists, one)
}

// Judged takes each judgement. The snapshot must not change afterwards.
func (r *Recorder) Judged(s *health.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := s.Verdict.State
	switch {
	case r.stopped:
		return
	case r.open == nil && (state == health.StateDegraded || state == health.StateUnhealthy):
		r.begin(s)
	case r.open == nil:
		if state == health.StateHealthy {
			r.well = s
		}
		return
	case state == health.StateHealthy:
		r.recover(s)
	default:
		r.open.recovered = time.Time{}
		if !r.open.hear(s) {
			return
		}
	}
	r.publish()
}

func (r *Recorder) begin(s *health.Snapshot) {
	r.open = &story{opened: s.At, doc: Incident{
		Summary: Summary{
			SchemaVersion: SchemaVersion, ID: newID(s.At), Outcome: Open, Opened: s.At.UTC().Round(0), Reasons: []ReasonTimes{},
		},
		PlegdVersion: r.o.Version, Ending: []string{}, Relists: wall(r.relists, s.At),
	}}
	if r.well != nil {
		r.open.ending.begin(&r.well.Facts)
	}
	r.open.hear(s)
	if r.o.Opened != nil {
		r.o.Opened()
	}
}

// recover closes the open incident once the evidence was sampled after its end.
func (r *Recorder) recover(s *health.Snapshot) {
	o := r.open
	waited := !o.recovered.IsZero()
	if !waited {
		o.recovered = s.At
		o.hear(s)
	}
	if !sampled(&s.Facts, o.recovered) && s.At.Sub(o.recovered) < sampleWait {
		return
	}
	if waited {
		o.note(s)
	}
	o.doc.Ending = o.ending.explain(&s.Facts, o.recovered)
	r.well = s
	r.close(o.recovered, Recovered)
}

// close closes the open incident and queues it to be stored.
func (r *Recorder) close(at time.Time, how Outcome) {
	closed := at.UTC().Round(0)
	r.open.doc.Outcome, r.open.doc.Closed = how, &closed
	r.pending = append(r.pending, r.open)
	r.open = nil
	if len(r.pending) > maxPending {
		r.pending = slices.Clone(r.pending[1:])
		r.lost++
	}
}

// publish replaces the list and wakes the writer.
func (r *Recorder) publish() {
	list := make([]Summary, 0, len(r.stored)+len(r.pending)+1)
	if r.open != nil {
		list = append(list, r.open.summary())
	}
	for _, s := range slices.Backward(r.pending) {
		list = append(list, s.summary())
	}
	for i := range r.stored {
		if !slices.ContainsFunc(list, func(x Summary) bool { return x.ID == r.stored[i].ID }) {
			list = append(list, r.stored[i])
		}
	}
	r.list.Store(&list)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// wall returns a copy of relists with times on the wall clock of a moment.
func wall(relists []health.RelistResult, at time.Time) []health.RelistResult {
	out := slices.Clone(relists)
	for i := range out {
		l := &out[i]
		l.Start, l.End = health.Wall(at, l.Start), health.Wall(at, l.End)
		l.Slowest = slices.Clone(l.Slowest)
		for n := range l.Slowest {
			l.Slowest[n].Start = health.Wall(at, l.Slowest[n].Start)
		}
	}
	return out
}

// Get returns one incident. The error wraps ErrUnknown if there is none with this id.
// It waits at most 2 s for the disk.
func (r *Recorder) Get(ctx context.Context, id string) (*Incident, error) {
	if doc := r.inMemory(id); doc != nil {
		return doc, nil
	}
	if !slices.ContainsFunc(r.List(), func(s Summary) bool { return s.ID == id }) {
		return nil, fmt.Errorf("%.40q: %w", id, ErrUnknown)
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	select {
	case r.readers <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("read the incident %s: other readers wait for %s: %w", id, r.o.Dir, ctx.Err())
	}
	type result struct {
		doc *Incident
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-r.readers }()
		doc, err := ReadOne(r.o.Dir, id)
		done <- result{doc, err}
	}()
	select {
	case got := <-done:
		return got.doc, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("read the incident %s: %s does not answer: %w", id, r.o.Dir, ctx.Err())
	}
}

func (r *Recorder) inMemory(id string) *Incident {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range append(slices.Clone(r.pending), r.open) {
		if s != nil && s.doc.ID == id {
			return s.document()
		}
	}
	return nil
}
