package incident

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

const (
	conditionAge = 10 * time.Second // at the end, of a condition that may have ended with the incident
	minThrottled = 0.2              // the share of time lost to the CPU quota that counts
	// File descriptors count as nearly used up below one part in lowShare that is free: where
	// FDsRunningOut ends.
	lowShare = 4
)

// Sighting is the state of a process at the end of an incident.
type Sighting struct {
	Known bool // whether the process could be looked for
	Alive bool
	Comm  string
	// Stopped is true while it is stopped by a signal or a tracer.
	Stopped bool
}

// sampled reports whether the samples that can show the end are newer than it.
func sampled(e *facts.Evidence, end time.Time) bool {
	if e.Children != nil && !e.Children.At.After(end) {
		return false
	}
	for _, name := range []string{"process", "cgroup", "children"} {
		if source, known := e.Sources[name]; known && !source.Up {
			return false
		}
	}
	return !slices.ContainsFunc(append([]facts.Hop{e.Hop}, e.Hops...), func(h facts.Hop) bool {
		processIsOlder := h.Process != nil && (!h.Process.At.After(end) || !h.Process.Alive)
		return processIsOlder || h.Cgroup != nil && !h.Cgroup.At.After(end)
	})
}

// ending collects the changes at the end of an incident, one sentence for a subject.
type ending struct {
	sentences []string
	subjects  map[any]bool
	otherwise string // the sentence where there is no other one: about a symptom
}

func (e *ending) add(subject any, format string, args ...any) {
	if !e.subjects[subject] {
		e.subjects[subject] = true
		e.sentences = append(e.sentences, fmt.Sprintf(format, args...))
	}
}

// explainEnd returns what the last samples show to be different from the evidence before the
// incident and in its moments, a sentence for each subject. Only the start in ticks since boot
// tells a process from a later one with the same pid.
func explainEnd(healthy *facts.Snapshot, one *Incident, final *facts.Snapshot, end time.Time,
	look func(pid int) Sighting) []string {
	e := &ending{sentences: []string{}, subjects: map[any]bool{}}
	latest := &final.Facts.Evidence
	moments := slices.Insert(slices.Clone(one.Timeline), 0, Moment{Snapshot: healthy})
	for i, m := range moments {
		during := &m.Snapshot.Facts.Evidence
		e.restarts(during, latest)
		lasted := m.Snapshot.At.Before(end) && (i+1 == len(moments) || end.Sub(moments[i+1].Snapshot.At) <= conditionAge)
		if !lasted {
			continue
		}
		for old, h := range hops(during, latest) {
			e.continued(old, h)
			e.cgroup(old, h)
			e.descriptors(old, h)
			e.waits(m.Snapshot, old, h)
		}
		e.children(during.Children, latest.Children)
		e.storage(during.Storage, latest.Storage)
		e.answers(&m.Snapshot.Facts, &final.Facts)
	}
	best := one.Evidence()
	if best != nil && best.Culprit != nil && best.ChainEnd == "" {
		e.culprit(best.Culprit, look)
	}
	if len(e.sentences) == 0 && e.otherwise != "" {
		e.sentences = append(e.sentences, e.otherwise)
	}
	return e.sentences
}

// hops yields the runtime and the hops behind it, as they were and as they are.
func hops(during, latest *facts.Evidence) iter.Seq2[*facts.Hop, *facts.Hop] {
	return func(yield func(old, h *facts.Hop) bool) {
		if !yield(&during.Hop, &latest.Hop) {
			return
		}
		for i := range during.Hops {
			old := &during.Hops[i]
			n := slices.IndexFunc(latest.Hops, func(h facts.Hop) bool { return h.Socket == old.Socket })
			if n >= 0 && !yield(old, &latest.Hops[n]) {
				return
			}
		}
	}
}

// restarts tells new processes of the runtime, the hops behind it and the kubelet.
func (e *ending) restarts(during, latest *facts.Evidence) {
	for old, h := range hops(during, latest) {
		p := h.Process
		wasKnown := old.Process != nil && old.Process.StartTicks > 0 // dead or alive
		if wasKnown && started(p) && !isSame(old, h) {
			e.add(h.Socket, "%s was restarted: pid %d before, pid %d since %s.", p.Comm, old.Process.PID, p.PID, clock(p.Start))
		}
	}
	old := during.KubeletProcess
	k := latest.KubeletProcess
	known := old != nil && old.StartTicks > 0 && k != nil && k.StartTicks > 0
	if known && (old.PID != k.PID || old.StartTicks != k.StartTicks) {
		e.add("kubelet", "The kubelet was restarted: pid %d before, pid %d since %s.", old.PID, k.PID, clock(k.Started))
	}
}

// isSame reports whether a hop has the process that it had.
func isSame(old, h *facts.Hop) bool {
	return started(h.Process) && old.Process != nil && old.Process.PID == h.Process.PID &&
		old.Process.StartTicks == h.Process.StartTicks
}

// continued tells a process that was stopped.
func (e *ending) continued(old, h *facts.Hop) {
	p := h.Process
	if isSame(old, h) && old.Process.Stopped() && !p.Stopped() {
		e.add(h.Socket, "%s, pid %d, was stopped and was continued. It was not restarted.", p.Comm, p.PID)
	}
}

// children tells shims and helpers that were stuck.
func (e *ending) children(during, latest *facts.Children) {
	if during == nil || latest == nil {
		return
	}
	for _, c := range during.Stuck {
		if slices.ContainsFunc(latest.Stuck, func(s facts.Child) bool { return s.PID == c.PID }) {
			continue
		}
		words := map[string]string{"T": "stopped", "F": "frozen"}
		e.add(c.PID, "%s, pid %d, is no longer %s.", c.Comm, c.PID, cmp.Or(words[c.State], "blocked in state "+c.State))
	}
	for _, c := range during.Old {
		switch {
		case slices.ContainsFunc(latest.Old, func(s facts.Child) bool { return s.PID == c.PID }):
		case c.State == "T" || c.State == "F": // it may have been continued
			e.add(c.PID, "%s, pid %d, no longer stands still.", c.Comm, c.PID)
		default:
			e.add(c.PID, "%s, pid %d, has ended.", c.Comm, c.PID)
		}
	}
}

// cgroup tells a cgroup that was frozen, throttled or limited.
func (e *ending) cgroup(old, h *facts.Hop) {
	during := old.Cgroup
	latest := h.Cgroup
	if during == nil || latest == nil {
		return
	}
	if during.Frozen && !latest.Frozen && isSame(old, h) { // during.Path is the level that was frozen
		e.add("cgroup "+during.Path, "The cgroup %s was frozen and was thawed.", during.Path)
	}
	if during.Path != latest.Path {
		return
	}
	if during.Throttled >= minThrottled && latest.Throttled == 0 {
		e.add("cgroup "+latest.Path, "Its CPU quota no longer throttles the cgroup %s, which lost %.0f%% of its time.", latest.Path,
			100*during.Throttled)
	}
	e.limits(during, latest)
}

// limits tells limits of a cgroup that were raised.
func (e *ending) limits(during, latest *facts.Cgroup) {
	if during.PIDsMax > 0 && (latest.PIDsMax > during.PIDsMax || latest.PIDsMax == 0) {
		e.add("pids", "The limit of %d tasks of the cgroup %s was raised.", during.PIDsMax, latest.Path)
	}
	for _, old := range during.MemoryLimits {
		for _, limit := range latest.MemoryLimits {
			if old.Path == limit.Path && (raised(old.Max, limit.Max) || raised(old.High, limit.High)) {
				e.add("memory "+old.Path, "The memory limit of the cgroup %s was raised.", old.Path)
			}
		}
	}
}

// raised reports whether a limit, 0 for none, is higher than it was.
func raised(old, limit int64) bool { return old > 0 && (limit == 0 || limit > old) }

// descriptors tells a process that had used up its file descriptors.
func (e *ending) descriptors(during, latest *facts.Hop) {
	old := during.Process
	p := latest.Process
	if !isSame(during, latest) || old.MaxFDs <= 0 {
		return
	}
	switch {
	case p.MaxFDs > old.MaxFDs:
		e.add("descriptors"+latest.Socket, "The limit of open files of %s, pid %d, was raised from %d to %d.", p.Comm, p.PID, old.MaxFDs, p.MaxFDs)
	case p.OpenFDs >= 0 && low(old.MaxFDs-old.OpenFDs, old.MaxFDs) && !low(p.MaxFDs-p.OpenFDs, p.MaxFDs):
		e.add("descriptors"+latest.Socket, "%s, pid %d, had %d of %d files open and has %d.", p.Comm, p.PID, old.OpenFDs, old.MaxFDs, p.OpenFDs)
	}
}

// waits notes what the process of the moment's primary reason waited for and no longer does.
func (e *ending) waits(m *facts.Snapshot, during, latest *facts.Hop) {
	old := during.Process
	p := latest.Process
	if !isSame(during, latest) || e.otherwise != "" || health.Subject(m.Facts.At(m.Hop), m.Reason) != p.PID {
		return
	}
	if old.Lock != nil && p.Lock == nil {
		e.otherwise = fmt.Sprintf("%s, pid %d, waited for a lock of %s, which was released.", p.Comm, p.PID, old.Lock.File)
		return
	}
	for _, t := range old.Blocked {
		if !slices.ContainsFunc(p.Blocked, func(b facts.BlockedThread) bool { return b.TID == t.TID }) {
			e.otherwise = fmt.Sprintf("Thread %d of %s, pid %d, no longer waits in %s.", t.TID, p.Comm, p.PID,
				cmp.Or(t.Channel, "the kernel"))
			return
		}
	}
}

// answers notes that a condition of Status was false, or that fresh connections failed.
func (e *ending) answers(during, latest *facts.Facts) {
	probe := &during.Probe
	old := &during.Status
	current := &latest.Status
	switch {
	case e.otherwise != "":
	case isTrueAgain(old.RuntimeReady, current.RuntimeReady):
		e.otherwise = "Status says RuntimeReady=true; it said " + old.RuntimeReady.KubeletText("RuntimeReady") + "."
	case isTrueAgain(old.NetworkReady, current.NetworkReady):
		e.otherwise = "Status says NetworkReady=true; it said " + old.NetworkReady.KubeletText("NetworkReady") + "."
	case !probe.OK && !probe.FailedSince.IsZero() && latest.Probe.OK:
		e.otherwise = fmt.Sprintf("Fresh connections to %s failed (%s) and are answered.", during.Endpoint.Path,
			strings.ReplaceAll(string(probe.Cause), "_", " "))
	}
}

// isTrueAgain reports whether a condition was false and is true.
func isTrueAgain(old, current *facts.Condition) bool {
	return old != nil && !old.Status && current.Good()
}

// storage tells a file system that was full, read-only or lost.
func (e *ending) storage(during, latest *facts.Storage) {
	if during == nil || latest == nil {
		return
	}
	for _, old := range during.FileSystems {
		for _, f := range latest.FileSystems {
			if old.Directory == f.Directory {
				e.fileSystem(&old, &f)
			}
		}
	}
}

func (e *ending) fileSystem(old, f *facts.FileSystem) {
	switch {
	case old.Lost && !f.Lost:
		e.add(f.Directory, "What the runtime has open is at %s again.", f.Directory)
	case old.ReadOnly && !f.ReadOnly:
		e.add(f.Directory, "The file system of %s was read-only and can be written.", f.Directory)
	case old.LacksSpace(facts.StorageStill) && !f.LacksSpace(facts.StorageStill):
		e.add(f.Directory, "The file system of %s had %s free and has %s.", f.Directory,
			facts.SizeText(old.FreeBytes), facts.SizeText(f.FreeBytes))
	case old.LacksInodes(facts.StorageStill) && !f.LacksInodes(facts.StorageStill):
		e.add(f.Directory, "The file system of %s had %d inodes free and has %d.", f.Directory, old.FreeInodes, f.FreeInodes)
	}
}

// low reports whether a limit is nearly used up.
func low(free, limit int) bool { return free < limit/lowShare }

// released says what ended a wait for a link of the chain, by the state that it was in.
var released = map[facts.LinkState]string{
	facts.LinkFrozen:  "was frozen and was thawed",
	facts.LinkBlocked: "did not answer and answers",
	facts.LinkLocked:  "waited for a lock, which was released",
	facts.LinkMemory:  "was held by a memory limit, which was lifted",
}

// culprit tells what became of the end of the chain.
func (e *ending) culprit(l *facts.Link, look func(pid int) Sighting) {
	if len(e.sentences) > 0 && l.Kind != facts.KindMount {
		return // of the same process, or of what held it
	}
	name := fmt.Sprintf("%s %s", l.Kind, l.Name)
	if l.PID == 0 {
		if words := released[l.State]; words != "" {
			e.add(name, "The %s %s: the calls that waited for it are answered.", name, words)
		}
		return
	}
	seen := look(l.PID)
	if !seen.Known {
		return
	}
	stopped := l.State == facts.LinkStopped || l.State == facts.LinkTraced
	switch {
	case !seen.Alive || plain.Text(seen.Comm) != l.Name:
		e.add(l.PID, "The %s, pid %d, has ended.", name, l.PID)
	case stopped && !seen.Stopped:
		e.add(l.PID, "The %s, pid %d, was stopped and was continued.", name, l.PID)
	case released[l.State] != "":
		e.add(l.PID, "The %s, pid %d, %s.", name, l.PID, released[l.State])
	case !stopped:
		e.add(l.PID, "The %s, pid %d, still runs and no longer holds anything up.", name, l.PID)
	}
}

// started reports whether a process is running and its start known.
func started(p *facts.Process) bool { return p != nil && p.Alive && p.StartTicks > 0 }

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
