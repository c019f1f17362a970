package health

import (
	"cmp"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/wchan"
)

// patience is for how long something must last while relists are slow, or else whileServing.
func (s *signals) patience(whileSlow time.Duration) time.Duration {
	if s.relistsSlow {
		return whileSlow
	}
	return whileServing
}

// memoryLimited names the level of the cgroup whose memory limit blocks the runtime: threads wait for memory, or
// relists are slow, now or lately, while its tasks are out of memory or meet the limit repeatedly and wait.
func memoryLimited(s *signals) lines {
	waiting := s.blockedIn(wchan.Memory, s.patience(0))
	for i := range s.cgroup.MemoryLimits {
		l := &s.cgroup.MemoryLimits[i]
		name, limit := limitMet(l)
		if name != "" && s.process.Alive && (len(waiting) > 0 || s.limitStalls(l)) {
			return s.memoryEvidence(l, name, limit, waiting)
		}
	}
	l := s.killingLimit()
	if l == nil || s.age(l.OOMKilledAt) < killSettles || !s.process.Alive || s.link != linkAnswers || s.loopStarts() != nil {
		return nil // its own end has a reason
	}
	return s.findingEvidence(RuntimeMemoryLimited)
}

// killingLimit returns the memory limit for which the kernel has killed a process lately, nil for none.
func (s *signals) killingLimit() *facts.MemoryLimit {
	for i := range s.cgroup.MemoryLimits {
		if l := &s.cgroup.MemoryLimits[i]; l.OOMKills > 0 {
			return l
		}
	}
	return nil
}

// memoryKills is the evidence that the kernel has killed processes of the runtime's cgroup for a limit: the runtime
// itself, a shim or a helper. Its counters do not tell which.
func (s *signals) memoryKills() (out lines) {
	l := s.killingLimit()
	if l != nil {
		out.add("the kernel killed %s of cgroup %s for its memory limit", killedText(l), l.Path)
	}
	return out
}

func killedText(l *facts.MemoryLimit) string {
	return facts.Count(int(min(l.OOMKills, maxCount)), "process", "processes")
}

// killFinding is the finding that the kernel kills processes of the runtime's cgroup for a limit, nil where it does not.
func (s *signals) killFinding() *facts.Finding {
	l := s.killingLimit()
	if l == nil {
		return nil
	}
	link := facts.Link{
		Kind: facts.KindCgroup, Name: l.Path, State: facts.LinkMemory, Since: l.OOMKilledAt,
		Evidence: fmt.Sprintf("the kernel killed %s of it for its limit of %s, the last at %s", killedText(l),
			facts.SizeText(cmp.Or(l.Max, l.High)), l.OOMKilledAt.UTC().Format("15:04:05 UTC")),
	}
	c := facts.Chain{At: s.cgroup.At, Links: []facts.Link{link}}
	return &facts.Finding{Reason: RuntimeMemoryLimited, Since: l.OOMKilledAt, Chain: c}
}

// limitStalls reports whether relists are slow while a level's tasks are out of memory, or meet the limit and thrash.
func (s *signals) limitStalls(l *facts.MemoryLimit) bool {
	if !s.relistsSlow && !s.listsSlowLately(RuntimeMemoryLimited) {
		return false
	}
	full := s.cgroup.OwnPressure().MemoryFull
	thrashes := full < 0 && l.Refaults >= refaultsMany
	if full >= 0 {
		thrashes = s.near(RuntimeMemoryLimited, full, memoryPressure, 1, calmShare)
	}
	return l.OOM || l.HighEvents+l.MaxEvents > 0 && thrashes
}

func (s *signals) memoryEvidence(l *facts.MemoryLimit, name string, limit int64, waiting []facts.BlockedThread) (out lines) {
	full := s.cgroup.OwnPressure().MemoryFull
	out.add("cgroup %s uses %s of %s %s", l.Path, facts.SizeText(l.Usage), name, facts.SizeText(limit))
	out.addIf(l.OOM, "its tasks are out of memory and wait (under_oom 1)")
	out.addIf(l.HighEvents > 0, "memory.high was met %d times within seconds", l.HighEvents)
	out.addIf(l.MaxEvents > 0, "the limit was met %d times within seconds", l.MaxEvents)
	out.addIf(l.OOMKills > 0, "%d killed for it", l.OOMKills)
	out.addIf(full >= 0, "memory pressure of the runtime's cgroup: full %.0f %% of the last 10s", full)
	out.text(s.blockedText(waiting))
	return append(out, s.callEvidence()...)
}

// limitMet returns which of a level's limits its usage has come to, "" for none: just now, or
// within the last samples. What the kernel takes back at once is more than a twentieth of
// a small limit, and tasks that are out of memory wait on below it.
func limitMet(l *facts.MemoryLimit) (name string, limit int64) {
	usage := float64(l.Usage)
	switch {
	case l.Max > 0 && (l.MaxEvents > 0 || l.OOM || usage >= memoryNear*float64(l.Max)):
		return "its limit (max)", l.Max
	case l.High > 0 && (l.HighEvents > 0 || usage >= memoryNear*float64(l.High)):
		return "its throttling limit (high)", l.High
	}
	return "", 0
}

func storageStalled(s *signals) (out lines) {
	threads := s.blockedIn(wchan.Storage, s.patience(blockedAfter))
	hint := ""
	if len(threads) == 0 && s.relistsSlow {
		hint = s.blockIO()
		if hint != "" {
			threads = s.blockedIn(wchan.Unread, blockedAfter)
		}
	}
	if s.frozenThreads {
		return nil
	}
	if len(threads) == 0 {
		return s.findingEvidence(RuntimeStorageStall)
	}
	out.add("%s: %s", s.process.ShortName(), s.blockedText(threads))
	out.text(hint)
	return append(out, s.callEvidence()...)
}

// blockIO states what indicates disk wait if the wait channels cannot be read; "" for nothing.
func (s *signals) blockIO() string {
	some := s.cgroup.OwnPressure().IOSome
	if some >= ioPressure {
		return fmt.Sprintf("I/O pressure of the runtime's cgroup: some %.0f %% of the last 10s", some)
	}
	return ""
}

func storageLocked(s *signals) lines {
	p := s.process
	if !p.Alive || p.Lock == nil || s.age(p.Lock.Since) < s.patience(lockedAfter) {
		return nil
	}
	holder := "held by a process that /proc/locks does not name"
	switch {
	case p.Lock.Holder() > 0:
		holder = "held by " + facts.ProcessName(p.Lock.HolderPID, p.Lock.HolderComm, "", "")
	case p.Lock.HolderPID > 0:
		holder = fmt.Sprintf("taken by pid %d, which does not have it any more", p.Lock.HolderPID)
	}
	return line("pid %d waits for a lock on %s, %s, for %s", p.PID, p.Lock.File, holder, s.ago(p.Lock.Since))
}

func starved(s *signals) (out lines) {
	p := s.process
	// A wait for the runtime's own quota is RuntimeThrottled. A list that exceeds a limit is refused at once.
	if !p.Alive || s.f.Evidence.Cgroup == nil || s.quotaTakesTime || s.tooLarge != nil {
		return nil
	}
	isLate := s.callsSlow || s.listsSlowLately(RuntimeStarved) || s.notAccepting
	if !isLate || !s.starvedOfCPU() {
		return s.findingEvidence(RuntimeStarved)
	}
	out.add("%s: its threads waited for a CPU for %.2gs a second, %s each time, and ran for %.2gs", p.ShortName(), p.Delay,
		facts.Seconds(p.DelayPerRun), p.CPU)
	some := s.cgroup.OwnPressure().CPUSome
	idle := s.node.CPUIdle
	out.addIf(some >= 0, "CPU pressure of the runtime's cgroup: some %.0f %% of the last 10s", some)
	out.addIf(idle >= 0, "the node's CPUs are idle for %.0f %%", 100*idle)
	return append(out, s.callEvidence()...)
}

// starvedOfCPU reports whether the runtime waits for a CPU for most of the time and long each time; a pause is none.
func (s *signals) starvedOfCPU() bool {
	p := s.process
	woke := s.f.Woke
	return (woke.IsZero() || p.At.Sub(woke) >= timesWithoutPause) &&
		p.Delay >= starvedDelay && p.Delay >= starvedShare*(p.Delay+p.CPU) && p.DelayPerRun >= starvedWait
}

// quotaTook reports whether the runtime's own quota takes time from it, has just done so,
// or may have: the cgroup was last read before the wait that the process shows.
func (s *signals) quotaTook() bool {
	if s.f.Evidence.Cgroup == nil {
		return false
	}
	c := s.cgroup
	lately := !c.ThrottledAt.IsZero() && s.process.At.Sub(c.ThrottledAt) <= throttledLately
	return c.Throttled > 0 || lately || s.process.At.Sub(c.At) > throttledUnseen
}

func threadStuck(s *signals) lines {
	if out := s.chainEvidence(RuntimeThreadStuck); out != nil && s.hop == nil {
		return out
	}
	threads := s.blockedIn(wchan.Other, whileServing)
	if len(threads) == 0 || s.frozenThreads {
		return nil
	}
	return line("%s: %s", s.process.ShortName(), s.blockedText(threads))
}
