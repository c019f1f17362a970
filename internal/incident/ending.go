package incident

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
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
	p := e.Process
	children := e.Children
	cgroup := e.Cgroup
	return (p == nil || p.At.After(end)) && (children == nil || children.At.After(end)) &&
		(cgroup == nil || cgroup.At.After(end))
}

// ending collects the changes at the end of an incident, one sentence for a subject.
type ending struct {
	end       time.Time // of the incident
	sentences []string
	subjects  map[any]bool
}

func (e *ending) add(subject any, format string, args ...any) {
	if !e.subjects[subject] {
		e.subjects[subject] = true
		e.sentences = append(e.sentences, fmt.Sprintf(format, args...))
	}
}

// explainEnd returns what samples taken after the end show to be different from the evidence
// before the incident and in its moments, a sentence for each subject. Without such a sample
// it returns nothing. Only the start in ticks since boot tells a process from a later one
// with the same pid.
func explainEnd(healthy *facts.Snapshot, one *Incident, final *facts.Snapshot, end time.Time,
	look func(pid int) Sighting) []string {
	e := &ending{end: end, sentences: []string{}, subjects: map[any]bool{}}
	latest := &final.Facts.Evidence
	moments := slices.Insert(slices.Clone(one.Timeline), 0, Moment{Snapshot: healthy})
	for i, m := range moments {
		during := &m.Snapshot.Facts.Evidence
		e.restarts(during, latest)
		lasted := m.Snapshot.At.Before(end) && (i+1 == len(moments) || end.Sub(moments[i+1].Snapshot.At) <= conditionAge)
		if !lasted {
			continue
		}
		e.continued(&during.Hop, &latest.Hop)
		e.children(during.Children, latest.Children)
		e.cgroup(during.Cgroup, latest.Cgroup)
		e.descriptors(&during.Hop, &latest.Hop)
		e.storage(during.Storage, latest.Storage)
	}
	best := one.Evidence()
	if best != nil && best.Culprit != nil && best.ChainEnd == "" {
		e.culprit(best.Culprit, look)
	}
	return e.sentences
}

// restarts tells new processes of the runtime, the hops behind it and the kubelet.
func (e *ending) restarts(during, latest *facts.Evidence) {
	e.restarted("runtime", during.Process, latest.Process)
	for i := range during.Hops {
		for n := range latest.Hops {
			if during.Hops[i].Socket == latest.Hops[n].Socket {
				e.restarted(during.Hops[i].Socket, during.Hops[i].Process, latest.Hops[n].Process)
			}
		}
	}
	old := during.KubeletProcess
	k := latest.KubeletProcess
	known := old != nil && old.StartTicks > 0 && k != nil && k.StartTicks > 0
	if known && (old.PID != k.PID || old.StartTicks != k.StartTicks) {
		e.add("kubelet", "The kubelet was restarted: pid %d before, pid %d since %s.", old.PID, k.PID, clock(k.Started))
	}
}

func (e *ending) restarted(subject string, old, p *facts.Process) {
	if !started(old) || !started(p) || !p.At.After(e.end) {
		return
	}
	if old.PID != p.PID || old.StartTicks != p.StartTicks {
		e.add(subject, "%s was restarted: pid %d before, pid %d since %s.", p.Comm, old.PID, p.PID, clock(p.Start))
	}
}

// continued tells a runtime that was stopped.
func (e *ending) continued(during, latest *facts.Hop) {
	old := during.Process
	p := latest.Process
	if started(old) && started(p) && p.At.After(e.end) && old.Stopped() && !p.Stopped() {
		e.add("runtime", "%s, pid %d, was stopped and was continued. It was not restarted.", p.Comm, p.PID)
	}
}

// children tells shims and helpers that were stuck.
func (e *ending) children(during, latest *facts.Children) {
	if during == nil || latest == nil || !latest.At.After(e.end) {
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
		if !slices.ContainsFunc(latest.Old, func(s facts.Child) bool { return s.PID == c.PID }) {
			e.add(c.PID, "%s, pid %d, has ended.", c.Comm, c.PID)
		}
	}
}

// cgroup tells a runtime's cgroup that was frozen, throttled or limited.
func (e *ending) cgroup(during, latest *facts.Cgroup) {
	if during == nil || latest == nil || during.Path != latest.Path || !latest.At.After(e.end) {
		return
	}
	switch {
	case during.Frozen && !latest.Frozen:
		e.add("cgroup", "The cgroup %s was frozen and was thawed.", latest.Path)
	case during.Throttled >= minThrottled && latest.Throttled == 0:
		e.add("cgroup", "Its CPU quota no longer throttles the cgroup %s, which lost %.0f%% of its time.", latest.Path,
			100*during.Throttled)
	}
	e.limits(during, latest)
}

// limits tells limits of the runtime's cgroup that were raised.
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
	if !started(old) || !started(p) || old.StartTicks != p.StartTicks || old.MaxFDs <= 0 || !p.At.After(e.end) {
		return
	}
	switch {
	case p.MaxFDs > old.MaxFDs:
		e.add("descriptors", "The limit of open files of %s, pid %d, was raised from %d to %d.", p.Comm, p.PID, old.MaxFDs, p.MaxFDs)
	case low(old.MaxFDs-old.OpenFDs, old.MaxFDs) && !low(p.MaxFDs-p.OpenFDs, p.MaxFDs):
		e.add("descriptors", "%s, pid %d, had %d of %d files open and has %d.", p.Comm, p.PID, old.OpenFDs, old.MaxFDs, p.OpenFDs)
	}
}

// storage tells a file system that was full or read-only.
func (e *ending) storage(during, latest *facts.Storage) {
	if during == nil || latest == nil || !latest.At.After(during.At) {
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
	name := fmt.Sprintf("%s %s", l.Kind, l.Name)
	if l.PID == 0 {
		if words := released[l.State]; words != "" {
			e.add(name, "The %s %s: the calls that waited for it are answered.", name, words)
		}
		return
	}
	if len(e.sentences) > 0 {
		return // of the same process, or of what held it
	}
	seen := look(l.PID)
	if !seen.Known {
		return
	}
	stopped := l.State == facts.LinkStopped || l.State == facts.LinkTraced
	switch {
	case !seen.Alive || seen.Comm != l.Name:
		e.add(l.PID, "The %s, pid %d, has ended.", name, l.PID)
	case stopped && !seen.Stopped:
		e.add(l.PID, "The %s, pid %d, was stopped and was continued.", name, l.PID)
	case released[l.State] != "":
		e.add(l.PID, "The %s, pid %d, %s.", name, l.PID, released[l.State])
	}
}

// started reports whether a process is running and its start known.
func started(p *facts.Process) bool { return p != nil && p.Alive && p.StartTicks > 0 }

func clock(t time.Time) string { return t.UTC().Format("15:04:05 MST") }
