package ledger

import (
	"context"
	"fmt"
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
	// watchTime is how long the directories are watched in one pass until a start is seen to fail, watchEvery the rest
	// between two looks.
	watchTime  = 3 * time.Second
	watchEvery = 10 * time.Millisecond
	// watchGap is less than a pod takes to be stopped and removed: between two looks that are farther apart one that was
	// started may have gone.
	watchGap = 30 * time.Millisecond
	// maxAsked bounds the entries that the runtime is asked for at each look.
	maxAsked = 4
	// kubeletCalls stands for a directory where the kubelet's metrics show failed starts.
	kubeletCalls = "the kubelet's calls"
	// startsOver is the time without a failed start after which starts no longer fail.
	startsOver = time.Minute
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
	// underWay are the entries of starts that have not ended, and when they were first seen.
	underWay map[string]time.Time
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
	s.underWay = s.pending(p.moment)
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
	s.believe(p.StartsFail(), p.moment)
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

// believe counts what the kubelet's metrics show as proven: that starts fail since some time, zero for none.
func (s *starts) believe(since, moment time.Time) {
	if since.IsZero() || s.proven && s.dir != kubeletCalls {
		return
	}
	s.proven = true
	s.since = since
	s.last = moment
	s.dir = kubeletCalls
}

// seesSuccess reports whether a start has succeeded since the last list of a pass, or one of those of some entries has.
func (p *pass) seesSuccess(ctx context.Context, names []string) bool {
	return slices.ContainsFunc(newIn(p.Listed(), p.lastListed), hasBegun) ||
		slices.ContainsFunc(names[:min(len(names), maxAsked)], func(name string) bool { return p.isKnown(ctx, name) })
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

// areOfNetwork reports whether the starts fail before the runtime makes a bundle, for which it has made a network.
func (s *starts) areOfNetwork() bool {
	showsNetwork := s.dir == namespaces || s.dir == sandboxList
	showsBundles := slices.ContainsFunc(s.dirs, func(d *startDir) bool { return d.path != namespaces })
	return showsNetwork && showsBundles && s.bundled.Before(s.since)
}

// text describes the failed starts.
func (s *starts) text() string {
	since := s.since.UTC().Format(clock)
	if s.dir == kubeletCalls {
		return fmt.Sprintf("run_podsandbox: the kubelet's calls fail since %s and none succeeds", since)
	}
	if s.dir == sandboxList {
		return fmt.Sprintf("sandboxes of at least %d new pods were never ready since %s, and no new one is; this does not show what made them fail",
			failedStarts, since)
	}
	return fmt.Sprintf("at least %d starts failed since %s, each within seconds: its entry in %s came and went, and no new pod or container is listed; this does not show what made them fail",
		failedStarts, since, s.dir)
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

// startsFinding returns the finding that starts fail, none while they do not.
func (p *pass) startsFinding(ctx context.Context) []facts.Finding {
	s := &p.started
	runtime, err := p.Table.Alive(s.runtime.PID)
	if !s.proven || err != nil {
		return nil
	}
	culprit, alsoSeen := p.culpritOfStarts(ctx)
	if s.dir == kubeletCalls && culprit == nil && alsoSeen == "" { // which says no more than the metrics
		return nil
	}
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
