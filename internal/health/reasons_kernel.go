package health

import (
	"fmt"
	"time"
)

const (
	// blockedAfter is how long a thread must be in D, without having run, while
	// calls are slow or hang; blockedWhileServing while the lists are answered.
	blockedAfter        = 2 * time.Second
	blockedWhileServing = 10 * time.Second
	// lockedAfter and lockedWhileServing are the same of a file lock that is waited for.
	lockedAfter        = time.Second
	lockedWhileServing = 10 * time.Second
	// ioPressure is the share of time, in per cent, that the cgroup must wait
	// for I/O where the wait channels cannot be read.
	ioPressure = 20
	// memoryNear is the share of a memory limit from which it counts as met.
	memoryNear = 0.95
	// memoryPressure is the share of time, in per cent, that all of the cgroup's
	// tasks must wait for memory, refaultsMany how many pages a second must be
	// read again where the kernel has no pressure of a cgroup.
	memoryPressure = 20
	refaultsMany   = 50
	// starvedDelay is the time a second that the runtime must wait for a CPU,
	// starvedShare that time's share of all that it wanted, starvedWait how long
	// each wait must take: on a busy node they are many and brief.
	starvedDelay = 0.5
	starvedShare = 0.8
	starvedWait  = 100 * time.Millisecond
	// timesWithoutPause is how long after a pause the waits for a CPU are those of
	// the time since.
	timesWithoutPause = 5 * time.Second
	// throttledLately is how long after its quota took time the runtime's waits
	// for a CPU are its quota's.
	throttledLately = 3 * time.Second
	// throttledUnseen is how much older than the process's evidence the cgroup's
	// may be to speak of the same wait.
	throttledUnseen = 2 * time.Second
)

// kernelReasons speak of what the kernel makes the runtime wait for: memory, a
// CPU, a disk or mount, a file lock.
var kernelReasons = []Reason{
	{
		ID: RuntimeMemoryLimited, hops: true, Layer: LayerProcess, Severity: SeverityWarning,
		criticalWhile: (*view).relistSuffers,
		match:         memoryLimited,
	},
	{
		ID: RuntimeStorageStall, hops: true, Layer: LayerProcess, Severity: SeverityWarning,
		criticalWhile: (*view).relistSuffers,
		match:         storageStalled,
	},
	{
		ID: RuntimeStorageLocked, hops: true, Layer: LayerProcess, Severity: SeverityWarning,
		criticalWhile: (*view).relistSuffers,
		match:         storageLocked,
	},
	{
		ID: RuntimeStarved, hops: true, Layer: LayerProcess, Severity: SeverityCritical,
		match: starved,
	},
	{
		ID: RuntimeThreadStuck, hops: true, Layer: LayerProcess, Severity: SeverityWarning,
		criticalWhile: (*view).listsSuffer,
		match:         threadStuck,
	},
}

// memoryLimited finds the level of the cgroup whose memory limit holds the
// runtime up.
func memoryLimited(w *view) []string {
	c, p := w.f.Evidence.Cgroup, w.f.Evidence.Process
	if c == nil || p == nil || !p.Alive {
		return nil
	}
	least := time.Duration(0)
	if !w.relistSuffers() {
		least = blockedWhileServing
	}
	waiting := w.blockedIn(waitMemory, least)
	for i := range c.MemoryLimits {
		l := &c.MemoryLimits[i]
		if name, limit, met := l.met(); met && (len(waiting) > 0 || w.memoryStalls(l)) {
			out := append([]string{fmt.Sprintf("cgroup %s uses %s of %s %s", l.Path, sizeText(l.Usage), name,
				sizeText(limit))}, l.events()...)
			if pr := c.Pressure; pr != nil && pr.MemoryFull >= 0 {
				out = append(out, fmt.Sprintf("memory pressure of the runtime's cgroup: full %.0f %% of the last 10s",
					pr.MemoryFull))
			}
			if len(waiting) > 0 {
				out = append(out, w.blockedText(waiting))
			}
			return append(out, w.callEvidence()...)
		}
	}
	return nil
}

// memoryStalls reports whether relists are slow because of a level of the cgroup whose
// limit is met, although no thread is seen to wait for memory. One that did may
// stay slow while a call is answered in between.
func (w *view) memoryStalls(l *MemoryLimit) bool {
	return (w.relistSuffers() || w.listsSlowLately(RuntimeMemoryLimited)) && (l.OOM || w.thrashes(l))
}

// thrashes reports whether a limit that is met again and again makes the runtime's
// cgroup wait for memory.
func (w *view) thrashes(l *MemoryLimit) bool {
	if l.HighEvents+l.MaxEvents == 0 {
		return false
	}
	if pr := w.f.Evidence.Cgroup.Pressure; pr != nil && pr.MemoryFull >= 0 {
		return w.near(RuntimeMemoryLimited, pr.MemoryFull, memoryPressure, 1, calmShare)
	}
	return l.Refaults >= refaultsMany
}

// met returns which of a level's limits its usage has come to: just now, or within
// the last samples. What the kernel takes back at once is more than a twentieth of
// a small limit, and tasks that are out of memory wait on below it.
func (l *MemoryLimit) met() (name string, limit int64, met bool) {
	near := func(limit int64) bool { return limit > 0 && float64(l.Usage) >= memoryNear*float64(limit) }
	lately := l.MaxEvents > 0 || l.OOM
	switch {
	case near(l.Max) || l.Max > 0 && lately:
		return "its limit (max)", l.Max, true
	case near(l.High) || l.High > 0 && l.HighEvents > 0:
		return "its throttling limit (high)", l.High, true
	}
	return "", 0, false
}

// events says how often a limit was met within the last samples.
func (l *MemoryLimit) events() (out []string) {
	if l.OOM {
		out = append(out, "its tasks are out of memory and wait (under_oom 1)")
	}
	if n := l.HighEvents; n > 0 {
		out = append(out, fmt.Sprintf("memory.high was met %d times within seconds", n))
	}
	if n := l.MaxEvents; n > 0 {
		out = append(out, fmt.Sprintf("the limit was met %d times within seconds", n))
	}
	if n := l.OOMKills; n > 0 {
		out = append(out, fmt.Sprintf("%d killed for it", n))
	}
	return out
}

func storageStalled(w *view) []string {
	p := w.f.Evidence.Process
	if p == nil || !p.Alive || w.freezerHoldsThreads() {
		return nil
	}
	least := blockedAfter
	if !w.relistSuffers() {
		least = blockedWhileServing
	}
	because := ""
	threads := w.blockedIn(waitStorage, least)
	if len(threads) == 0 && w.relistSuffers() {
		threads, because = w.blockedIn(waitUnread, blockedAfter), w.blockIO()
	}
	if len(threads) == 0 || waitOf(&threads[0]) == waitUnread && because == "" {
		return nil
	}
	out := []string{fmt.Sprintf("pid %d (%s): %s", p.PID, p.Comm, w.blockedText(threads))}
	if because != "" {
		out = append(out, because)
	}
	return append(out, w.callEvidence()...)
}

// blockIO says what speaks for a wait for the disk where the wait channels cannot
// be read; "" for nothing.
func (w *view) blockIO() string {
	if w.f.Evidence.Process.BlockIODelay {
		return "its time in block I/O rises"
	}
	if c := w.f.Evidence.Cgroup; c != nil && c.Pressure != nil && c.Pressure.IOSome >= ioPressure {
		return fmt.Sprintf("I/O pressure of the runtime's cgroup: some %.0f %% of the last 10s", c.Pressure.IOSome)
	}
	return ""
}

func storageLocked(w *view) []string {
	p := w.f.Evidence.Process
	if p == nil || !p.Alive || p.Lock == nil {
		return nil
	}
	least := lockedAfter
	if !w.relistSuffers() {
		least = lockedWhileServing
	}
	l := p.Lock
	if w.age(l.Since) < least {
		return nil
	}
	holder := "a process that /proc/locks does not name"
	if l.HolderPID > 0 {
		holder = fmt.Sprintf("pid %d (%s)", l.HolderPID, l.HolderComm)
	}
	return []string{fmt.Sprintf("pid %d waits for a lock on %s, held by %s, for %s", p.PID, l.File, holder,
		Seconds(w.age(l.Since)))}
}

func starved(w *view) []string {
	p, c := w.f.Evidence.Process, w.f.Evidence.Cgroup
	if p == nil || !p.Alive || !w.waitsForCPU() {
		return nil
	}
	if c == nil || w.quotaTakesTime() { // the wait may be its own quota's
		return nil
	}
	if !w.listsSuffer() && !w.listsSlowLately(RuntimeStarved) && !w.notAccepting() {
		return nil
	}
	if w.refused() != nil { // it is refused at once
		return nil
	}
	out := []string{fmt.Sprintf("pid %d (%s): its threads waited for a CPU for %.2gs a second, %s each time, and ran "+
		"for %.2gs", p.PID, p.Comm, p.Delay, Seconds(p.DelayPerRun), p.CPU)}
	for _, l := range c.CPUWeights {
		out = append(out, fmt.Sprintf("CPU weight of cgroup %s: %d (usual: %d)", l.Path, l.Weight, l.Usual))
	}
	if pr := c.Pressure; pr != nil && pr.CPUSome >= 0 {
		out = append(out, fmt.Sprintf("CPU pressure of the runtime's cgroup: some %.0f %% of the last 10s", pr.CPUSome))
	}
	if n := w.f.Evidence.Node; n != nil && n.CPUIdle >= 0 {
		out = append(out, fmt.Sprintf("the node's CPUs are idle for %.0f %%", 100*n.CPUIdle))
	}
	return append(out, w.callEvidence()...)
}

// waitsForCPU reports whether the runtime waits for a CPU most of the time that it
// could run, and for long each time.
func (w *view) waitsForCPU() bool {
	p := w.f.Evidence.Process
	if p == nil {
		return false
	}
	if woke := w.f.Woke; !woke.IsZero() && p.At.Sub(woke) < timesWithoutPause {
		return false // the kernel counts the pause as a wait
	}
	return p.Delay >= starvedDelay && p.Delay >= starvedShare*(p.Delay+p.CPU) && p.DelayPerRun >= starvedWait
}

// quotaTakesTime reports whether the runtime's own quota takes time from it, has just
// done so, or may have: the cgroup was last read before the wait that the process
// shows, as on a node where reads are late.
func (w *view) quotaTakesTime() bool {
	c, p := w.f.Evidence.Cgroup, w.f.Evidence.Process
	if c == nil || p == nil {
		return false
	}
	lately := !c.ThrottledAt.IsZero() && p.At.Sub(c.ThrottledAt) <= throttledLately
	return c.Throttled > 0 || lately || p.At.Sub(c.At) > throttledUnseen
}

func threadStuck(w *view) []string {
	if out := w.chainEvidence(RuntimeThreadStuck); out != nil && w.hop == nil {
		return out
	}
	if w.freezerHoldsThreads() {
		return nil
	}
	if threads := w.blockedIn(waitOther, blockedWhileServing); len(threads) > 0 {
		p := w.f.Evidence.Process
		return []string{fmt.Sprintf("pid %d (%s): %s", p.PID, p.Comm, w.blockedText(threads))}
	}
	return nil
}
