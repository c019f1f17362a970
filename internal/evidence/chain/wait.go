package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// helperAge is the age from which a child of a shim is what the shim waits for.
	helperAge = time.Second
	// busyShare is the share of a CPU from which a process is running.
	busyShare = 0.5
	// maxBlocked bounds the threads in D that are followed.
	maxBlocked = 16
)

// candidate is something that a process waits for. Two with the same key are the
// same.
type candidate struct {
	key string
	wait
}

// waiting collects what the threads of one process wait for.
type waiting struct {
	pid    int
	single bool // it has one thread
	shim   bool
	now    *look
	before *look
	found  []candidate
	// kernel are waits in the kernel that may be of no consequence: they count where
	// nothing else is found.
	kernel []candidate
	// doubts are waits that may as well be those of idle threads.
	doubts []string
	// denied is true where something could not be read for want of a privilege.
	denied bool
	// calls counts the idle threads by their system call.
	calls map[string]int
	// lockPaths are the files that threads wait in fcntl(2) or flock(2) for.
	lockPaths map[string]bool
}

func (f *waiting) add(c candidate) {
	if !slices.ContainsFunc(f.found, func(o candidate) bool { return o.key == c.key }) {
		f.found = append(f.found, c)
	}
}

func (f *waiting) doubt(format string, args ...any) {
	f.doubts = append(f.doubts, fmt.Sprintf(format, args...))
}

// waitOf finds what a process waits for.
func (w *Walker) waitOf(ctx context.Context, s proc.Stat) wait {
	if s.Dead() {
		return wait{
			state: health.LinkEnded, next: s.PPID,
			evidence: fmt.Sprintf("has ended; its parent, pid %d, has not reaped it", s.PPID),
		}
	}
	before, now, ok := w.twoLooks(ctx, s)
	if !ok {
		return wait{
			state: health.LinkUnknown, evidence: "could not be read twice",
			unknown: fmt.Sprintf("process %d ended meanwhile, or the time for it ran out", s.PID),
		}
	}
	if held, ok := w.held(before, now); ok {
		return held
	}
	f := &waiting{
		pid: s.PID, single: len(now.threads) == 1, shim: node.KindOf(s.Comm) == node.KindShim,
		before: before, now: now, denied: now.denied, calls: map[string]int{}, lockPaths: map[string]bool{},
	}
	w.threadWaits(ctx, f)
	w.fileLocks(ctx, f)
	w.unreadByPeers(ctx, f)
	if f.shim {
		w.helpers(ctx, f, s)
	}
	if len(f.found) == 0 {
		w.services(ctx, f)
	}
	if len(f.found) == 0 && len(f.kernel) > 0 {
		f.found = f.kernel[:1]
	}
	switch {
	case len(f.found) == 1:
		return f.found[0].wait
	case len(f.found) > 1:
		var all []string
		for _, c := range f.found {
			all = append(all, c.evidence)
		}
		return wait{
			state: health.LinkUnknown, evidence: strings.Join(all, "; "),
			unknown: fmt.Sprintf("threads of process %d wait for %d different things", s.PID, len(f.found)),
		}
	}
	return w.alone(ctx, f)
}

// held reports whether a process is stopped, traced or frozen.
func (w *Walker) held(before, now *look) (wait, bool) {
	if now.tracer != 0 {
		for _, t := range still(before, now) {
			if t.state == 't' {
				return wait{
					state: health.LinkTraced, next: now.tracer,
					evidence: fmt.Sprintf("thread %d is held by its tracer, pid %d", t.tid, now.tracer),
				}, true
			}
		}
	}
	if before.all("TZX") && now.all("TZX") {
		const stopped = "stopped by a signal (SIGSTOP, SIGTSTP or job control); the kernel does not keep who sent it"
		return wait{state: health.LinkStopped, evidence: stopped}, true
	}
	groups, err := w.tree.Of(now.stat.PID)
	if err != nil {
		return wait{}, false
	}
	path, frozen := w.tree.Frozen(groups)
	if !frozen {
		return wait{}, false
	}
	return wait{state: health.LinkFrozen, evidence: "frozen by its cgroup", links: []health.Link{{
		Kind: health.KindCgroup, Name: clean(path), State: health.LinkFrozen, Evidence: "the cgroup is frozen",
	}}}, true
}

// threadWaits follows the threads that have not run: those in D, and those that sleep on
// a descriptor, a lock or a child, or in a wait channel that is not idle.
func (w *Walker) threadWaits(ctx context.Context, f *waiting) {
	inD, asleep := 0, 0
	for _, t := range still(f.before, f.now) {
		if ctx.Err() != nil {
			return
		}
		switch {
		case t.state == 'D' && inD < maxBlocked:
			inD++
			w.blockedThread(ctx, f, w.place(f.pid, t.tid))
		case t.state == 'S' && asleep < maxWaits:
			asleep++
			w.sleepingThread(ctx, f, w.place(f.pid, t.tid))
		}
	}
}

// blockedThread follows a thread in D.
func (w *Walker) blockedThread(ctx context.Context, f *waiting, p place) {
	switch {
	case p.channel == "" && !p.inCall:
		f.denied = true
		f.add(candidate{"kernel", wait{
			state: health.LinkBlocked, evidence: fmt.Sprintf("thread %d is in D", p.tid),
			unknown: "where its thread waits in the kernel cannot be read (CAP_SYS_PTRACE)",
		}})
	case isMemoryChannel(p.channel):
		f.add(w.memoryWait(p))
	case isFanotifyChannel(p.channel):
		f.add(w.fanotifyWait(ctx, p))
	default:
		f.denied = f.denied || p.denied
		f.add(w.fileWait(ctx, p))
	}
}

// sleepingThread follows a thread that sleeps.
func (w *Walker) sleepingThread(ctx context.Context, f *waiting, p place) {
	f.denied = f.denied || p.denied
	switch {
	case isFanotifyChannel(p.channel):
		f.add(w.fanotifyWait(ctx, p))
		return
	case isRemoteChannel(p.channel):
		f.add(w.fileWait(ctx, p))
		return
	case !p.inCall:
		return
	}
	switch p.call.Number {
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_PREAD64:
		w.descriptorWait(ctx, f, p, false)
	case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_PWRITE64:
		w.descriptorWait(ctx, f, p, true)
	case unix.SYS_FCNTL, unix.SYS_FLOCK:
		f.lockPaths[w.fd(f.pid, p.call.Args[0])] = true
		w.lockWait(ctx, f, p)
	case unix.SYS_WAIT4, unix.SYS_WAITID:
		w.childWait(ctx, f, p)
	case unix.SYS_CONNECT:
		f.doubt("thread %d connects to a socket whose queue is full", p.tid)
	default:
		name := proc.IdleCall(p.call.Number)
		switch {
		case name != "":
			f.calls[name]++
		case !proc.IdleChannel(p.channel):
			f.kernel = append(f.kernel, kernelWait(p))
		}
	}
}

// kernelWait is that of a thread of which only the kernel function is known.
func kernelWait(p place) candidate {
	where := p.channel
	if where == "" {
		where = "a kernel function that cannot be read"
	}
	return candidate{"kernel " + where, wait{
		state: health.LinkBlocked, evidence: fmt.Sprintf("thread %d waits in %s", p.tid, where),
		links: []health.Link{{
			Kind: health.KindKernel, Name: where, State: health.LinkBlocked,
			Evidence: "the system call names no file that plegd can see",
		}},
	}}
}

// alone is the wait of a process that waits for nothing outside of itself that can
// be seen.
func (w *Walker) alone(ctx context.Context, f *waiting) wait {
	before, now := f.before, f.now
	if runnable(still(before, now)) {
		return w.noCPU(ctx, now, before)
	}
	passed, ran := now.at.Sub(before.at), ranBetween(before, now)
	if ran.Seconds() >= busyShare*passed.Seconds() || before.all("R") && now.all("R") {
		percent := int(100 * ran.Seconds() / passed.Seconds())
		return wait{state: health.LinkRunning, evidence: fmt.Sprintf("runs: %d %% of a CPU", percent)}
	}
	if text := unreadOf(before, now); text != "" {
		return wait{state: health.LinkUnread, evidence: text + "; " + f.asleepText(ran)}
	}
	if f.denied {
		return wait{
			state: health.LinkUnknown, evidence: fmt.Sprintf("%d threads, none stopped, frozen or in D", len(now.threads)),
			unknown: fmt.Sprintf(
				"what process %d waits for cannot be read (CAP_SYS_PTRACE, or another network namespace)", f.pid),
		}
	}
	if len(f.doubts) > 0 {
		return wait{
			state: health.LinkUnknown, evidence: strings.Join(f.doubts, "; "),
			unknown: fmt.Sprintf("whether that is what process %d should be doing cannot be seen", f.pid),
		}
	}
	return wait{state: health.LinkAsleep, evidence: f.asleepText(ran)}
}

// asleepText describes how the threads of a process sleep.
func (f *waiting) asleepText(ran time.Duration) string {
	var calls []string
	for name, n := range f.calls {
		calls = append(calls, fmt.Sprintf("%d in %s", n, name))
	}
	slices.Sort(calls)
	text := fmt.Sprintf("%d threads asleep", len(f.now.threads))
	if len(f.now.threads) == 1 {
		text = "1 thread asleep"
	}
	if len(calls) > 0 {
		text += " (" + strings.Join(calls, ", ") + ")"
	}
	if ran > 0 {
		passed := f.now.at.Sub(f.before.at).Round(10 * time.Millisecond)
		return text + fmt.Sprintf("; runs now and then (%s of CPU in %s)", ran.Round(100*time.Microsecond), passed)
	}
	return text + ", waiting for nothing outside of the process that can be seen"
}

// helpers adds the helpers of a shim: children that are to end soon. Of several, the one
// that works on the container in question.
func (w *Walker) helpers(ctx context.Context, f *waiting, shim proc.Stat) {
	var young, about []candidate
	for _, c := range w.processes(ctx).Children(shim.PID) {
		age := proc.Uptime() - proc.TicksToDuration(c.Start)
		if age < helperAge || !w.isHelper(ctx, c.Stat) {
			continue
		}
		found := candidate{fmt.Sprintf("pid %d", c.PID), wait{
			state: health.LinkChild, next: c.PID,
			evidence: fmt.Sprintf("waits for its helper, pid %d (%s), which has run for %s",
				c.PID, clean(c.Comm), age.Round(100*time.Millisecond)),
		}}
		young = append(young, found)
		if w.about != "" && slices.Contains(w.table.Args(c.ID()), w.about) {
			about = append(about, found)
		}
	}
	if len(about) > 0 {
		young = about
	}
	for _, c := range young {
		f.add(c)
	}
}
