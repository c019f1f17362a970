package incident

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"go.uber.org/zap"
)

// load reads what is stored: heads of all, and the open one, which continues when
// it is of this boot. Files that cannot be read are left where they are.
func (w *writer) load() error {
	r := w.r
	boot, err := r.o.BootID()
	if err != nil {
		r.o.Log.Warn("without the boot id an open incident cannot go on after a restart", zap.Error(err))
	}
	if err := r.files.fs.MkdirAll(r.o.Dir); err != nil {
		return fmt.Errorf("make the directory of the incidents: %w", err)
	}
	r.files.sweep()
	ids, err := r.files.names()
	if err != nil {
		return fmt.Errorf("list the incidents: %w", err)
	}
	var known []entry
	var open []*Incident
	bad, why := 0, error(nil)
	for _, id := range ids {
		head, bytes, err := r.files.head(id)
		// More than one is open only where somebody has put it there: those that
		// are left over are closed after the next starts.
		if err == nil && head.Outcome == Open && len(open) < r.o.Limits.Pending {
			if head, bytes, err = r.files.read(id); err == nil {
				open = append(open, head)
			}
		}
		if err != nil {
			bad, why = bad+1, err
			continue
		}
		known = append(known, entry{Summary: head.Summary, bytes: bytes})
	}
	if bad > 0 {
		r.o.Log.Warn("files in the directory of the incidents cannot be read; they are left alone", zap.Int("files", bad), zap.Error(why))
	}
	w.boot = boot
	r.take(known, open, boot)
	return w.prune()
}

// take puts what was read beside what has happened since this process began.
func (r *Recorder) take(known []entry, open []*Incident, boot string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = true
	for _, e := range known {
		r.enter(e)
	}
	mono, now := r.o.Monotonic(), time.Now()
	for i, doc := range open {
		same := boot != "" && doc.BootID == boot && doc.UpdatedMonotonic <= mono && doc.OpenedMonotonic <= doc.UpdatedMonotonic
		if i > 0 || !same {
			// Of another boot, or one that another has followed.
			s := resumed(doc, doc.Opened, doc.Updated)
			s.doc.Outcome, s.closed = Interrupted, s.updated
			s.version++
			r.pending = append(r.pending, s)
			continue
		}
		s := resumed(doc, now.Add(doc.OpenedMonotonic-mono), now.Add(doc.UpdatedMonotonic-mono))
		s.doc.Gaps = append(s.doc.Gaps, Gap{From: doc.Updated, To: r.began.UTC().Round(0)})
		s.doc.Gaps = s.doc.Gaps[max(0, len(s.doc.Gaps)-gapsKept):]
		s.version++
		r.goOn(s)
	}
	r.publish()
}

// goOn continues an incident of before the restart, with what has been opened
// since; unless all was well between for long, because the disk answered late.
func (r *Recorder) goOn(s *story) {
	later := r.open
	switch {
	case later == nil && r.lastClosed == nil:
		r.open = s // if all is well, it ends when that has stood for a while
	case later != nil && r.lastClosed == nil && later.opened.Sub(r.began) < resumeSettle:
		r.open = s
		s.goOn(later, &r.o.Limits)
	default:
		last := r.lastClosed
		r.open = s
		r.close(r.began, Recovered)
		r.open, r.lastClosed = later, last
	}
}

// Read reads the incidents of a directory, newest first: for a plegd that does
// not run. Files that cannot be read are counted and passed over.
func Read(dir string) (list []Summary, unreadable int, err error) {
	return (&files{dir: dir, fs: osFS{}}).list()
}

func (f *files) list() (list []Summary, unreadable int, err error) {
	ids, err := f.names()
	if err != nil {
		return nil, 0, err
	}
	list = []Summary{}
	for _, id := range ids {
		switch head, _, err := f.head(id); {
		case err == nil:
			list = append(list, head.Summary)
		case !errors.Is(err, fs.ErrNotExist): // else a plegd that does run has just removed it
			unreadable++
		}
	}
	slices.SortStableFunc(list, func(a, b Summary) int { return b.Opened.Compare(a.Opened) })
	return list, unreadable, nil
}

// ReadOne reads one incident of a directory. The error wraps ErrUnknown where
// there is none of this id.
func ReadOne(dir, id string) (*Incident, error) {
	f := &files{dir: dir, fs: osFS{}}
	if !ValidID(id) {
		return nil, fmt.Errorf("%.40q: %w", id, ErrUnknown)
	}
	doc, _, err := f.read(id)
	return doc, unknownIfMissing(id, err)
}
