package incident

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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

	maxRead         = 8 << 20          // bytes of a file that are read
	maxUnsaved      = 8                // incidents that wait for the disk; older ones are lost
	maxMoments      = 64               // of a timeline; the first and the newest stay
	sampleWait      = 5 * time.Second  // of a recovered incident, for samples of after its end
	rewriteInterval = 10 * time.Second // the least, between two versions of an open incident
	saveInterval    = time.Second
	readTimeout     = 2 * time.Second
	stopTimeout     = 500 * time.Millisecond
	hungAfter       = 10 * time.Second // the time after which a disk that does not answer is reported
	// resumeWithin is the longest time between two runs of plegd over which an incident continues.
	resumeWithin = 5 * time.Minute
	// loadWait is how long a new incident waits for the stored ones, which it may continue.
	loadWait = 5 * time.Second
)

// Recorder records incidents. It is a task.
type Recorder struct {
	dir, version string
	log          *zap.Logger
	opened       func()
	read         bounded.Slot[*Incident] // reads one file at a time
	writeFile    func(path string, content []byte) error
	look         func(pid int) Sighting
	started      time.Time
	due          bounded.Signal // something is unsaved
	resumes      bool           // an incident that the last run left open continues

	// mu guards the following fields. It is never held over a read, a write or an encoding.
	mu          sync.Mutex
	loaded      bool
	list        []Summary       // newest first
	lastHealthy *facts.Snapshot // nil before the first
	open        *openIncident
	left        *Incident // the last run left it open; nil once it is continued or closed
	// unsaved are the versions that the disk lacks, one of an incident, newest first. They never change.
	unsaved []*Incident
	// dropped are incidents beyond maxUnsaved, whose older version may be on disk.
	dropped []string

	saveErr error            // of the last save
	badDir  error            // why the directory cannot be read
	bad     map[string]error // files that cannot be used, by name
	busy    time.Time        // since when the disk has been working; zero while it is idle
	checked time.Time        // when the disk answered last
}

// openIncident is the incident that has not ended. Its own times have their monotonic readings.
type openIncident struct {
	Incident
	startedAt time.Time
	updated   time.Time
	recovered time.Time // since when the verdict has been healthy; zero while it is not
	noted     string    // the newest moment without its numbers
	culprit   string    // the newest one
	written   string    // what noted was in the newest version that was due
	writtenAt time.Time
}

// New returns a recorder for the files in dir, which is created if missing. version is
// plegd's own. opened is called for each new incident; it must not block.
func New(dir, version string, log *zap.Logger, opened func()) *Recorder {
	return &Recorder{
		dir: dir, version: version, log: log, opened: opened, writeFile: writeFile, started: time.Now(),
		look: func(int) Sighting { return Sighting{} }, bad: map[string]error{}, due: bounded.NewSignal(),
	}
}

// Resume makes the incident that the last run left open continue, if that run saved its state
// within the last minutes, and in this boot of the node. Call it before Run and Judged.
func (r *Recorder) Resume(saved time.Time) {
	r.resumes = !saved.IsZero() && r.started.Sub(saved) <= resumeWithin
}

// Look sets the function that looks for a process when an incident ends. It must not block. Call it before
// Judged.
func (r *Recorder) Look(look func(pid int) Sighting) { r.look = look }

// List returns the incidents, newest first.
func (r *Recorder) List() []Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// Source reports whether incidents can be stored and read; ok is false before the first access.
func (r *Recorder) Source() (source facts.Source, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var why []string
	if hung := time.Since(r.busy); !r.busy.IsZero() && hung > hungAfter {
		why = append(why, "the disk has not answered for "+facts.Seconds(hung))
	}
	for _, err := range []error{r.saveErr, r.badDir} {
		if err != nil {
			why = append(why, err.Error())
		}
	}
	if len(r.bad) > 0 {
		first := slices.Sorted(maps.Keys(r.bad))[0]
		why = append(why, fmt.Sprintf("%s cannot be used, the first: %v",
			facts.Count(len(r.bad), "file", "files"), r.bad[first]))
	}
	source = facts.Source{Up: len(why) == 0, At: r.checked, Err: strings.Join(why, "; ")}
	return source, len(why) > 0 || !r.checked.IsZero()
}

// Judged takes each judgement. The snapshot must not change afterwards.
func (r *Recorder) Judged(s *facts.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	healthy := s.State == facts.StateHealthy
	faulty := s.State == facts.StateDegraded || s.State == facts.StateUnhealthy
	if r.resumes && !r.loaded && s.At.Sub(r.started) < loadWait {
		return
	}
	if r.open == nil && faulty {
		r.openOrContinue(s)
	}
	if r.left != nil && healthy {
		r.interrupt(r.left)
		r.left = nil
	}
	switch {
	case r.open != nil && healthy:
		r.put(r.recover(s))
	case r.open != nil:
		r.open.add(s)
		r.put(r.open, r.open.due(s.At))
	case healthy:
		r.lastHealthy = s
	}
	if len(r.unsaved) > 0 {
		r.due.Send()
	}
}

// openOrContinue opens an incident, or continues the one that the last run left open.
func (r *Recorder) openOrContinue(s *facts.Snapshot) {
	if r.left != nil {
		age := s.At.Sub(r.left.Opened) // by the wall clock, which the runs share
		r.open = &openIncident{Incident: *r.left, startedAt: s.At.Add(-age)}
		r.left = nil
		return
	}
	r.open = &openIncident{startedAt: s.At, Incident: Incident{
		Ending: []string{},
		Summary: Summary{
			SchemaVersion: facts.SchemaVersion,
			PlegdVersion:  r.version,
			ID:            newID(s.At),
			Outcome:       Open,
			Opened:        s.At.UTC(),
		},
	}}
	r.list = slices.Insert(r.list, 0, r.open.Summary)
	r.opened()
}

// interrupt closes an incident that an earlier run left open.
func (r *Recorder) interrupt(one *Incident) {
	doc := *one
	doc.Outcome = Interrupted
	doc.Closed = &doc.Updated
	r.renew(&doc)
	r.unsaved = append(r.unsaved, &doc)
}

// renew puts the present version of an incident into the list.
func (r *Recorder) renew(doc *Incident) {
	for i := range r.list {
		if r.list[i].ID == doc.ID {
			r.list[i] = doc.Summary
		}
	}
}

// recover closes the open incident once the evidence was sampled after its end. It returns the
// incident, and whether it has closed it.
func (r *Recorder) recover(s *facts.Snapshot) (o *openIncident, closed bool) {
	o = r.open
	if o.recovered.IsZero() {
		o.add(s)
		o.recovered = s.At
	}
	if !sampled(&s.Facts.Evidence, o.recovered) && s.At.Sub(o.recovered) < sampleWait {
		return o, false
	}
	if s.At.After(o.recovered) {
		o.addMoment(s)
	}
	healthy := cmp.Or(r.lastHealthy, o.Timeline[0].Snapshot)
	o.Ending = explainEnd(healthy, o.document(), s, o.recovered, r.look)
	o.Outcome = Recovered
	end := o.recovered.UTC()
	o.Closed = &end
	r.lastHealthy = s
	r.open = nil
	return o, true
}

// Recovering reports whether an incident is over and waits for samples that show what ended it.
func (r *Recorder) Recovering() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open != nil && !r.open.recovered.IsZero()
}

// put lists the present version of an incident that is open, or ends; due: it is to be written.
func (r *Recorder) put(o *openIncident, due bool) {
	doc := o.document()
	r.renew(doc)
	if !due {
		return
	}
	r.unsaved = slices.Insert(slices.DeleteFunc(r.unsaved, func(u *Incident) bool { return u.ID == doc.ID }), 0, doc)
	if len(r.unsaved) > maxUnsaved {
		lost := r.unsaved[maxUnsaved].ID
		r.unsaved = r.unsaved[:maxUnsaved]
		r.list = slices.DeleteFunc(r.list, func(s Summary) bool { return s.ID == lost })
		r.dropped = append(r.dropped, lost)
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
	for _, doc := range known {
		if doc.ID == id {
			return doc, nil
		}
	}
	return r.read.Do(ctx, readTimeout, func(context.Context) (*Incident, error) { return ReadOne(r.dir, id) })
}

// add adds a moment to the timeline if more than numbers changed.
func (o *openIncident) add(snapshot *facts.Snapshot) {
	v := &snapshot.Verdict
	o.updated = snapshot.At
	o.recovered = time.Time{}
	if c := v.Culprit; c != nil { // a chain that is lost for a moment is no change
		o.culprit = fmt.Sprint(c.Kind, c.PID, c.Name)
	}
	digest := fmt.Sprint(v.State, v.Reason, v.PLEGHealthy, v.SyncLoopAllowed, v.RulesOK, v.NodeReady, ids(v), o.culprit)
	if digest != o.noted {
		o.noted = digest
		o.addMoment(snapshot)
	}
}

// due reports whether a new version is to be written, and remembers that.
func (o *openIncident) due(moment time.Time) bool {
	if o.noted == o.written || moment.Sub(o.writtenAt) < rewriteInterval {
		return false
	}
	o.written = o.noted
	o.writtenAt = moment
	return true
}

// addMoment adds a moment to the timeline.
func (o *openIncident) addMoment(snapshot *facts.Snapshot) {
	o.Timeline = append(o.Timeline, Moment{Offset: snapshot.At.Sub(o.startedAt).Seconds(), Snapshot: snapshot})
	o.shorten(maxMoments)
}

// document returns the incident as of its last judgement, which later ones do not change.
func (o *openIncident) document() *Incident {
	d := o.Incident
	d.Updated = o.updated.UTC()
	d.Duration = cmp.Or(o.recovered, o.updated).Sub(o.startedAt).Seconds()
	d.Timeline = slices.Clone(o.Timeline)
	d.summarize()
	return &d
}
