package incident

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/health"
)

// Options say where incidents are kept.
type Options struct {
	// Dir is the directory of their files, made when it is missing.
	Dir string
	// BootID reads the id of the present boot; Monotonic is CLOCK_MONOTONIC, on
	// which moments survive a restart.
	BootID    func() (string, error)
	Monotonic func() time.Duration
	// Version is plegd's own.
	Version string
	Limits  Limits
	Log     *zap.Logger
	// Opened is called for each incident that opens, WriteFailed for each write
	// that fails. Neither may block; nil means nobody is told.
	Opened, WriteFailed func()

	fs fsys // nil: the real one
	// For tests: called after a version is stored, and before a file goes.
	stored   func(*Incident)
	removing func(id string)
}

// Recorder keeps the incidents. It is a task.
type Recorder struct {
	o     Options
	files *files
	wake  chan struct{}

	// list is what List returns; it is replaced, never changed.
	list    atomic.Pointer[[]Summary]
	reading chan struct{}

	// mu guards what follows. It is never held over a read, a write or an
	// encoding.
	mu      sync.Mutex
	began   time.Time
	loaded  bool
	relists []health.RelistResult
	opens   bucket
	// open is the incident that is open; lastClosed the one before, which may go
	// on.
	open, lastClosed *story
	// pending are closed ones that are not stored yet, oldest first; lost counts
	// those that were given up.
	pending []*story
	lost    int
	// stored are the heads of the files, newest first.
	stored []entry
	// wellSince is since when the verdict has been healthy, zero while it is not.
	wellSince time.Time
	ended     bool
}

// entry is a file that is known.
type entry struct {
	Summary
	bytes int64
}

// New returns a recorder that has read nothing yet: Run does.
func New(o Options) *Recorder {
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits()
	}
	if o.fs == nil {
		o.fs = osFS{}
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	r := &Recorder{
		o: o, files: &files{dir: o.Dir, fs: o.fs}, wake: make(chan struct{}, 1), reading: make(chan struct{}, readers),
		opens: bucket{n: o.Limits.Burst, period: o.Limits.Every}, began: time.Now(),
	}
	r.list.Store(&[]Summary{})
	return r
}

// String names the task.
func (r *Recorder) String() string { return "incidents" }

// List returns the incidents, newest first. The slice is everybody's to read.
func (r *Recorder) List() []Summary { return *r.list.Load() }

// Relisted is told of every relist that ended.
func (r *Recorder) Relisted(one health.RelistResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.relists) == relistsKept {
		copy(r.relists, r.relists[1:])
		r.relists = r.relists[:relistsKept-1]
	}
	r.relists = append(r.relists, one)
}

// Judged takes over a judgement, with the verdict before it in Previous. The
// snapshot may not change any more.
func (r *Recorder) Judged(s *health.Snapshot) {
	now, v := s.At, &s.Verdict
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return
	}
	well := v.State == health.StateHealthy
	switch {
	case !well:
		r.wellSince = time.Time{}
	case r.wellSince.IsZero():
		r.wellSince = now
	}
	switch {
	case r.open == nil && (v.State == health.StateDegraded || v.State == health.StateUnhealthy):
		r.begin(s)
	case r.open == nil:
		return
	case well && (!r.open.resumed || now.Sub(r.wellSince) >= resumeSettle):
		r.open.hear(s)
		if changed(r.open.last, v) {
			r.open.note(s, &r.o.Limits)
		}
		r.close(r.wellSince, Recovered)
	case changed(r.open.last, v):
		r.open.hear(s)
		r.open.note(s, &r.o.Limits)
	default:
		r.open.hear(s)
		return
	}
	r.publish()
	r.poke()
}

// begin opens an incident, or continues with the last one: when it is the same fault
// that was gone for a moment, and when too many open.
func (r *Recorder) begin(snapshot *health.Snapshot) {
	now, v := snapshot.At, &snapshot.Verdict
	if r.again(now, v) || !r.opens.take(now) && r.lastClosed != nil {
		s := r.lastClosed
		r.pending = slices.DeleteFunc(r.pending, func(p *story) bool { return p == s })
		s.doc.Outcome, s.closed = Open, time.Time{}
		s.doc.Episodes++
		s.judged = nil // the time between was a good one
		r.open = s
	} else {
		s := &story{opened: now}
		s.doc = Incident{
			Summary: Summary{
				SchemaVersion: SchemaVersion, ID: newID(now), Outcome: Open, Opened: now.UTC().Round(0), Reasons: []ReasonTimes{}, Episodes: 1,
			},
			PlegdVersion: r.o.Version, OpenedMonotonic: r.o.Monotonic(), Gaps: []Gap{},
		}
		s.relists = &relistsBefore{raw: slices.Clone(r.relists), at: now}
		r.open = s
		if r.o.Opened != nil {
			r.o.Opened()
		}
	}
	r.lastClosed = nil
	r.open.hear(snapshot)
	r.open.note(snapshot, &r.o.Limits)
}

// again reports whether the fault is that of the incident that has just ended.
func (r *Recorder) again(now time.Time, v *health.Verdict) bool {
	return r.lastClosed != nil && now.Sub(r.lastClosed.closed) < r.o.Limits.Again && r.lastClosed.had(v.Reason)
}

// close ends the open incident and lets it wait to be stored.
func (r *Recorder) close(now time.Time, how Outcome) {
	s := r.open
	s.doc.Outcome, s.closed, s.updated, s.resumed = how, now, now, false
	s.version++
	r.open, r.lastClosed = nil, s
	r.pending = append(r.pending, s)
	if len(r.pending) > r.o.Limits.Pending {
		r.pending = slices.Clone(r.pending[1:])
		r.lost++
	}
}

// poke tells the writer that there is something to write.
func (r *Recorder) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// publish makes the list again.
func (r *Recorder) publish() {
	list := make([]Summary, 0, len(r.stored)+len(r.pending)+1)
	add := func(s Summary) {
		if !slices.ContainsFunc(list, func(x Summary) bool { return x.ID == s.ID }) {
			list = append(list, s)
		}
	}
	if r.open != nil {
		add(r.open.summary())
	}
	for _, s := range slices.Backward(r.pending) {
		add(s.summary())
	}
	for i := range r.stored {
		add(r.stored[i].Summary)
	}
	r.list.Store(&list)
}
