package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	// busyShare is the share of a CPU from which a process is running.
	busyShare = 0.5
	// maxBlocked bounds the threads in D that are followed, maxAsleep those that sleep.
	maxBlocked = 16
	maxAsleep  = 96
)

// waiting collects what the threads of one process wait for.
type waiting struct {
	looks
	pid   int
	found []wait
	// kernel are waits in the kernel that may be of no consequence: they count where
	// nothing else is found.
	kernel []wait
	// doubts are waits that may as well be those of idle threads.
	doubts []string
	// calls counts the idle threads by their system call.
	calls map[string]int
	// lockPaths are the files in whose fcntl(2) or flock(2) threads sleep, by inode.
	lockPaths map[string]string
}

func (f *waiting) add(w wait) {
	if w.next != 0 {
		w.key = fmt.Sprintf("pid %d", w.next)
	}
	if !slices.ContainsFunc(f.found, func(o wait) bool { return o.key == w.key }) {
		f.found = append(f.found, w)
	}
}

func (f *waiting) doubt(format string, args ...any) {
	f.doubts = append(f.doubts, fmt.Sprintf(format, args...))
}

// single reports whether the process has one thread.
func (f *waiting) single() bool { return len(f.now.threads) == 1 }

// waitOf finds what a process waits for.
func (w *Walker) waitOf(ctx context.Context, s node.Process) wait {
	if s.Dead() {
		return wait{
			state: health.LinkEnded, next: s.PPID,
			evidence: fmt.Sprintf("has ended; its parent, pid %d, has not reaped it", s.PPID),
		}
	}
	w.denied = false
	l, ok := w.look(ctx, s.PID)
	if !ok {
		return wait{
			state: health.LinkUnknown, evidence: "could not be read twice",
			unknown: fmt.Sprintf("process %d ended meanwhile, or the time for it ran out", s.PID),
		}
	}
	if held, ok := w.held(l); ok {
		return held
	}
	f := &waiting{looks: l, pid: s.PID, calls: map[string]int{}, lockPaths: map[string]string{}}
	w.threadWaits(ctx, f)
	w.fileLocks(ctx, f)
	w.unreadByPeers(ctx, f)
	if s.Kind() == node.KindShim {
		w.helpers(ctx, f)
	}
	if len(f.found) == 0 {
		w.answers(ctx, f)
	}
	if len(f.found) == 0 {
		f.found = f.kernel[:min(len(f.kernel), 1)]
	}
	// A limit of the cgroup holds up all that the process does, and its helpers too.
	if i := slices.IndexFunc(f.found, func(o wait) bool { return o.state == health.LinkMemory }); i >= 0 {
		f.found = f.found[i : i+1]
	}
	switch len(f.found) {
	case 0:
		return w.alone(ctx, f)
	case 1:
		return f.found[0]
	}
	var all []string
	for _, one := range f.found {
		all = append(all, one.evidence)
	}
	return wait{
		state: health.LinkUnknown, evidence: strings.Join(all, "; "),
		unknown: fmt.Sprintf("threads of process %d wait for %d different things", s.PID, len(f.found)),
	}
}

// held reports whether a process is stopped, traced or frozen.
func (w *Walker) held(l looks) (wait, bool) {
	for _, t := range l.still() {
		if tracer := l.now.tracer; tracer != 0 && t.state == 't' {
			return wait{
				state: health.LinkTraced, next: tracer,
				evidence: fmt.Sprintf("thread %d is held by its tracer, pid %d", t.tid, tracer),
			}, true
		}
	}
	if l.all("TZX") {
		const stopped = "stopped by a signal (SIGSTOP, SIGTSTP or job control); the kernel does not keep who sent it"
		return wait{state: health.LinkStopped, evidence: stopped}, true
	}
	groups, err := w.tree.Of(l.now.stat.PID)
	if err != nil {
		return wait{}, false
	}
	path, frozen := w.tree.Frozen(groups)
	return cgroupWait(path, health.LinkFrozen, "frozen by its cgroup", "the cgroup is frozen"), frozen
}

// threadWaits follows the threads that have not run: those in D, and those that sleep on
// a descriptor, a lock or a child, or in a wait channel that is not idle.
func (w *Walker) threadWaits(ctx context.Context, f *waiting) {
	followed := map[byte]int{}
	for _, t := range f.still() {
		followed[t.state]++
		switch {
		case ctx.Err() != nil:
			return
		case t.state == 'D' && followed['D'] <= maxBlocked:
			w.blockedThread(ctx, f, w.place(f.pid, t.tid))
		case t.state == 'S' && followed['S'] <= maxAsleep:
			w.sleepingThread(ctx, f, w.place(f.pid, t.tid))
		}
	}
}

// blockedThread follows a thread in D.
func (w *Walker) blockedThread(ctx context.Context, f *waiting, p place) {
	switch {
	case p.channel == "" && p.call.Number < 0:
		w.denied = true
		f.add(wait{
			key: "kernel", state: health.LinkBlocked, evidence: fmt.Sprintf("thread %d is in D", p.tid),
			unknown: "where its thread waits in the kernel cannot be read (CAP_SYS_PTRACE)",
		})
	case isMemoryChannel(p.channel):
		f.add(w.memoryWait(p))
	case isAgentChannel(p.channel):
		w.agentWait(ctx, f, p)
	case node.In(p.channel, "wait_for_vfork_done", "kernel_clone"):
		w.vforkWait(ctx, f, p)
	default:
		f.add(w.fileWait(ctx, p))
	}
}

// sleepingThread follows a thread that sleeps.
func (w *Walker) sleepingThread(ctx context.Context, f *waiting, p place) {
	switch {
	case isAgentChannel(p.channel):
		w.agentWait(ctx, f, p)
		return
	case remoteTypes(p.channel) != nil: // may be interrupted, and is not D
		f.add(w.fileWait(ctx, p))
		return
	}
	switch p.call.Number {
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_PREAD64:
		w.descriptorWait(ctx, f, p, false)
	case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_PWRITE64:
		w.descriptorWait(ctx, f, p, true)
	case unix.SYS_FCNTL, unix.SYS_FLOCK:
		path := w.fd(f.pid, p.call.FD())
		f.lockPaths[w.fdInfo(f.pid, p.call.FD()).Inode] = path
		w.denied = w.denied || path == ""
	case unix.SYS_WAIT4, unix.SYS_WAITID:
		w.childWait(ctx, f, p)
	case unix.SYS_CONNECT:
		w.acceptWait(ctx, f, fmt.Sprintf("thread %d connects to a full queue", p.tid), 0, true)
	default:
		switch {
		case p.call.Number < 0:
		case p.call.Idle != "":
			f.calls[p.call.Idle]++
		case !node.IdleChannel(p.channel):
			f.kernel = append(f.kernel, kernelWait(p))
		}
	}
}

// kernelWait is that of a thread of which only the kernel function is known.
func kernelWait(p place) wait {
	where := p.channel
	if where == "" {
		where = "a kernel function that cannot be read"
	}
	return wait{
		key: "kernel " + where, state: health.LinkBlocked, evidence: fmt.Sprintf("thread %d waits in %s", p.tid, where),
		link: health.Link{
			Kind: health.KindKernel, Name: where, State: health.LinkBlocked,
			Evidence: "the system call names no file that plegd can see",
		},
	}
}

// alone is the wait of a process without a visible wait for anything outside of it.
func (w *Walker) alone(ctx context.Context, f *waiting) wait {
	if out, ok := w.throttled(ctx, f.pid); ok {
		return out
	}
	share := f.ran().Seconds() / f.passed().Seconds()
	runnable := slices.ContainsFunc(f.still(), func(t thread) bool { return t.state == 'R' })
	unread := f.unread()
	switch {
	case runnable:
		return wait{state: health.LinkStarved, evidence: fmt.Sprintf(
			"a thread has been runnable for %s without getting a CPU, and no quota holds it",
			f.passed().Round(100*time.Millisecond))}
	case share >= busyShare || f.all("R"):
		return wait{state: health.LinkRunning, evidence: fmt.Sprintf("runs: %d %% of a CPU", int(100*share))}
	case unread != "":
		return wait{state: health.LinkUnread, evidence: unread + "; " + f.asleepText()}
	case w.denied:
		return wait{
			state: health.LinkUnknown, evidence: fmt.Sprintf("%d threads, none stopped, frozen or in D", len(f.now.threads)),
			unknown: fmt.Sprintf(
				"the waits of process %d cannot be read (CAP_SYS_PTRACE, or another network namespace)", f.pid),
		}
	case len(f.doubts) > 0:
		return wait{
			state: health.LinkUnknown, evidence: strings.Join(f.doubts, "; "),
			unknown: fmt.Sprintf("whether that is an idle wait of process %d cannot be seen", f.pid),
		}
	}
	return wait{state: health.LinkAsleep, evidence: f.asleepText()}
}

// asleepText describes how the threads of a process sleep.
func (f *waiting) asleepText() string {
	var calls []string
	for name, n := range f.calls {
		calls = append(calls, fmt.Sprintf("%d in %s", n, name))
	}
	slices.Sort(calls)
	text := fmt.Sprintf("%d threads asleep", len(f.now.threads))
	if f.single() {
		text = "1 thread asleep"
	}
	if len(calls) > 0 {
		text += " (" + strings.Join(calls, ", ") + ")"
	}
	if ran := f.ran(); ran > 0 {
		passed := f.passed().Round(10 * time.Millisecond)
		return text + fmt.Sprintf("; runs now and then (%s of CPU in %s)", ran.Round(100*time.Microsecond), passed)
	}
	return text + ", waiting for nothing outside of the process that can be seen"
}
