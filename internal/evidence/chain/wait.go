package chain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// helperAge is how old a child of a shim must be to be what the shim waits for.
	helperAge = time.Second
	// starvedAfter is how long a thread must be runnable without a CPU.
	starvedAfter = time.Second
	// busyShare is the share of a CPU from which a process is said to run.
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
	ran    time.Duration // CPU time between the two looks
	found  []candidate
	// doubts are waits that may as well be those of idle threads.
	doubts []string
	// denied is true where something could not be read for want of a privilege.
	denied bool
	// calls counts the threads that sleep in the system calls of idle threads.
	calls map[string]int
	// lockPaths are the files that threads wait in fcntl(2) or flock(2) for.
	lockPaths map[string]bool
}

func (f *waiting) add(c candidate) {
	if !slices.ContainsFunc(f.found, func(o candidate) bool { return o.key == c.key }) {
		f.found = append(f.found, c)
	}
}

// waitOf finds out what a process does instead of answering.
func (w *Walker) waitOf(ctx context.Context, s proc.Stat) wait {
	if s.Dead() {
		return wait{state: health.LinkEnded, evidence: fmt.Sprintf("has ended; its parent, pid %d, has not reaped it", s.PPID), next: s.PPID}
	}
	before, now, ok := w.twoLooks(ctx, s)
	if !ok {
		return wait{state: health.LinkUnknown, evidence: "could not be looked at twice", unknown: fmt.Sprintf("process %d ended meanwhile, or the time for it ran out", s.PID)}
	}
	if held, ok := w.held(before, now); ok {
		return held
	}
	f := &waiting{pid: s.PID, single: len(now.threads) == 1, shim: kindOf(s.Comm) == health.KindShim, now: now, denied: now.denied, calls: map[string]int{}, lockPaths: map[string]bool{}}
	asleep := still(before, now)
	w.blockedThreads(ctx, f, asleep)
	w.sleepingThreads(ctx, f, asleep)
	w.fileLocks(ctx, f)
	w.unreadByPeers(ctx, f, before)
	if f.shim {
		w.helpers(f, s)
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
	return w.alone(ctx, f, before)
}

// held reports whether a process is stopped, traced or frozen.
func (w *Walker) held(before, now *look) (wait, bool) {
	pid := now.stat.PID
	if now.tracer != 0 {
		for _, t := range still(before, now) {
			if t.state == 't' {
				return wait{
					state: health.LinkTraced, evidence: fmt.Sprintf("thread %d is held by its tracer, pid %d", t.tid, now.tracer), next: now.tracer,
				}, true
			}
		}
	}
	if before.all("TZX") && now.all("TZX") {
		return wait{state: health.LinkStopped, evidence: "stopped by a signal (SIGSTOP, SIGTSTP or job control); the kernel does not keep who sent it"}, true
	}
	groups, err := w.tree.Of(pid)
	if err != nil {
		return wait{}, false
	}
	if path, frozen := w.tree.Frozen(groups); frozen {
		return wait{
			state: health.LinkFrozen, evidence: "frozen by its cgroup",
			links: []health.Link{{Kind: health.KindCgroup, Name: clean(path), State: health.LinkFrozen, Evidence: "the cgroup is frozen"}},
		}, true
	}
	return wait{}, false
}

// blockedThreads follows the threads in D.
func (w *Walker) blockedThreads(ctx context.Context, f *waiting, asleep []thread) {
	n := 0
	for _, t := range asleep {
		if t.state != 'D' || n == maxBlocked || ctx.Err() != nil {
			continue
		}
		n++
		channel := w.channel(f.pid, t.tid)
		call, ok, denied := w.syscall(f.pid, t.tid)
		switch {
		case channel == "" && !ok:
			f.denied = true
			f.add(candidate{"kernel", wait{
				state: health.LinkBlocked, evidence: fmt.Sprintf("thread %d is in D", t.tid),
				unknown: "where its thread waits in the kernel cannot be read (CAP_SYS_PTRACE)",
			}})
		case isMemoryChannel(channel):
			f.add(w.memoryWait(f.pid, t.tid, channel))
		default:
			f.denied = f.denied || denied
			f.add(w.fileWait(ctx, f.pid, t.tid, channel, call, ok))
		}
	}
}

// idleCalls are the system calls in which a thread waits for whatever comes.
var idleCalls = map[int]string{
	unix.SYS_FUTEX: "futex", unix.SYS_EPOLL_PWAIT: "epoll_pwait", unix.SYS_PPOLL: "ppoll", unix.SYS_PSELECT6: "pselect6",
	unix.SYS_NANOSLEEP: "nanosleep", unix.SYS_CLOCK_NANOSLEEP: "clock_nanosleep", unix.SYS_ACCEPT4: "accept4",
	unix.SYS_RT_SIGTIMEDWAIT: "rt_sigtimedwait", unix.SYS_RT_SIGSUSPEND: "rt_sigsuspend", unix.SYS_RESTART_SYSCALL: "restart_syscall",
}

// sleepingThreads follows the threads that sleep in a system call on a descriptor,
// a lock or a child.
func (w *Walker) sleepingThreads(ctx context.Context, f *waiting, asleep []thread) {
	n := 0
	for _, t := range asleep {
		if t.state != 'S' || n == maxWaits || ctx.Err() != nil {
			continue
		}
		n++
		call, ok, denied := w.syscall(f.pid, t.tid)
		f.denied = f.denied || denied
		if !ok {
			continue
		}
		switch call.Number {
		case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_PREAD64:
			w.descriptorWait(ctx, f, t.tid, call, false)
		case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_PWRITE64:
			w.descriptorWait(ctx, f, t.tid, call, true)
		case unix.SYS_FCNTL, unix.SYS_FLOCK:
			f.lockPaths[w.fd(f.pid, call.Args[0])] = true
			w.lockWait(ctx, f, t.tid, call)
		case unix.SYS_WAIT4, unix.SYS_WAITID:
			w.childWait(f, t.tid, call)
		case unix.SYS_CONNECT:
			f.doubts = append(f.doubts, fmt.Sprintf("thread %d connects to a socket whose queue is full", t.tid))
		default:
			if name := cmp.Or(idleCalls[call.Number], archIdleCalls[call.Number]); name != "" {
				f.calls[name]++
			} else if isRemoteChannel(w.channel(f.pid, t.tid)) {
				f.add(w.fileWait(ctx, f.pid, t.tid, w.channel(f.pid, t.tid), call, true))
			}
		}
	}
}

// alone is the wait of a process that waits for nothing outside of itself that can
// be seen.
func (w *Walker) alone(ctx context.Context, f *waiting, before *look) wait {
	now := f.now
	if kindOf(now.stat.Comm) == health.KindHelper {
		w.services(ctx, f)
		if len(f.found) == 1 {
			return f.found[0].wait
		}
	}
	if runnable(still(before, now)) {
		return w.noCPU(ctx, f, before)
	}
	passed := now.at.Sub(before.at)
	ran := ranBetween(before, now)
	f.before, f.ran = before, ran
	if ran.Seconds() >= busyShare*passed.Seconds() || before.all("R") && now.all("R") {
		return wait{state: health.LinkRunning, evidence: fmt.Sprintf("runs: %d %% of a CPU", int(100*ran.Seconds()/passed.Seconds()))}
	}
	if text := unreadOf(before, now); text != "" {
		return wait{state: health.LinkUnread, evidence: text + "; " + w.asleepText(f)}
	}
	if f.denied {
		return wait{
			state: health.LinkUnknown, evidence: fmt.Sprintf("%d threads, none stopped, frozen or in D", len(now.threads)),
			unknown: fmt.Sprintf("what process %d waits for cannot be read (CAP_SYS_PTRACE, or another network namespace)", f.pid),
		}
	}
	if len(f.doubts) > 0 {
		return wait{
			state: health.LinkUnknown, evidence: strings.Join(f.doubts, "; "),
			unknown: fmt.Sprintf("whether that is what process %d should be doing cannot be seen", f.pid),
		}
	}
	return wait{state: health.LinkAsleep, evidence: w.asleepText(f)}
}

// asleepText says how the threads of a process sleep.
func (w *Walker) asleepText(f *waiting) string {
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
	if f.ran > 0 {
		return text + fmt.Sprintf("; runs now and then (%s of CPU in %s)", f.ran.Round(100*time.Microsecond), f.now.at.Sub(f.before.at).Round(10*time.Millisecond))
	}
	return text + ", waiting for nothing outside of the process that can be seen"
}

// helpers adds the children of a shim that are to end soon: runc and the like. The
// first process of a container is a child of the shim too; it has another cgroup.
func (w *Walker) helpers(f *waiting, shim proc.Stat) {
	own, err := w.tree.Of(f.pid)
	children := w.children(f.pid)
	if w.about != "" {
		// Of several the one that is at work on the container in question.
		at := slices.DeleteFunc(slices.Clone(children), func(c proc.Stat) bool {
			b, err := w.left.Read(proc.Path(w.procfs, c.PID, "cmdline"), 0, 16<<10, readLimit)
			return err != nil || !slices.Contains(proc.SplitArgs(b), w.about)
		})
		if len(at) > 0 {
			children = at
		}
	}
	for _, c := range children {
		age := proc.Uptime() - proc.TicksToDuration(c.Start)
		if c.Dead() || age < helperAge {
			continue
		}
		if !isOCIRuntime(c.Comm) {
			theirs, err2 := w.tree.Of(c.PID)
			if err != nil || err2 != nil || theirs.Main() != own.Main() || own.Main() == "/" || c.Start <= shim.Start+shimSetup {
				continue
			}
		}
		f.add(candidate{fmt.Sprintf("pid %d", c.PID), wait{
			state: health.LinkChild, evidence: fmt.Sprintf("waits for its helper, pid %d (%s), which has run for %s", c.PID, clean(c.Comm), age.Round(100*time.Millisecond)),
			next: c.PID, kind: health.KindHelper,
		}})
	}
}

// shimSetup is, in clock ticks, how long after its start a shim may start processes
// that live as long as it does.
const shimSetup = 2 * proc.ClockTicks
