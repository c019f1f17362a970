package ledger

import (
	"context"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// maxStartDirs bounds the directories of starts, maxStarts the entries that are read of one.
	maxStartDirs = 8
	maxStarts    = 8192
	// dirsAgain is the time until directories of starts are searched again, where some are known.
	dirsAgain = 10 * time.Minute
	// namespaces is where containerd and CRI-O keep the network namespaces of pods.
	namespaces = "/run/netns"
)

// startDir is a directory in which the runtime makes an entry for each start, that of a sandbox, a container or a network
// namespace.
type startDir struct {
	path    string
	looked  time.Time            // at the last look
	changed time.Time            // as the directory says; zero before the first look
	names   []string             // sorted
	came    map[string]time.Time // when those were first seen that came after the first look, while no start has succeeded
	awaited map[string]time.Time // the same of those by whose names nothing is listed that has begun, whatever succeeds
	begun   time.Time            // when the last entry that has gone came, at the latest
	gone    time.Time            // when it went, at the earliest
	failed  time.Time            // the same of the last start that was counted
}

// findStartDirs finds the directories of starts: that of network namespaces, and those in the runtime's mounts, for any
// runtime and configuration: a mount of a sandbox or container has its id in its path. Those on a disk are left out: to
// read them may hang.
func (p *pass) findStartDirs(ctx context.Context, listed map[string]*cri.Entry) {
	s := &p.started
	isSame := s.runtime == p.hops[0]
	if isSame && p.moment.Before(s.due) {
		return
	}
	if !isSame {
		*s = starts{runtime: p.hops[0]}
	}
	s.due = p.moment.Add(againAfter)
	mounts, err := p.Table.Mounts(ctx, s.runtime.PID)
	p.unread.Add(directoriesOfStarts, err)
	dirs := []string{namespaces}
	for _, m := range mounts {
		dirs = append(dirs, startDirOf(m.Point, listed))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		isKnown := slices.ContainsFunc(s.dirs, func(d *startDir) bool { return d.path == dir })
		mount, _ := proc.MountOf(mounts, dir)
		if mount.Type == "tmpfs" && !isKnown && len(s.dirs) < maxStartDirs {
			s.dirs = append(s.dirs, &startDir{path: dir})
		}
	}
	if slices.ContainsFunc(s.dirs, func(d *startDir) bool { return d.path != namespaces }) {
		s.due = p.moment.Add(dirsAgain)
	}
}

// startDirOf returns the directory of starts that a mount lies in, "" for none.
func startDirOf(place string, listed map[string]*cri.Entry) string {
	for len(place) > 1 {
		dir := path.Dir(place)
		if listed[path.Base(place)] != nil {
			return dir
		}
		place = dir
	}
	return ""
}

// lookAtStarts returns a directory in which an entry has come and gone, nil for none, and whether one has come anywhere
// and is there.
func (p *pass) lookAtStarts() (failed *startDir, isUnderWay bool) {
	root := proc.Path(p.Table.ProcFS, p.started.runtime.PID, "root")
	for _, d := range p.started.dirs {
		seen, err := d.look(root, p.moment)
		p.unread.Add(directoriesOfStarts, err)
		if seen != otherChange && d.path != namespaces {
			p.started.bundled = p.moment
		}
		switch seen {
		case cameAndWent:
			failed = d
		case entryCame:
			isUnderWay = true
		}
	}
	return failed, isUnderWay
}

// change is the difference between two looks at a directory.
type change int

const (
	otherChange change = iota // none, or entries have gone
	entryCame
	cameAndWent
)

// look compares the directory with its last look: an entry has come and gone if the directory has been written since and
// its entries are the same, or if one that came before is no longer there.
func (d *startDir) look(root string, moment time.Time) (change, error) {
	earlier := *d
	d.looked = moment
	info, err := os.Stat(root + d.path)
	if err != nil || info.ModTime().Equal(d.changed) {
		return otherChange, err
	}
	names, err := proc.Names(root+d.path, maxStarts)
	if err != nil {
		return otherChange, err
	}
	d.changed = info.ModTime()
	d.names = names
	if earlier.changed.IsZero() {
		return otherChange, nil
	}
	hasCome := d.noteNew(earlier.names, moment)
	last, hasGone := d.dropGone(moment)
	switch {
	case slices.Equal(names, earlier.names):
		d.begun = d.changed
		d.gone = d.changed
		return cameAndWent, nil
	case hasGone:
		d.begun = last
		d.gone = d.changed
		if hasCome { // which is what changed the directory last
			d.gone = earlier.looked
		}
		return cameAndWent, nil
	case hasCome:
		return entryCame, nil
	}
	return otherChange, nil
}

// noteNew notes the entries that were not there at the last look, and reports whether there are any.
func (d *startDir) noteNew(earlier []string, moment time.Time) (hasCome bool) {
	for _, name := range d.names {
		_, known := slices.BinarySearch(earlier, name)
		if known {
			continue
		}
		hasCome = true
		if d.came == nil {
			d.came = map[string]time.Time{}
			d.awaited = map[string]time.Time{}
		}
		d.came[name] = moment
		d.awaited[name] = moment
	}
	return hasCome
}

// dropGone forgets the entries that came and are no longer there, and returns when the last of those came that were there
// for less than startsOver, as a start that fails at once; ok is false where there are none.
func (d *startDir) dropGone(moment time.Time) (last time.Time, ok bool) {
	for name, seen := range d.came {
		_, isThere := slices.BinarySearch(d.names, name)
		isOver := moment.Sub(seen) >= startsOver
		if isThere && !isOver {
			continue
		}
		delete(d.came, name)
		if !isOver && (!ok || seen.After(last)) {
			last = seen
			ok = true
		}
	}
	return last, ok
}

// atRest returns the names in the directories, of the last looks, of which no start is under way.
func (s *starts) atRest() map[string]bool {
	out := map[string]bool{}
	for _, d := range s.dirs {
		for _, name := range d.names {
			out[name] = d.came[name].IsZero()
		}
	}
	return out
}

// entriesBut returns the names in the directories, of the last looks, but for some, each once.
func (s *starts) entriesBut(known map[string]bool) (out []string) {
	for _, d := range s.dirs {
		for _, name := range d.names {
			if !known[name] && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// forgetCome forgets the entries that came.
func (s *starts) forgetCome() {
	for _, d := range s.dirs {
		clear(d.came)
	}
}

// forgetListed forgets the entries that came of what is listed by their names, and the awaited ones that have gone or whose start
// has ended.
func (s *starts) forgetListed(listed map[string]*cri.Entry) {
	for _, d := range s.dirs {
		maps.DeleteFunc(d.came, func(name string, _ time.Time) bool { return listed[name] != nil })
		maps.DeleteFunc(d.awaited, func(name string, _ time.Time) bool {
			_, isThere := slices.BinarySearch(d.names, name)
			return !isThere || hasEnded(listed[name])
		})
	}
}
