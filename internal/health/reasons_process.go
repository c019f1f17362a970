package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// throttledShare is the time a second that a quota takes away, throttledStill of time or periods afterwards.
	throttledShare = 0.3
	throttledStill = 0.1
	slowCall       = 300 * time.Millisecond // the duration from which a list is slow
	// throttledLists is how many lists must be quick until a quota that still throttles is not the cause.
	throttledLists = 10
	// quotaMeasured is how long after the begin of a hang it is known what the quota takes.
	quotaMeasured = 2500 * time.Millisecond
	// restartsOver is for how long at least a loop is named after its last start.
	restartsOver = time.Minute
	// maxCount bounds a counter of the kernel that is printed.
	maxCount = 1 << 30
	// youngFor is how long after its start a runtime that does not serve yet counts as
	// starting: recovering hundreds of pods takes minutes at worst. startsFor is the same for
	// one that accepts and answers nothing: containerd 2.x with 80 pods took 9 s on a busy node.
	youngFor  = 5 * time.Minute
	startsFor = 30 * time.Second
	// stopsMany stops within stopsWithin are one fault; it ends stopsOver after the last of them.
	stopsMany   = 2
	stopsWithin = 10 * time.Second
	stopsOver   = 1250 * time.Millisecond
	pidsFull    = 0.98 // of pids.max
	nodeFull    = 0.95 // of the kernel's tables
	// goThreads is the number of threads at which Go ends a program (runtime/debug.SetMaxThreads), and threadsNear the
	// share that is near: each hung file operation takes a thread.
	goThreads   = 10000
	threadsNear = 0.8
)

// restartLoops are so many starts within a time, the faster loop first.
var restartLoops = []struct {
	starts int
	within time.Duration
}{
	{starts: 3, within: 5 * time.Minute},
	{starts: 4, within: 30 * time.Minute},
}

func frozen(w *view) lines {
	p, c := w.process, w.cgroup
	switch {
	case !p.Alive:
	case c.Frozen && w.unansweredSince(c.At):
		return line("the cgroup of pid %d is frozen: %s", p.PID, c.Path)
	case p.Stopped() && w.unansweredSince(p.At):
		return line("%s: all %d threads are stopped", p.ShortName(), facts.Total(p.Threads))
	case w.stoppedAgain():
		return line("%s: all threads are stopped and continued, again and again", p.ShortName())
	}
	return nil
}

// frozenNext says how to let the runtime run again where SIGCONT does nothing.
func (w *view) frozenNext() string {
	p, path, chain := w.process, w.cgroup.Path, w.chain()
	traced := func(l facts.Link) bool { return l.PID == p.PID && l.State == facts.LinkTraced }
	switch unit := path[strings.LastIndexByte(path, '/')+1:]; {
	case w.f.Evidence.Process == nil:
		return ""
	case chain.Culprit() != nil && slices.ContainsFunc(chain.Links, traced):
		return firstStep(chain, chain.Culprit())
	case !w.cgroup.Frozen:
		return ""
	case p.Unit != "" && (unit == p.Unit || unit == p.Unit+".service"):
		return fmt.Sprintf("Find out what froze the cgroup of %s, and thaw it: `systemctl thaw %s`.", p.Name(), p.Unit)
	}
	// Of a cgroup above the unit's, systemd thaws nothing.
	return fmt.Sprintf("Find out what froze the cgroup of %s (%s), and thaw it: `echo 0 >/sys/fs/cgroup%s/cgroup.freeze` "+
		"(v1: `echo THAWED >/sys/fs/cgroup/freezer%s/freezer.state`).", p.Name(), path, path, path)
}

// unansweredSince reports whether nothing has been answered since t, and a call is unanswered now.
func (w *view) unansweredSince(t time.Time) bool {
	in := w.f.Relist.InFlight
	switch {
	case w.lastAnswer.After(t):
		return false
	case w.hop != nil:
		return w.f.Probe.WaitsForSettings()
	case w.err != nil && !w.err.Answered(), in != nil && w.unanswered(in.PhaseStart, slowCall):
		return true
	}
	return w.unanswered(w.f.Calls[opVersion].InFlightSince, slowCall) || w.unanswered(w.f.Status.InFlightSince, slowCall)
}

// stoppedAgain reports whether the process is stopped again and again: answers are late or not, as they fall.
func (w *view) stoppedAgain() bool {
	p := w.process
	return !p.StoppedAt.IsZero() && w.age(p.StoppedAt) < stopsOver && w.lately(p.Stops, stopsWithin) >= stopsMany
}

// lately counts the times within so long.
func (w *view) lately(times []time.Time, within time.Duration) (n int) {
	for _, t := range times {
		if w.age(t) <= within {
			n++
		}
	}
	return n
}

func throttled(w *view) (out lines) {
	// The kernel adds up the time only when it lets the process run again.
	if !w.quotaTakes() || !w.listsSuffer() && !w.listsSlowLately(RuntimeThrottled) {
		return nil
	}
	out.add("throttled for %.2gs a second, in %.0f %% of its periods", w.cgroup.Throttled, 100*w.cgroup.ThrottledPeriods)
	for _, last := range w.f.Relist.RecentLists(1) {
		out.add("the lists of the last relist took %s", facts.Seconds(last))
	}
	return out
}

// quotaTakes reports whether the CPU quota takes enough time; once it has, whether it still takes some.
func (w *view) quotaTakes() bool {
	c := w.cgroup
	if !w.wasActive(RuntimeThrottled) {
		return c.Throttled >= throttledShare
	}
	// The last list was slow in a time in which the quota still took some.
	last := w.f.Relist.Last
	slow := w.lists == listsSlow && last != nil && c.ThrottledAt.After(last.Start)
	return c.Throttled >= throttledStill || c.ThrottledPeriods >= throttledStill || slow
}

// quotaUnmeasured reports whether the quota takes time since a list began to hang, and how much is not known yet.
func (w *view) quotaUnmeasured() bool {
	return !w.hungSince.IsZero() && w.cgroup.ThrottledAt.After(w.hungSince) && w.age(w.hungSince) < quotaMeasured
}

// listsSlowLately reports whether one of the last few relists' lists was slow: under a
// quota a list that meets a fresh period is quick. A reason that stands looks further back.
func (w *view) listsSlowLately(id string) bool {
	return w.f.Relist.HadListOf(slowCall, int(w.band(id, recentLists, throttledLists)))
}

// restarting names a loop: several starts within minutes, or more of them in a slower one.
func restarting(w *view) (out lines) {
	starts := w.loopStarts()
	if starts == nil || w.age(starts[len(starts)-1]) > max(restartsOver, w.restartOverdue(starts)) {
		return nil
	}
	first := starts[0]
	last := starts[len(starts)-1]
	out.add("started %d times in %s, the last time %s ago", len(starts), facts.Seconds(w.age(first)), w.ago(last))
	for i := range w.cgroup.MemoryLimits {
		l := &w.cgroup.MemoryLimits[i]
		out.when(l.OOMKills > 0, "the kernel killed %s of cgroup %s for its memory limit",
			facts.Count(int(min(l.OOMKills, maxCount)), "process", "processes"), l.Path)
	}
	return append(out, storageFull(w)...)
}

// loopStarts returns the starts of the runtime that make a loop, the oldest first; nil for none.
func (w *view) loopStarts() []time.Time {
	starts := w.process.Restarts
	for _, loop := range restartLoops {
		n := w.lately(starts, loop.within)
		if n >= loop.starts {
			return starts[len(starts)-n:]
		}
	}
	return nil
}

// restartOverdue returns how long after the last start the next one is overdue: the loop has then ended.
func (w *view) restartOverdue(starts []time.Time) time.Duration {
	mean := starts[len(starts)-1].Sub(starts[0]) / time.Duration(len(starts)-1)
	return mean + mean/2
}

// restartsGoOn reports whether calls fail, or the next start of the loop is not overdue.
func (w *view) restartsGoOn() bool {
	starts := w.loopStarts()
	if starts == nil {
		return false
	}
	return w.callsLate() || w.age(starts[len(starts)-1]) <= w.restartOverdue(starts)
}

func runtimeStarting(w *view) (out lines) {
	p, q := w.process, w.queue
	absent := w.cause == facts.CauseMissing || w.cause == facts.CauseRefused
	switch e := w.err; {
	case e != nil && e.NotInitialized:
		out.add("%s failed: %s", e.Operation, e.Message)
	case !p.Alive || w.age(p.Start) > youngFor || !w.lastAnswer.Before(p.Start):
		return nil
	case absent && w.justListening():
		out.add("it has just begun to listen")
	case w.cause == facts.CauseMissing && w.listensSince(w.f.Probe.FailedSince):
		return nil // the socket's file alone is gone
	case absent:
		out.add("it does not listen yet")
	case w.lists != listsHang || w.age(p.Start) > startsFor || w.inheritor() != nil:
		return nil
	case q.Listening && q.Length > 0:
		out.add("it listens and has accepted nothing: accept queue %d of %d", q.Length, q.Limit)
	default:
		out.add("it listens and has answered nothing yet")
	}
	out.when(p.Alive, "pid %d was started %s ago", p.PID, w.ago(p.Start))
	return out
}

// kernelLimits names the limits of tasks, threads, open files and mounts that are reached.
func kernelLimits(w *view) (out lines) {
	c := w.cgroup
	n := w.node
	storage := cmp.Or(w.f.Evidence.Storage, &facts.Storage{})
	for _, l := range []struct {
		what         string
		count, limit float64
		share        float64
	}{
		{what: "tasks of the runtime's cgroup", count: float64(c.PIDs), limit: float64(c.PIDsMax), share: pidsFull},
		{what: "threads of the node", count: float64(n.Threads), limit: float64(n.ThreadsMax), share: nodeFull},
		{what: "open files of the node", count: float64(n.Files), limit: float64(n.FilesMax), share: nodeFull},
		{what: "mounts of the runtime's mount namespace (fs.mount-max)", count: float64(storage.Mounts),
			limit: float64(storage.MountsMax), share: pidsFull},
		{what: "threads of the runtime, which Go ends at the limit", count: float64(w.process.ThreadCount),
			limit: goThreads, share: threadsNear},
	} {
		out.when(l.limit > 0 && l.count >= l.share*l.limit, "%s: %.0f of %.0f", l.what, l.count, l.limit)
	}
	return out
}
