package incident

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
)

// Run stores incidents until ctx is done. Then it writes once more and returns nil,
// without waiting for a disk that does not answer.
func (r *Recorder) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.working(r.load)
		for ctx.Err() == nil {
			r.working(r.save)
			r.awaitWork(ctx)
		}
		r.mu.Lock()
		if r.open != nil {
			r.put(r.open, true)
		}
		r.mu.Unlock()
		r.working(r.save)
	}()
	<-ctx.Done()
	select {
	case <-done:
	case <-time.After(stopTimeout):
	}
	return nil
}

// awaitWork waits until there is something to save, and for saveInterval where the disk has not taken all.
func (r *Recorder) awaitWork(ctx context.Context) {
	r.mu.Lock()
	isDone := r.saveErr == nil && len(r.unsaved)+len(r.dropped)+len(r.bad) == 0
	r.mu.Unlock()
	if !isDone {
		bounded.Sleep(ctx, saveInterval)
		return
	}
	select {
	case <-ctx.Done():
	case <-r.due:
	}
}

// working calls f, which may wait for the disk.
func (r *Recorder) working(f func()) {
	r.mu.Lock()
	r.busy = time.Now()
	r.mu.Unlock()
	f()
	r.mu.Lock()
	r.busy = time.Time{}
	r.checked = time.Now()
	r.mu.Unlock()
}

// save writes the versions that the disk lacks, and removes the oldest files beyond
// MaxFiles. It logs the first failure, and the recovery. Only the goroutine of Run calls it.
func (r *Recorder) save() {
	r.mu.Lock()
	unsaved := slices.Clone(r.unsaved)
	kept := min(len(r.list), MaxFiles)
	for _, old := range r.list[kept:] {
		r.dropped = append(r.dropped, old.ID)
	}
	r.list = r.list[:kept]
	dropped := slices.Clone(r.dropped)
	lastErr := r.saveErr
	r.mu.Unlock()
	err := r.writeAll(unsaved)
	if err == nil {
		err = r.removeAll(dropped)
	}
	r.forgetBad()
	r.mu.Lock()
	r.saveErr = err
	r.mu.Unlock()
	switch {
	case err == nil && lastErr != nil:
		r.log.Info("incidents can be stored again", zap.String("dir", r.dir))
	case err != nil && lastErr == nil:
		r.log.Warn("incidents cannot be stored; the newest stay in memory and plegd tries again", zap.Error(err),
			zap.Int("newest", maxUnsaved), zap.String("dir", r.dir), zap.Duration("every", saveInterval))
	}
}

// writeAll writes versions, the oldest first, until one fails.
func (r *Recorder) writeAll(unsaved []*Incident) error {
	for _, doc := range slices.Backward(unsaved) {
		if err := r.write(doc); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes the files of incidents that are no longer kept.
func (r *Recorder) removeAll(dropped []string) error {
	for _, id := range dropped {
		err := removeFile(path(r.dir, id))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		r.mu.Lock()
		r.dropped = slices.DeleteFunc(r.dropped, func(d string) bool { return d == id })
		r.mu.Unlock()
	}
	return nil
}

// forgetBad forgets the files that could not be used and have been removed since.
func (r *Recorder) forgetBad() {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.bad))
	r.mu.Unlock()
	if len(names) == 0 {
		return
	}
	root, err := openDir(r.dir, false)
	if err != nil {
		return // the save reports it
	}
	defer func() { _ = root.Close() }()
	for _, name := range names {
		if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			r.mu.Lock()
			delete(r.bad, name)
			r.mu.Unlock()
		}
	}
}

// write stores a version of an incident.
func (r *Recorder) write(doc *Incident) error {
	content, err := encode(doc)
	if err != nil {
		return err
	}
	if err := r.writeFile(path(r.dir, doc.ID), content); err != nil {
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

// load reads the heads of the stored incidents. An incident that the last run left open
// continues, or is closed as interrupted. Files that cannot be used stay where they are.
func (r *Recorder) load() {
	list, bad, err := Read(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		r.log.Warn("the directory of the incidents cannot be read", zap.String("dir", r.dir), zap.Error(err))
	}
	if len(bad) > 0 {
		first := slices.Sorted(maps.Keys(bad))[0]
		r.log.Warn("files in the directory of the incidents cannot be used; they are left alone",
			zap.Int("files", len(bad)), zap.Error(bad[first]))
	}
	left := r.leftOpen(list)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loaded = true
	r.badDir = err
	maps.Copy(r.bad, bad)
	r.list = append(r.list, list...)
	if r.resumes && r.open == nil && len(left) > 0 && left[0].ID == list[0].ID {
		r.left = left[0]
		left = left[1:]
	}
	for _, doc := range left {
		r.interrupt(doc)
	}
}

// leftOpen returns the incidents of a list that no run has closed.
func (r *Recorder) leftOpen(list []Summary) []*Incident {
	var left []*Incident
	for i := range list {
		if list[i].Outcome != Open {
			continue
		}
		if doc, err := ReadOne(r.dir, list[i].ID); err == nil {
			left = append(left, doc)
		}
	}
	return left
}
