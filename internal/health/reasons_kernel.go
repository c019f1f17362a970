package health

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// blockedAfter is how long a thread must be in D, without having run, while calls are slow or hang, lockedAfter
	// how long a file lock must be waited for; whileServing is the same for both while the lists are answered.
	blockedAfter = 2 * time.Second
	lockedAfter  = time.Second
	whileServing = 10 * time.Second
	// ioPressure is the per cent of time in which the cgroup waits for I/O where no wait channel can be read.
	ioPressure = 20
	memoryNear = 0.95 // the share of a memory limit from which it counts as met
	// memoryPressure is the share of time, in per cent, that all of the cgroup's tasks must wait for memory,
	// refaultsMany how many pages a second must be read again where the kernel has no pressure of a cgroup.
	memoryPressure = 20
	refaultsMany   = 50
	// starvedDelay is the time a second that the runtime must wait for a CPU, starvedShare that time's share of all
	// that it wanted, starvedWait how long each wait must take: on a busy node they are many and brief.
	starvedDelay      = 0.5
	starvedShare      = 0.8
	starvedWait       = 100 * time.Millisecond
	timesWithoutPause = 5 * time.Second // how long after a pause the waits for a CPU are those of the time since
	// throttledLately is how long after its quota took time the runtime's waits for a CPU are its quota's.
	throttledLately = 3 * time.Second
	// throttledUnseen is how much older than the process's evidence the cgroup's may be to speak of the same wait.
	throttledUnseen = 2 * time.Second
)

// patience is how long something must last while relists suffer, or else whileServing.
func (w *view) patience(suffering time.Duration) time.Duration {
	if w.relistSuffers() {
		return suffering
	}
	return whileServing
}

// memoryLimited finds the level of the cgroup whose memory limit holds the runtime up: threads wait for memory, or
// relists are slow, now or lately, while its tasks are out of memory or meet the limit again and again and wait.
func memoryLimited(w *view) (out lines) {
	waiting, full := w.blockedIn(waitMemory, w.patience(0)), w.cgroup.OwnPressure().MemoryFull
	suffers := w.relistSuffers() || w.listsSlowLately(RuntimeMemoryLimited)
	for _, l := range w.cgroup.MemoryLimits {
		name, limit := limitMet(&l)
		thrashes := full >= 0 && w.near(RuntimeMemoryLimited, full, memoryPressure, 1, calmShare) ||
			full < 0 && l.Refaults >= refaultsMany
		stalls := suffers && (l.OOM || l.HighEvents+l.MaxEvents > 0 && thrashes)
		if name == "" || !w.process.Alive || len(waiting) == 0 && !stalls {
			continue
		}
		out.add("cgroup %s uses %s of %s %s", l.Path, facts.SizeText(l.Usage), name, facts.SizeText(limit))
		out.when(l.OOM, "its tasks are out of memory and wait (under_oom 1)")
		out.when(l.HighEvents > 0, "memory.high was met %d times within seconds", l.HighEvents)
		out.when(l.MaxEvents > 0, "the limit was met %d times within seconds", l.MaxEvents)
		out.when(l.OOMKills > 0, "%d killed for it", l.OOMKills)
		out.when(full >= 0, "memory pressure of the runtime's cgroup: full %.0f %% of the last 10s", full)
		out.text(w.blockedText(waiting))
		return append(out, w.callEvidence()...)
	}
	return nil
}

// met returns which of a level's limits its usage has come to, "" for none: just now, or
// within the last samples. What the kernel takes back at once is more than a twentieth of
// a small limit, and tasks that are out of memory wait on below it.
func limitMet(l *facts.MemoryLimit) (name string, limit int64) {
	switch near := func(limit int64) bool { return float64(l.Usage) >= memoryNear*float64(limit) }; {
	case l.Max > 0 && (l.MaxEvents > 0 || l.OOM || near(l.Max)):
		return "its limit (max)", l.Max
	case l.High > 0 && (l.HighEvents > 0 || near(l.High)):
		return "its throttling limit (high)", l.High
	}
	return "", 0
}

func storageStalled(w *view) (out lines) {
	because, threads := "", w.blockedIn(waitStorage, w.patience(blockedAfter))
	if len(threads) == 0 && w.relistSuffers() {
		if because = w.blockIO(); because != "" {
			threads = w.blockedIn(waitUnread, blockedAfter)
		}
	}
	if len(threads) == 0 || w.freezerHoldsThreads() {
		return nil
	}
	out.add("%s: %s", w.process.ShortName(), w.blockedText(threads))
	out.text(because)
	return append(out, w.callEvidence()...)
}

// blockIO says what speaks for a wait for the disk where the wait channels cannot be read; "" for nothing.
func (w *view) blockIO() string {
	if w.process.BlockIODelay {
		return "its time in block I/O rises"
	}
	if some := w.cgroup.OwnPressure().IOSome; some >= ioPressure {
		return fmt.Sprintf("I/O pressure of the runtime's cgroup: some %.0f %% of the last 10s", some)
	}
	return ""
}

func storageLocked(w *view) lines {
	p := w.process
	if !p.Alive || p.Lock == nil || w.age(p.Lock.Since) < w.patience(lockedAfter) {
		return nil
	}
	holder := "a process that /proc/locks does not name"
	if p.Lock.HolderPID > 0 {
		holder = facts.ProcessName(p.Lock.HolderPID, p.Lock.HolderComm, "", "")
	}
	return line("pid %d waits for a lock on %s, held by %s, for %s", p.PID, p.Lock.File, holder, w.ago(p.Lock.Since))
}

func starved(w *view) (out lines) {
	p, c, n := w.process, w.cgroup, w.node
	// A wait for the runtime's own quota is RuntimeThrottled. A list that exceeds a limit is refused at once.
	if !p.Alive || !w.waitsForCPU() || w.f.Evidence.Cgroup == nil || w.quotaTakesTime() || w.refused() != nil {
		return nil
	}
	if !w.listsSuffer() && !w.listsSlowLately(RuntimeStarved) && !w.notAccepting() {
		return nil
	}
	out.add("%s: its threads waited for a CPU for %.2gs a second, %s each time, and ran for %.2gs", p.ShortName(), p.Delay,
		facts.Seconds(p.DelayPerRun), p.CPU)
	some := c.OwnPressure().CPUSome
	out.when(some >= 0, "CPU pressure of the runtime's cgroup: some %.0f %% of the last 10s", some)
	out.when(n.CPUIdle >= 0, "the node's CPUs are idle for %.0f %%", 100*n.CPUIdle)
	return append(out, w.callEvidence()...)
}

// waitsForCPU reports whether the runtime waits for a CPU for most of the time and long each time; a pause is none.
func (w *view) waitsForCPU() bool {
	p, woke := w.process, w.f.Woke
	return (woke.IsZero() || p.At.Sub(woke) >= timesWithoutPause) &&
		p.Delay >= starvedDelay && p.Delay >= starvedShare*(p.Delay+p.CPU) && p.DelayPerRun >= starvedWait
}

// quotaTakesTime reports whether the runtime's own quota takes time from it, has just done so,
// or may have: the cgroup was last read before the wait that the process shows.
func (w *view) quotaTakesTime() bool {
	c, p := w.f.Evidence.Cgroup, w.process
	if c == nil {
		return false
	}
	lately := !c.ThrottledAt.IsZero() && p.At.Sub(c.ThrottledAt) <= throttledLately
	return c.Throttled > 0 || lately || p.At.Sub(c.At) > throttledUnseen
}

func threadStuck(w *view) lines {
	if out := w.chainEvidence(RuntimeThreadStuck); out != nil && w.hop == nil {
		return out
	}
	threads := w.blockedIn(waitOther, whileServing)
	if len(threads) == 0 || w.freezerHoldsThreads() {
		return nil
	}
	return line("%s: %s", w.process.ShortName(), w.blockedText(threads))
}
