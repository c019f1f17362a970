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
	"github.com/plegd/plegd/internal/facts"
)

const (
	// MaxFiles is the number of incidents that are kept.
	MaxFiles = 100
	// MaxFileBytes is the largest size of one.
	MaxFileBytes = 512 << 10

	draft           = "draft.tmp"      // renamed to an incident's name once it is complete
	maxRead         = 8 << 20          // bytes of a file that are read
	maxUnsaved      = 8                // incidents that wait for the disk; older ones are lost
	maxMoments      = 64               // of a timeline; the first and the newest stay
	sampleWait      = 5 * time.Second  // of a recovered incident, for samples of after its end
	rewriteInterval = 10 * time.Second // the least, between two versions of an open incident
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
	failed       bool // the last save

	// mu guards the following fields. It is never held over a read, a write or an encoding.
	mu   sync.Mutex
	list []Summary       // newest first
	well *facts.Snapshot // the newest healthy one
	open *story
	// unsaved are the versions that the disk lacks, one of an incident, newest first. They never change.
	unsaved []*Incident
}

// story is the open incident. Its times have their monotonic readings.
type story struct {
	Incident
	recovered time.Time // since when the verdict has been healthy; zero while it is not
	noted     string    // the newest moment without its numbers
	culprit   string    // the newest one
	written   string    // what noted was in the newest version that was due
	writtenAt time.Time
}

// New returns a recorder for the files in dir, which is created if missing. version is
// plegd's own. opened is called for each new incident; it must not block.
func New(dir, version string, log *zap.Logger, opened func()) *Recorder {
	return &Recorder{dir: dir, version: version, log: log, opened: opened, writeFile: writeFile}
}

// List returns the incidents, newest first.
func (r *Recorder) List() []Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Judged takes each judgement. The snapshot must not change afterwards.
func (r *Recorder) Judged(s *facts.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	healthy := s.State == facts.StateHealthy
	if r.open == nil && (s.State == facts.StateDegraded || s.State == facts.StateUnhealthy) {
		r.open = &story{Incident: Incident{Ending: []string{}, Summary: Summary{
			SchemaVersion: facts.SchemaVersion, PlegdVersion: r.version, ID: newID(s.At), Outcome: Open, Opened: s.At.UTC(),
		}}}
		r.list = slices.Insert(r.list, 0, r.open.Summary)
		r.opened()
	}
	switch o := r.open; {
	case o != nil && healthy:
		r.put(o, r.recover(o, s))
	case o != nil:
		o.add(s)
		due := o.noted != o.written && s.At.Sub(o.writtenAt) >= rewriteInterval
		if due {
			o.written, o.writtenAt = o.noted, s.At
		}
		r.put(o, due)
	case healthy:
		r.well = s
	}
}

// recover closes the open incident, and reports so, once the evidence was sampled after
// its end.
func (r *Recorder) recover(o *story, s *facts.Snapshot) (over bool) {
	if o.recovered.IsZero() {
		o.add(s)
		o.recovered = s.At.UTC()
	}
	if !sampled(&s.Facts.Evidence, o.recovered) && s.At.Sub(o.recovered) < sampleWait {
		return false
	}
	if s.At.After(o.recovered) {
		o.note(s)
	}
	before := cmp.Or(r.well, o.Timeline[0].Snapshot)
	o.Ending = explainEnd(before, o.Timeline, &s.Facts.Evidence, o.recovered)
	o.Outcome, o.Closed = Recovered, &o.recovered
	r.well, r.open = s, nil
	return true
}

// put lists the present version of an incident that is open, or ends; due: it is to be written.
func (r *Recorder) put(o *story, due bool) {
	doc := o.document()
	r.list[0] = doc.Summary
	if !due {
		return
	}
	r.unsaved = slices.Insert(slices.DeleteFunc(r.unsaved, func(u *Incident) bool { return u.ID == doc.ID }), 0, doc)
	if len(r.unsaved) > maxUnsaved {
		lost := r.unsaved[maxUnsaved].ID
		r.unsaved = r.unsaved[:maxUnsaved]
		r.list = slices.DeleteFunc(r.list, func(s Summary) bool { return s.ID == lost })
	}
}

// Get returns one incident. The error wraps ErrUnknown if there is none with this id.
// It waits at most 2 s for the disk, and fails while another read waits for it.
func (r *Recorder) Get(ctx context.Context, id string) (*Incident, error) {
	r.mu.Lock()
	known := slices.Clone(r.unsaved)
	if r.open != nil {
		known = slices.Insert(known, 0, r.open.document())
	}
	r.mu.Unlock()
	if at := slices.IndexFunc(known, func(u *Incident) bool { return u.ID == id }); at >= 0 {
		return known[at], nil
	}
	return r.read.Do(ctx, readTimeout, func(context.Context) (*Incident, error) { return ReadOne(r.dir, id) })
}

// add adds a moment to the timeline if more than numbers changed.
func (s *story) add(snapshot *facts.Snapshot) {
	v := &snapshot.Verdict
	s.Updated, s.recovered = snapshot.At.UTC(), time.Time{}
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
func (s *story) note(snapshot *facts.Snapshot) {
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
		for tick := time.Tick(saveInterval); ctx.Err() == nil; {
			r.save()
			select {
			case <-ctx.Done():
			case <-tick:
			}
		}
		r.mu.Lock()
		if r.open != nil {
			r.put(r.open, true)
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

// save writes the versions that the disk lacks, and removes the oldest files beyond
// MaxFiles. It logs the first failure, and the recovery. Only the goroutine of Run calls it.
func (r *Recorder) save() {
	r.mu.Lock()
	unsaved, kept := slices.Clone(r.unsaved), min(len(r.list), MaxFiles)
	old := slices.Clone(r.list[kept:])
	r.list = r.list[:kept]
	r.mu.Unlock()
	var err error
	for _, doc := range slices.Backward(unsaved) {
		if err = r.write(doc); err != nil {
			break
		}
	}
	for _, s := range old {
		if failed := os.Remove(path(r.dir, s.ID)); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	was := r.failed
	switch r.failed = err != nil; {
	case r.failed == was:
	case err == nil:
		r.log.Info("incidents can be stored again", zap.String("dir", r.dir))
	default:
		r.log.Warn("incidents cannot be stored; the newest stay in memory and plegd tries again", zap.Error(err),
			zap.Int("newest", maxUnsaved), zap.String("dir", r.dir), zap.Duration("every", saveInterval))
	}
}

// write stores a version of an incident.
func (r *Recorder) write(doc *Incident) error {
	content, err := encode(doc)
	if err == nil {
		err = r.writeFile(path(r.dir, doc.ID), content)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsaved = slices.DeleteFunc(r.unsaved, func(u *Incident) bool { return u == doc }) // a newer one stays
	for i := range r.list {
		r.list[i].Stored = r.list[i].Stored || r.list[i].ID == doc.ID
	}
	if r.open != nil && r.open.ID == doc.ID {
		r.open.Stored = true
	}
	return nil
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
	var interrupted []*Incident
	for i := range list {
		if list[i].Outcome != Open {
			continue
		}
		if doc, err := ReadOne(r.dir, list[i].ID); err == nil {
			doc.Outcome, doc.Closed = Interrupted, &doc.Updated
			list[i], interrupted = doc.Summary, append(interrupted, doc)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list, r.unsaved = append(r.list, list...), append(r.unsaved, interrupted...)
}
