package incident

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/logging"
)

// MaxFiles is the number of incidents that are kept, MaxFileBytes the size of one.
const (
	MaxFiles     = 100
	MaxFileBytes = 512 << 10
)

const (
	maxUnsaved  = 8 // incidents that wait for the disk
	readTimeout = 2 * time.Second
	// rewriteInterval is the least time between two versions of an open incident.
	rewriteInterval = 10 * time.Second
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
	o    Options
	wake chan struct{}
	read bounded.Slot[*Incident] // reads one file at a time

	// mu guards the following fields. It is never held over a read, a write or an
	// encoding.
	mu      sync.Mutex
	list    []Summary        // newest first
	well    *health.Snapshot // the newest healthy one
	open    *story
	unsaved []*Incident // the versions that are to be written, oldest first
	stopped bool

	// Of the writing goroutine alone.
	loaded bool
	failed logging.OnChange[string] // the last error
}

// New returns a recorder. Run reads the stored incidents.
func New(o Options) *Recorder {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.write == nil {
		o.write = writeFile
	}
	return &Recorder{o: o, wake: make(chan struct{}, 1)}
}

// String names the task.
func (r *Recorder) String() string { return "incidents" }

// List returns the incidents, newest first.
func (r *Recorder) List() []Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Judged takes each judgement. The snapshot must not change afterwards.
func (r *Recorder) Judged(s *health.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state := s.State; {
	case r.stopped:
	case r.open == nil && (state == health.StateDegraded || state == health.StateUnhealthy):
		r.begin(s)
	case r.open == nil && state == health.StateHealthy:
		r.well = s
	case r.open == nil:
	case state == health.StateHealthy:
		r.recover(s)
	default:
		r.open.recovered = time.Time{}
		r.add(s)
	}
}

func (r *Recorder) begin(s *health.Snapshot) {
	r.open = &story{Incident: Incident{
		Summary: Summary{
			SchemaVersion: SchemaVersion, PlegdVersion: r.o.Version, ID: newID(s.At), Outcome: Open,
			Opened: s.At.UTC().Round(0), Began: s.At,
		},
		Ending: []string{},
	}}
	if r.well != nil {
		r.open.ending.begin(&r.well.Facts)
	}
	r.add(s)
	if r.o.Opened != nil {
		r.o.Opened()
	}
}

// add adds a judgement to the open incident, and queues it if it is due.
func (r *Recorder) add(s *health.Snapshot) {
	o := r.open
	changed := o.add(s)
	if o.queued.IsZero() || s.Reason != o.queuedReason && s.At.Sub(o.queued) >= rewriteInterval {
		o.queued, o.queuedReason = s.At, s.Reason
		r.queue(o.document())
	} else if changed {
		r.enter(o.document().Summary)
	}
}

// recover closes the open incident once the evidence was sampled after its end.
func (r *Recorder) recover(s *health.Snapshot) {
	o := r.open
	waited := !o.recovered.IsZero()
	if !waited {
		o.recovered, o.queuedReason = s.At, s.Reason // the version without a reason is the closed one
		r.add(s)
	}
	if !sampled(&s.Facts, o.recovered) && s.At.Sub(o.recovered) < sampleWait {
		return
	}
	if waited {
		o.note(s)
	}
	o.Ending = o.ending.explain(&s.Facts, o.recovered)
	r.well = s
	r.close(o.recovered, Recovered)
}

// close closes the open incident and queues it.
func (r *Recorder) close(at time.Time, how Outcome) {
	closed := at.UTC().Round(0)
	r.open.Outcome, r.open.Closed = how, &closed
	doc := r.open.document()
	r.open = nil
	r.queue(doc)
}

// queue puts a version of an incident in line to be written, in place of an older one.
func (r *Recorder) queue(doc *Incident) {
	r.unsaved = slices.DeleteFunc(r.unsaved, func(d *Incident) bool { return d.ID == doc.ID })
	r.unsaved = append(r.unsaved, doc)
	r.enter(doc.Summary)
	if len(r.unsaved) > maxUnsaved {
		r.o.Log.Warn("an incident is lost: it could not be stored", zap.String("id", r.unsaved[0].ID))
		r.forget(r.unsaved[0].ID)
		r.unsaved = r.unsaved[1:]
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// enter puts an incident in the list.
func (r *Recorder) enter(s Summary) {
	r.forget(s.ID)
	r.list = append(r.list, s)
	newestFirst(r.list)
}

// forget removes an incident from the list.
func (r *Recorder) forget(id string) {
	r.list = slices.DeleteFunc(r.list, func(s Summary) bool { return s.ID == id })
}

// Get returns one incident. The error wraps ErrUnknown if there is none with this id.
// It waits at most 2 s for the disk, and fails while another read waits for it.
func (r *Recorder) Get(ctx context.Context, id string) (*Incident, error) {
	if doc := r.inMemory(id); doc != nil {
		return doc, nil
	}
	if !slices.ContainsFunc(r.List(), func(s Summary) bool { return s.ID == id }) {
		return nil, fmt.Errorf("%.40q: %w", id, ErrUnknown)
	}
	doc, err := r.read.Do(ctx, readTimeout, func(context.Context) (*Incident, error) { return ReadOne(r.o.Dir, id) })
	if err != nil {
		return nil, fmt.Errorf("read the incident %s in %s: %w", id, r.o.Dir, err)
	}
	return doc, nil
}

func (r *Recorder) inMemory(id string) *Incident {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open != nil && r.open.ID == id {
		return r.open.document()
	}
	if i := slices.IndexFunc(r.unsaved, func(doc *Incident) bool { return doc.ID == id }); i >= 0 {
		return r.unsaved[i]
	}
	return nil
}
