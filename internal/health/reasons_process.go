package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// restartLoops are so many starts within a time, the faster loop first.
var restartLoops = []struct {
	starts int
	within time.Duration
}{
	{starts: 3, within: 5 * time.Minute},
	{starts: 4, within: 30 * time.Minute},
}

func frozen(s *signals) lines {
	p := s.process
	c := s.cgroup
	switch {
	case !p.Alive:
		return nil
	case c.Frozen && s.unansweredSince(c.At):
		return line("the cgroup of pid %d is frozen: %s", p.PID, c.Path)
	case p.Stopped() && s.unansweredSince(p.At):
		return line("%s: all %d threads are stopped", p.ShortName(), facts.Total(p.Threads))
	case s.stoppedAgain():
		return line("%s: all threads are stopped and continued, again and again", p.ShortName())
	case s.slowedByTracer():
		return line("%s is traced by pid %d (%s): each of its system calls waits for the tracer",
			p.ShortName(), p.TracerPID, p.Tracer)
	}
	return s.chainEvidence(RuntimeFrozen)
}

// slowedByTracer reports whether a tracer explains slow lists: it stops each system call.
func (s *signals) slowedByTracer() bool {
	return s.process.TracerPID > 0 && (s.callsSlow || s.listsSlowLately(RuntimeFrozen))
}

// stopsCalls reports whether the process does not run, or calls are late enough for a page.
func (s *signals) stopsCalls() bool {
	stopped := s.process.Stopped() || s.cgroup.Frozen || s.stoppedAgain()
	return stopped || s.callsLate
}

// frozenNext is the step where SIGCONT does nothing: for a traced process and for a frozen cgroup.
func (s *signals) frozenNext() string {
	p := s.process
	culprit := s.chain.Culprit()
	traced := func(l facts.Link) bool { return l.PID == p.PID && l.State == facts.LinkTraced }
	if s.f.Evidence.Process == nil {
		return ""
	}
	if culprit != nil && slices.ContainsFunc(s.chain.Links, traced) {
		return firstStep(s.chain, culprit)
	}
	if p.TracerPID > 0 && !p.Stopped() && !s.cgroup.Frozen {
		return fmt.Sprintf("Detach pid %d (%s) from %s, or end the tracer; `kill -CONT` does nothing.", p.TracerPID, p.Tracer, p.Name())
	}
	if !s.cgroup.Frozen {
		return ""
	}
	path := s.cgroup.Path
	unit := path[strings.LastIndexByte(path, '/')+1:]
	if p.Unit != "" && (unit == p.Unit || unit == p.Unit+".service") {
		return fmt.Sprintf("Find out what froze the cgroup of %s, and thaw it: `systemctl thaw %s`.", p.Name(), p.Unit)
	}
	// Of a cgroup above the unit's, systemd thaws nothing.
	return fmt.Sprintf("Find out what froze the cgroup of %s (%s), and thaw it: %s.", p.Name(), path, thawCommands(path))
}

// unansweredSince reports whether nothing has been answered since t, and a call is unanswered now.
func (s *signals) unansweredSince(t time.Time) bool {
	if s.lastAnswer.After(t) {
		return false
	}
	if s.hop != nil {
		return s.f.Probe.WaitsForSettings()
	}
	relist := s.f.Relist.InFlight
	return s.relistErr != nil && !s.relistErr.Answered() ||
		relist != nil && relist.Waited(s.moment) >= slowCall ||
		s.unanswered(s.f.Calls[opVersion].InFlightSince, slowCall) ||
		s.unanswered(s.f.Status.InFlightSince, slowCall)
}

// stoppedAgain reports whether the process is stopped again and again: answers are late or not, as they fall.
func (s *signals) stoppedAgain() bool {
	p := s.process
	return !p.StoppedAt.IsZero() && s.age(p.StoppedAt) < stopsOver && s.lately(p.Stops, stopsWithin) >= stopsMany
}

// lately counts the times within so long.
func (s *signals) lately(times []time.Time, within time.Duration) (n int) {
	for _, t := range times {
		if s.age(t) <= within {
			n++
		}
	}
	return n
}

func throttled(s *signals) (out lines) {
	// The kernel adds up the time only when it lets the process run again.
	if !s.quotaTakes() || !s.callsSlow && !s.listsSlowLately(RuntimeThrottled) && !s.throttledOn() {
		return nil
	}
	out.add("throttled for %.2gs a second, in %.0f %% of its periods", s.cgroup.Throttled, 100*s.cgroup.ThrottledPeriods)
	level := s.cgroup.ThrottledPath
	out.addIf(level != "" && level != s.cgroup.Path, "by the quota of the cgroup %s", level)
	for _, last := range s.f.Relist.RecentLists(1) {
		out.add("the lists of the last relist took %s", facts.Seconds(last))
	}
	return out
}

// throttledOn reports whether the quota has taken time and periods for throttledLong: the runtime's
// other work takes longer then, even while its lists are quick.
func (s *signals) throttledOn() bool {
	c := s.cgroup
	return !c.ThrottledSince.IsZero() && s.age(c.ThrottledSince) >= throttledLong && c.ThrottledPeriods >= throttledShare
}

// quotaTakes reports whether the CPU quota takes enough time; once it has, whether it still takes some.
func (s *signals) quotaTakes() bool {
	c := s.cgroup
	if !s.wasActive(RuntimeThrottled) {
		return c.Throttled >= throttledShare
	}
	// The last list was slow in a time in which the quota still took some.
	last := s.f.Relist.Last
	slow := s.lists == listsSlow && last != nil && c.ThrottledAt.After(last.Start)
	return c.Throttled >= throttledStill || c.ThrottledPeriods >= throttledStill || slow
}

// restarting names a loop: several starts within minutes, or more of them in a slower one.
func restarting(s *signals) (out lines) {
	starts := s.loopStarts()
	if starts == nil || s.age(starts[len(starts)-1]) > max(restartsOver, s.restartOverdue(starts)) {
		return nil
	}
	first := starts[0]
	last := starts[len(starts)-1]
	out.add("started %d times in %s, the last time %s ago", len(starts), facts.Seconds(s.age(first)), s.ago(last))
	out = append(out, s.memoryKills()...)
	return append(out, storageFull(s)...)
}

// restartNext is the step where the node shows why the runtime ends; "" where it does not.
func (s *signals) restartNext() string {
	if storageFull(s) != nil {
		return "Free space on the file system that the evidence names, or repair it if it is read-only: the runtime ends for it."
	}
	return s.killedNext((*signals).loggedKill)
}

// loopStarts returns the starts of the runtime that make a loop, the oldest first; nil for none.
func (s *signals) loopStarts() []time.Time {
	starts := s.process.Restarts
	for _, loop := range restartLoops {
		n := s.lately(starts, loop.within)
		if n >= loop.starts {
			return starts[len(starts)-n:]
		}
	}
	return nil
}

// restartOverdue returns how long after the last start the next one is overdue: the loop has then ended.
func (s *signals) restartOverdue(starts []time.Time) time.Duration {
	mean := starts[len(starts)-1].Sub(starts[0]) / time.Duration(len(starts)-1)
	return mean + mean/2
}

// restartsGoOn reports whether calls fail, or the next start of the loop is not overdue.
func (s *signals) restartsGoOn() bool {
	starts := s.loopStarts()
	if starts == nil {
		return false
	}
	return s.callsLate || s.age(starts[len(starts)-1]) <= s.restartOverdue(starts)
}

func runtimeStarting(s *signals) lines {
	out := s.startingEvidence()
	out.addIf(out != nil && s.process.Alive, "pid %d was started %s ago", s.process.PID, s.ago(s.process.Start))
	return out
}

// startingEvidence states what a runtime that has just started does not do yet; nil for another one.
func (s *signals) startingEvidence() lines {
	p := s.process
	q := s.queue
	e := s.relistErr
	if e != nil && e.NotInitialized {
		return line("%s failed: %s", e.Operation, e.Message)
	}
	if !p.Alive || s.age(p.Start) > youngFor || !s.lastAnswer.Before(p.Start) {
		return nil
	}
	if s.cause == facts.CauseMissing || s.cause == facts.CauseRefused {
		return s.absentWhileStarting()
	}
	if s.lists != listsHang || s.age(p.Start) > startsFor || s.inheritor != nil {
		return nil
	}
	if q.Listening && q.Length > 0 {
		return line("it listens and has accepted nothing: accept queue %d of %d", q.Length, q.Limit)
	}
	return line("it listens and has answered nothing yet")
}

// absentWhileStarting states how far a young runtime is that cannot be connected to; nil if the socket's file alone is gone.
func (s *signals) absentWhileStarting() lines {
	if s.justListening {
		return line("it has just begun to listen")
	}
	if s.cause == facts.CauseMissing && s.listensSince(s.f.Probe.FailedSince) {
		return nil
	}
	return line("it does not listen yet")
}

// kernelLimits names the limits of tasks, threads, open files, inotify instances, mounts and file sizes that are reached.
func kernelLimits(s *signals) (out lines) {
	c := s.cgroup
	n := s.node
	storage := cmp.Or(s.f.Evidence.Storage, &facts.Storage{})
	for _, l := range []struct {
		what         string
		count, limit float64
		share        float64
	}{
		{what: "tasks of the runtime's cgroup", count: float64(c.PIDs), limit: float64(c.PIDsMax), share: pidsFull},
		{what: "threads of the node", count: float64(n.Threads), limit: float64(n.ThreadsMax), share: nodeFull},
		{what: "open files of the node", count: float64(n.Files), limit: float64(n.FilesMax), share: nodeFull},
		{what: "inotify instances of root (fs.inotify.max_user_instances)", count: float64(n.InotifyMax), limit: float64(n.InotifyMax), share: 1},
		{what: "mounts of the runtime's mount namespace (fs.mount-max)", count: float64(storage.Mounts),
			limit: float64(storage.MountsMax), share: pidsFull},
		{what: "threads of the runtime, which Go ends at the limit", count: float64(s.process.ThreadCount),
			limit: goThreads, share: threadsNear},
		{what: "bytes of a file that the runtime writes (RLIMIT_FSIZE)", count: float64(s.process.LargestFile),
			limit: float64(s.process.FileSizeMax), share: 1},
	} {
		out.addIf(l.limit > 0 && l.count >= l.share*l.limit, "%s: %.0f of %.0f", l.what, l.count, l.limit)
	}
	out.addIf(c.PIDsRefused, "the kernel refused a new task of the runtime's cgroup within a minute, for a limit of %d", c.PIDsMax)
	if out != nil {
		out = append(out, s.findingEvidence(KernelLimitReached)...)
	}
	return out
}
