package incident

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	maxUnsaved = 8  // incidents that wait for the disk; older ones are lost
	maxMoments = 64 // of a timeline; the first and the newest stay
	// sampleWait is how long a recovered incident waits for samples of the time after its
	// end.
	sampleWait = 5 * time.Second
	// rewriteInterval is the least time between two versions of an open incident.
	rewriteInterval = 10 * time.Second
	saveInterval    = time.Second
	readTimeout     = 2 * time.Second
	stopTimeout     = 500 * time.Millisecond
)

// Recorder records incidents. It is a task.
type Recorder struct {
	dir, version string
	log          *zap.Logger
	opened       func()
	read         bounded.Slot[*Incident] // reads one file at a time
	writeFile    func(path string, content []byte) error

	// mu guards the following fields. It is never held over a read, a write or an
	// encoding.
	mu   sync.Mutex
	all  []*record        // newest first
	well *health.Snapshot // the newest healthy one
	open *story

	failed logging.OnChange[bool]
}

// record is a listed incident. whole is its newest version, which never changes, and nil if
// only the file has it. due: the disk lacks it.
type record struct {
	Summary
	whole *Incident
	due   bool
}

// story is the open incident. Its times have their monotonic readings.
type story struct {
	Incident
	recovered time.Time // since when the verdict has been healthy; zero while it is not
	noted     string    // the newest moment without its numbers
	culprit   string
	// written is when a version was last due, writtenReason the primary reason then.
	written       time.Time
	writtenReason string
}

// New returns a recorder for the files in dir, which is created if missing. version is
// plegd's own. opened is called for each new incident; it must not block.
func New(dir, version string, log *zap.Logger, opened func()) *Recorder {
	return &Recorder{dir: dir, version: version, log: log, opened: opened, writeFile: writeFile}
}

// String names the task.
func (r *Recorder) String() string { return "incidents" }

// List returns the incidents, newest first.
func (r *Recorder) List() []Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Summary, len(r.all))
	for i, one := range r.all {
		out[i] = one.Summary
	}
	return out
}

// Judged takes each judgement. The snapshot must not change afterwards.
func (r *Recorder) Judged(s *health.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch o := r.open; {
	case o != nil && s.State == health.StateHealthy:
		r.recover(o, s)
	case o != nil:
		o.recovered = time.Time{}
		r.add(o, s)
	case s.State == health.StateHealthy:
		r.well = s
	case s.State == health.StateDegraded || s.State == health.StateUnhealthy:
		r.open = &story{Incident: Incident{Ending: []string{}, Summary: Summary{
			SchemaVersion: health.SchemaVersion, PlegdVersion: r.version, ID: newID(s.At), Outcome: Open, Opened: s.At.UTC(),
		}}}
		r.add(r.open, s)
		r.opened()
	}
}

// add adds a judgement to the open incident, which is written at its begin and when its
// primary reason changes.
func (r *Recorder) add(o *story, s *health.Snapshot) {
	o.add(s)
	due := o.written.IsZero() || s.Reason != o.writtenReason && s.At.Sub(o.written) >= rewriteInterval
	if due {
		o.written, o.writtenReason = s.At, s.Reason
	}
	r.put(o.document(), due)
}

// recover closes the open incident once the evidence was sampled after its end.
func (r *Recorder) recover(o *story, s *health.Snapshot) {
	if o.recovered.IsZero() {
		o.recovered = s.At.UTC()
		o.add(s)
	}
	over := sampled(&s.Facts.Evidence, o.recovered) || s.At.Sub(o.recovered) >= sampleWait
	if over {
		if s.At.After(o.recovered) {
			o.note(s)
		}
		was := recall(cmp.Or(r.well, o.Timeline[0].Snapshot), o.Timeline, o.recovered)
		o.Ending, o.Outcome, o.Closed = was.explain(&s.Facts.Evidence, o.recovered), Recovered, &o.recovered
		r.well, r.open = s, nil
	}
	r.put(o.document(), over)
}

// put lists a version of an incident in place of an older one; due: it is to be written.
func (r *Recorder) put(doc *Incident, due bool) {
	at := slices.IndexFunc(r.all, func(one *record) bool { return one.ID == doc.ID })
	if at < 0 {
		at, r.all = 0, slices.Insert(r.all, 0, &record{})
	}
	one := r.all[at]
	doc.Stored = one.Stored
	one.Summary, one.whole, one.due = doc.Summary, doc, one.due || due
	if waiting := r.waiting(); len(waiting) > maxUnsaved {
		r.forget(waiting[maxUnsaved].ID)
	}
}

// waiting returns the incidents that are due, newest first.
func (r *Recorder) waiting() (out []*record) {
	for _, one := range r.all {
		if one.due {
			out = append(out, one)
		}
	}
	return out
}

func (r *Recorder) forget(id string) {
	r.all = slices.DeleteFunc(r.all, func(one *record) bool { return one.ID == id })
}

// Get returns one incident. The error wraps ErrUnknown if there is none with this id.
// It waits at most 2 s for the disk, and fails while another read waits for it.
func (r *Recorder) Get(ctx context.Context, id string) (*Incident, error) {
	r.mu.Lock()
	for _, one := range r.all {
		if one.ID == id && one.whole != nil {
			defer r.mu.Unlock()
			doc := *one.whole
			doc.Summary = one.Summary
			return &doc, nil
		}
	}
	r.mu.Unlock()
	return r.read.Do(ctx, readTimeout, func(context.Context) (*Incident, error) { return ReadOne(r.dir, id) })
}

// add adds a moment to the timeline if more than numbers changed.
func (s *story) add(snapshot *health.Snapshot) {
	v := &snapshot.Verdict
	s.Updated = snapshot.At.UTC()
	if c := v.Culprit; c != nil { // a chain that is lost for a moment is no change
		s.culprit = fmt.Sprint(c.Kind, c.PID, c.Name)
	}
	now := fmt.Sprint(v.State, v.Reason, v.PLEGHealthy, v.SyncLoopAllowed, v.RulesOK, v.NodeReady, ids(v), s.culprit)
	if now != s.noted {
		s.noted = now
		s.note(snapshot)
	}
}

// note adds a moment to the timeline.
func (s *story) note(snapshot *health.Snapshot) {
	s.Timeline = append(s.Timeline, Moment{Offset: snapshot.At.Sub(s.Opened).Seconds(), Snapshot: snapshot})
	s.shorten(maxMoments)
}

// document returns the incident as of now, which later judgements do not change.
func (s *story) document() *Incident {
	d, end := s.Incident, cmp.Or(s.recovered, s.Updated)
	d.Duration, d.Timeline = end.Sub(s.Opened).Seconds(), slices.Clone(s.Timeline)
	d.summarize()
	return &d
}

// Run stores incidents until ctx is done. Then it writes once more and returns nil,
// without waiting for a disk that does not answer.
func (r *Recorder) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.load()
		tick := time.NewTicker(saveInterval)
		defer tick.Stop()
		for ctx.Err() == nil {
			r.save()
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		r.mu.Lock()
		if r.open != nil {
			r.put(r.open.document(), true)
		}
		r.mu.Unlock()
		r.save()
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
	return nil
}

// save writes the incidents that are due, and removes the oldest files beyond MaxFiles.
// It logs the first failure, and the recovery. Only the goroutine of Run calls it.
func (r *Recorder) save() {
	more, err := r.store()
	for err == nil && more {
		more, err = r.store()
	}
	switch _, changed := r.failed.Set(err != nil); {
	case !changed:
	case err == nil:
		r.log.Info("incidents can be stored again", zap.String("dir", r.dir))
	default:
		r.log.Warn("incidents cannot be stored; the newest stay in memory and plegd tries again", zap.Error(err),
			zap.Int("newest", maxUnsaved), zap.String("dir", r.dir), zap.Duration("every", saveInterval))
	}
}

// store writes the oldest incident that is due. If none is, it removes the oldest file
// beyond MaxFiles. It reports whether there was something to do.
func (r *Recorder) store() (more bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	waiting := r.waiting()
	switch {
	case len(waiting) > 0:
		one := waiting[len(waiting)-1]
		doc := *one.whole
		doc.Stored = true
		one.due = false // until a newer version is
		r.mu.Unlock()
		content, err := encode(&doc)
		if err == nil {
			err = r.writeFile(path(r.dir, doc.ID), content)
		}
		r.mu.Lock()
		one.due, one.Stored = one.due || err != nil, one.Stored || err == nil
		if !one.due && one.Outcome != Open {
			one.whole = nil
		}
		return true, err
	case len(r.all) > MaxFiles:
		id := r.all[len(r.all)-1].ID
		r.mu.Unlock()
		err := os.Remove(path(r.dir, id))
		r.mu.Lock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return true, err
		}
		r.forget(id)
		return true, nil
	}
	return false, nil
}

// load reads the heads of the stored incidents and closes an open incident as
// interrupted. Files that cannot be read stay where they are.
func (r *Recorder) load() {
	list, bad, err := Read(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		bad = append(bad, err)
	}
	if len(bad) > 0 {
		r.log.Warn("files in the directory of the incidents cannot be used; they are left alone",
			zap.Int("files", len(bad)), zap.Error(bad[0]))
	}
	for _, s := range list {
		one := &record{Summary: s}
		if s.Outcome == Open {
			if doc, err := ReadOne(r.dir, s.ID); err == nil {
				doc.Outcome, doc.Closed = Interrupted, &doc.Updated
				one.Summary, one.whole, one.due = doc.Summary, doc, true
			}
		}
		r.mu.Lock()
		r.all = append(r.all, one)
		r.mu.Unlock()
	}
}
