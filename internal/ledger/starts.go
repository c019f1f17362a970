package ledger

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// failedStarts is how many failed starts are a finding: without those that may be the retry of the one before.
	failedStarts = 3
	// podRetry is less than the time after which a kubelet starts the same pod again (pod_workers.go, backOffPeriod, 10 s).
	podRetry = 9 * time.Second
	// staysUnready is how long a sandbox is not ready until its start counts as failed: two more passes.
	staysUnready = 2 * SuspectInterval
	// watchTime is how long the directories are watched in one pass until a start is seen to fail, watchEvery the rest
	// between two looks.
	watchTime  = 3 * time.Second
	watchEvery = 10 * time.Millisecond
	// watchGap is less than a pod takes to be stopped and removed: between two looks that are farther apart one that was
	// started may have gone.
	watchGap = 30 * time.Millisecond
	// maxAsked bounds the entries that the runtime is asked for at each look.
	maxAsked = 4
	// startsOver is the time without a failed start after which starts no longer fail.
	startsOver = time.Minute
	// maxStartDirs bounds the directories of starts, maxStarts the entries that are read of one.
	maxStartDirs = 8
	maxStarts    = 8192
	// dirsAgain is the time until directories of starts are searched again, where some are known.
	dirsAgain = 10 * time.Minute
	// namespaces is where containerd and CRI-O keep the network namespaces of pods.
	namespaces = "/run/netns"
	// sandboxList stands for a directory where the list shows failed starts.
	sandboxList = "the list of sandboxes"
	// clock is the layout of a time of day.
	clock = "15:04:05 UTC"
)

// starts are the starts of pods that fail at once. No list shows them: what the runtime makes for one is there for a moment.
type starts struct {
	runtime proc.ID // in whose mounts the directories were found
	dirs    []*startDir
	due     time.Time // when they are searched again
	failed  int       // those that cannot be the retry of the one before
	since   time.Time // the first of all
	last    time.Time // the last of all, zero for none
	dir     string    // the directory that showed it
	bundled time.Time // when an entry last came in another directory than namespaces: a start has its network by then
	proven  bool      // a start was watched, and failed
	notDue  time.Time // until then starts are not watched: they succeed
	// unready are when pods were first listed with a sandbox that was not ready and had no container, by their UIDs.
	unready map[string]time.Time
	memory  memoryLimits
	// writer is the process that has a program open for writing that starts need, of pid 0 for none, written that program.
	writer    proc.Process
	written   string
	writerDue time.Time // when it is looked for again
}

// startDir is a directory in which the runtime makes an entry for each start, that of a sandbox, a container or a network
// namespace.
type startDir struct {
	path    string
	looked  time.Time            // at the last look
	changed time.Time            // as the directory says; zero before the first look
	names   []string             // sorted
	came    map[string]time.Time // when those were first seen that came after the first look, while no start has succeeded
	begun   time.Time            // when the last entry that has gone came, at the latest
	gone    time.Time            // when it went, at the earliest
	failed  time.Time            // the same of the last start that was counted
}

// starts notes the starts that have failed since the last pass: an entry has come and gone in a directory of starts, and
// nothing new is listed. A start that succeeds leaves an entry there and in a list. Behind cri-dockerd the containers of
// others come and go there, too.
func (p *pass) starts(ctx context.Context) {
	s := &p.started
	if p.moment.Sub(s.last) > startsOver {
		s.forget()
	}
	listed := p.listed
	if listed == nil {
		listed = p.Listed()
	}
	isFirstList := p.lastListed == nil // what is new in it is not known
	come := p.noteWork(listed)
	if p.runtime().PID == 0 || listed == nil || p.daemonPID() != 0 {
		return
	}
	p.findStartDirs(ctx, listed)
	failed, isUnderWay := p.lookAtStarts()
	s.forgetListed(listed)
	if isFirstList {
		s.forgetCome()
	}
	switch {
	case slices.ContainsFunc(come, hasBegun):
		s.succeeded()
	case s.noteUnready(p.moment, listed, come):
	case failed != nil && !isUnderWay:
		s.count(p.moment, failed)
	}
	if s.failed >= failedStarts && !s.proven && !p.moment.Before(s.notDue) {
		p.watchStart(ctx)
	}
}

// watchStart watches the directories until a start ends: the pods of those before may have been removed again between two
// lists. While its entries are there, the runtime is asked for them.
func (p *pass) watchStart(ctx context.Context) {
	s := &p.started
	present := s.atRest()
	isUnderWay := false
	last := p.Clock()
	for range watchTime / watchEvery {
		if !p.Sleep(ctx, watchEvery) {
			return
		}
		moment := p.Clock()
		failed, _ := p.lookAtStarts()
		come := s.entriesBut(present)
		if p.seesSuccess(ctx, come) {
			s.succeeded()
			s.notDue = p.moment.Add(againAfter)
			return
		}
		isUnderWay = isUnderWay || failed != nil || len(come) > 0
		hasEnded := isUnderWay && len(come) == 0
		if hasEnded && moment.Sub(last) <= watchGap {
			s.proven = true
			return
		}
		isUnderWay = isUnderWay && !hasEnded
		last = moment
	}
}

// seesSuccess reports whether a start has succeeded since the last list of a pass, or one of those of some entries has.
func (p *pass) seesSuccess(ctx context.Context, names []string) bool {
	return slices.ContainsFunc(newIn(p.Listed(), p.lastListed), hasBegun) ||
		slices.ContainsFunc(names[:min(len(names), maxAsked)], func(name string) bool { return p.isKnown(ctx, name) })
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

// isKnown reports whether the runtime has a sandbox that is ready, or a container, by the name of an entry.
func (p *pass) isKnown(ctx context.Context, name string) bool {
	return p.HasBegun(ctx, &cri.Entry{ID: name, Sandbox: true}) || p.HasBegun(ctx, &cri.Entry{ID: name})
}

// forget forgets the failed starts.
func (s *starts) forget() {
	s.failed = 0
	s.last = time.Time{}
	s.proven = false
	s.memory = memoryLimits{}
	s.writer = proc.Process{}
	s.writerDue = time.Time{}
	s.unready = nil
}

// succeeded forgets the failed starts, and what came in the directories: it may be that of the start that has succeeded.
func (s *starts) succeeded() {
	s.forget()
	s.forgetCome()
}

// forgetCome forgets the entries that came.
func (s *starts) forgetCome() {
	for _, d := range s.dirs {
		clear(d.came)
	}
}

// forgetListed forgets the entries that came of what is listed by their names.
func (s *starts) forgetListed(listed map[string]*cri.Entry) {
	for _, d := range s.dirs {
		maps.DeleteFunc(d.came, func(name string, _ time.Time) bool { return listed[name] != nil })
	}
}

// areOfNetwork reports whether the starts fail before the runtime makes a bundle, for which it has made a network.
func (s *starts) areOfNetwork() bool {
	showsNetwork := s.dir == namespaces || s.dir == sandboxList
	showsBundles := slices.ContainsFunc(s.dirs, func(d *startDir) bool { return d.path != namespaces })
	return showsNetwork && showsBundles && s.bundled.Before(s.since)
}

// text describes the failed starts.
func (s *starts) text() string {
	since := s.since.UTC().Format(clock)
	if s.dir == sandboxList {
		return fmt.Sprintf("sandboxes of at least %d new pods were never ready since %s, and no new one is; this does not show what made them fail",
			failedStarts, since)
	}
	return fmt.Sprintf("at least %d starts failed since %s, each within seconds: its entry in %s came and went, and no new pod or container is listed; this does not show what made them fail",
		failedStarts, since, s.dir)
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

// noteWork notes whether the lists have changed since the pass before, and returns what is new in them.
func (p *pass) noteWork(listed map[string]*cri.Entry) (come []*cri.Entry) {
	last := p.lastListed
	p.lastListed = listed
	come = newIn(listed, last)
	if len(come) > 0 || len(newIn(last, listed)) > 0 {
		p.worked = p.moment
	}
	return come
}

// newIn returns the entries that are listed and were not before, none where one of the lists is not known.
func newIn(listed, previous map[string]*cri.Entry) (out []*cri.Entry) {
	if listed == nil || previous == nil {
		return nil
	}
	for id, e := range listed {
		if previous[id] == nil {
			out = append(out, e)
		}
	}
	return out
}

// hasBegun reports whether an entry shows that a start has succeeded. A sandbox that was never ready does not: a runtime
// keeps one whose network could neither be made nor removed again.
func hasBegun(e *cri.Entry) bool { return !e.Sandbox || e.State == cri.StateRunning }

// noteUnready notes the pods that are listed for the first time, with a sandbox that is not ready and has no container, and
// reports whether there is one. Where several stay so, their starts have failed.
func (s *starts) noteUnready(moment time.Time, listed map[string]*cri.Entry, come []*cri.Entry) (isSeen bool) {
	for _, sandbox := range come {
		if isOld(sandbox, moment) || hasBegun(sandbox) || hasContainer(listed, sandbox.ID) {
			continue
		}
		isSeen = true
		s.last = moment
		if s.unready == nil {
			s.unready = map[string]time.Time{}
		}
		_, isNoted := s.unready[sandbox.PodUID]
		if !isNoted {
			s.unready[sandbox.PodUID] = moment
		}
	}
	maps.DeleteFunc(s.unready, func(_ string, seen time.Time) bool { return moment.Sub(seen) > failedWithin })
	if len(s.unready) < failedStarts || s.proven {
		return isSeen
	}
	if s.isReadyLater(listed) {
		s.unready = nil
		return isSeen
	}
	seen := slices.SortedFunc(maps.Values(s.unready), time.Time.Compare)
	if moment.Sub(seen[failedStarts-1]) >= staysUnready {
		s.proven = true
		s.dir = sandboxList
		s.since = seen[0]
	}
	return isSeen
}

// isOld reports whether a sandbox was made long before it is listed, as those that a runtime lists after a reboot.
func isOld(sandbox *cri.Entry, moment time.Time) bool {
	age, isKnown := sandbox.Age(moment)
	return isKnown && age > failedWithin
}

// isReadyLater reports whether a pod that was listed with a sandbox that was not ready has one that is.
func (s *starts) isReadyLater(listed map[string]*cri.Entry) bool {
	for _, e := range listed {
		_, wasUnready := s.unready[e.PodUID]
		if wasUnready && e.Sandbox && hasBegun(e) {
			return true
		}
	}
	return false
}

// hasContainer reports whether a container of a sandbox is listed.
func hasContainer(listed map[string]*cri.Entry, sandbox string) bool {
	for _, e := range listed {
		if !e.Sandbox && e.SandboxID == sandbox {
			return true
		}
	}
	return false
}

// count counts a failed start, unless it may be the retry of the one before. The directory says when either ended: a pass
// that comes late, or a start that shows in several directories, does not make them seem closer.
func (s *starts) count(moment time.Time, dir *startDir) {
	if s.last.IsZero() {
		s.since = moment
	}
	if dir.begun.Sub(dir.failed) < podRetry {
		s.failed++
	}
	dir.failed = dir.gone
	s.last = moment
	s.dir = dir.path
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
		}
		d.came[name] = moment
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

// startsFinding returns the finding that starts fail, none while they do not.
func (p *pass) startsFinding(ctx context.Context) []facts.Finding {
	s := &p.started
	runtime, err := p.Table.Alive(s.runtime.PID)
	if !s.proven || err != nil {
		return nil
	}
	culprit, alsoSeen := p.culpritOfStarts(ctx)
	c := facts.Chain{At: time.Now(), Links: []facts.Link{{
		Kind: facts.KindRuntime, Name: runtime.Comm, PID: runtime.PID, State: facts.LinkFailing, Since: s.since,
		Evidence: s.text() + alsoSeen,
	}}}
	if culprit != nil {
		c.Links = append(c.Links, *culprit)
	}
	return []facts.Finding{{Reason: podStartsFailing, Since: s.since, Chain: c}}
}

// culpritOfStarts returns what makes starts fail: a cgroup that is at a limit, cgroups that are mounted read-only, a
// program that cannot be started, or a process that writes to one; nil where none is seen. alsoSeen is what may be why, "" for nothing.
func (p *pass) culpritOfStarts(ctx context.Context) (culprit *facts.Link, alsoSeen string) {
	cgroup, isExhausted := p.exhausted(ctx)
	if isExhausted {
		return &cgroup, ""
	}
	mount := p.readOnlyCgroups(ctx)
	if mount != nil {
		return mount, ""
	}
	broken, changed := p.programs(ctx)
	if broken != nil {
		return broken, ""
	}
	return nil, changed + p.lowLimits()
}
