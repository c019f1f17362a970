package chain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// busyShare is the share of a CPU from which a process is running.
const busyShare = 0.5

// maxHalted bounds the waits of one process whose processes are looked at.
const maxHalted = 4

// add adds a wait, unless it is known.
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

// waitOf finds what a process waits for.
func (e *Explorer) waitOf(ctx context.Context, p proc.Process) wait {
	if p.Dead() {
		return e.reaping(p)
	}
	f, ok := e.look(ctx, p.PID)
	if !ok {
		return unclear("could not be read twice", "process %d ended meanwhile, or the time for it ran out", p.PID)
	}
	if last := f.last.threads[p.PID]; last.Dead() { // it has ended between the looks
		return e.reaping(last.Process)
	}
	if held, ok := f.held(); ok {
		return held
	}
	for _, t := range f.unmoved() {
		if ctx.Err() == nil {
			f.thread(ctx, t)
		}
	}
	f.polledLease()
	f.fileLocks(ctx)
	f.queues(ctx)
	if e.isShim(ctx, p) {
		f.helpers(ctx)
	}
	return f.result(ctx)
}

// reaping is the wait of a process that has ended for its tracer, which reaps it first, else for its parent.
func (e *Explorer) reaping(p proc.Process) wait {
	tracer, _ := proc.TracerPID(e.procfs, p.PID)
	if tracer != 0 {
		evidence := fmt.Sprintf("has ended; its tracer, pid %d, has not reaped it", tracer)
		return wait{state: facts.LinkTraced, next: tracer, evidence: evidence}
	}
	evidence := fmt.Sprintf("has ended; its parent, pid %d, has not reaped it", p.PPID)
	return wait{state: facts.LinkEnded, next: p.PPID, evidence: evidence}
}

// result is the one wait that was found. What names its object comes before the threads of
// which only the kernel function is known: they may wait for the same one.
func (f *waiting) result(ctx context.Context) wait {
	if len(f.found) == 0 {
		f.found = f.blocked
	}
	if len(f.found) == 0 && !f.isRunnable() && !f.isRuntime() && f.share() < busyShare {
		f.connects(ctx)
	}
	if len(f.found) == 0 && !f.isRunnable() {
		f.answers(ctx)
	}
	if len(f.found) == 0 {
		f.found = f.kernel[:min(len(f.kernel), 1)]
	}
	// A limit of the cgroup holds up all that the process does, and its helpers too.
	limited := slices.IndexFunc(f.found, func(w wait) bool { return w.state == facts.LinkMemory })
	if limited >= 0 {
		return f.found[limited]
	}
	switch len(f.found) {
	case 0:
		return f.alone(ctx)
	case 1:
		return f.found[0]
	}
	halted := f.halted(ctx)
	if len(halted) == 1 {
		return halted[0]
	}
	var all []string
	for _, one := range f.found {
		all = append(all, one.evidence)
	}
	return unclear(strings.Join(all, "; "), "threads of process %d wait for %d different things", f.pid, len(f.found))
}

// halted returns those of several waits whose process stands still. Another one may be a wait for work, as that of a
// supervisor for its child.
func (f *waiting) halted(ctx context.Context) (out []wait) {
	if len(f.found) > maxHalted {
		return nil
	}
	for _, w := range f.found {
		if w.next != 0 && w.unknown == "" && f.standsStill(ctx, w.next) {
			out = append(out, w)
		}
	}
	return out
}

// unclear is the wait of a process of which more cannot be known, for some reason.
func unclear(evidence, why string, args ...any) wait {
	return wait{state: facts.LinkUnknown, evidence: evidence, unknown: fmt.Sprintf(why, args...)}
}

// isHeld reports whether a process is stopped, traced or frozen at one look.
func (f *waiting) isHeld(l *look) bool {
	stopped := 0
	for _, t := range l.threads {
		switch t.State {
		case 't':
			return true
		case 'T', 'Z', 'X':
			stopped++
		}
	}
	_, frozen := f.frozen(f.pid)
	return frozen || stopped == len(l.threads)
}

// frozen returns the cgroup that freezes a process.
func (f *waiting) frozen(pid int) (path string, ok bool) {
	tree, groups := f.cgroupsOf(pid, &f.unseen)
	return tree.Frozen(groups)
}

// held reports whether a process is stopped, traced or frozen.
func (f *waiting) held() (wait, bool) {
	threads := f.unmoved()
	traced := slices.IndexFunc(threads, f.isTracers)
	if traced >= 0 {
		tracer, err := proc.TracerPID(proc.Path(f.procfs, f.pid, "task"), threads[traced].PID)
		f.unseenIf("its tracer", err)
		if tracer != 0 {
			evidence := fmt.Sprintf("a thread is held by its tracer, pid %d", tracer)
			return wait{state: facts.LinkTraced, next: tracer, evidence: evidence}, true
		}
	}
	if f.first.isStopped() || f.last.isStopped() { // at one of them where it is stopped and continued, again and again
		const stopped = "stopped by a signal (SIGSTOP, SIGTSTP or job control); the kernel does not keep who sent it"
		return wait{state: facts.LinkStopped, evidence: stopped}, true
	}
	path, frozen := f.frozen(f.pid)
	return cgroupWait(path, facts.LinkFrozen, "frozen by its cgroup", "the cgroup is frozen"), frozen
}

// isStopped reports whether each thread that has not ended is stopped by a signal.
func (l *look) isStopped() bool {
	stopped := 0
	for _, t := range l.threads {
		switch t.State {
		case 'T':
			stopped++
		case 'Z', 'X':
		default:
			return false
		}
	}
	return stopped > 0
}

// isTracers reports whether a thread may wait for its tracer. One that has ended is there until that has reaped it: the
// process cannot end before.
func (f *waiting) isTracers(t thread) bool {
	return t.State == 't' || t.State == 'Z' && f.last.threads[f.pid].Exiting
}

// thread follows a thread that has not run.
func (f *waiting) thread(ctx context.Context, t thread) {
	if t.State != 'D' && t.State != 'S' {
		return
	}
	f.place(&t)
	kind := t.kind()
	switch {
	case kind == wchan.Seccomp:
		f.seccompWait(ctx, t)
	case kind == wchan.Agent:
		f.agentWait(ctx, t)
	case kind == wchan.Fault:
		f.faultWait(ctx, t)
	case kind == wchan.Lease:
		f.leaseWait(t)
	case t.State == 'S' && len(wchan.Of(t.channel).FileSystems) == 0: // the wait for a server may be interrupted
		f.asleep(ctx, t)
	case t.channel == "" && t.call.Number < 0:
		f.unseen = missingPrivilege
		f.add(wait{
			key: "kernel", state: facts.LinkBlocked, evidence: fmt.Sprintf("thread %d is in D", t.PID),
			unknown: "where its thread waits in the kernel cannot be read (" + missingPrivilege + ")",
		})
	case kind == wchan.Memory:
		f.memoryWait(t)
	case kind == wchan.Exec:
		f.vforkWait(ctx, t)
	default:
		f.fileWait(ctx, t)
	}
}

// kind returns how a thread waits.
func (t *thread) kind() wchan.Kind { return wchan.Of(t.channel).Kind }

// awaitsThaw reports whether a thread may wait for a frozen file system.
func (t *thread) awaitsThaw() bool {
	kind := t.kind()
	return kind == wchan.Thaw || kind == wchan.Semaphore
}

// asleep follows a thread that sleeps on a descriptor, a lock or a child, or in another call.
func (f *waiting) asleep(ctx context.Context, t thread) {
	switch t.call.Number {
	case -1: // it ran when the call was read
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_PREAD64:
		f.descriptorWait(ctx, t, false)
	case unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_PWRITE64:
		f.descriptorWait(ctx, t, true)
	case unix.SYS_SPLICE, unix.SYS_TEE, unix.SYS_SENDFILE:
		f.copyWait(ctx, t)
	case unix.SYS_FCNTL, unix.SYS_FLOCK:
		f.lockPaths[proc.ReadFDInfo(f.procfs, f.pid, t.call.FD()).Inode] = f.fd(t.call.FD())
	case unix.SYS_WAIT4, unix.SYS_WAITID:
		f.childWait(ctx, t)
	case unix.SYS_RT_SIGSUSPEND, unix.SYS_RT_SIGTIMEDWAIT:
		f.signalWait(ctx, t)
	case unix.SYS_CONNECT:
		f.connectWait(ctx, t)
	case unix.SYS_OPENAT, unix.SYS_OPENAT2:
		f.openWait(ctx, t)
	case unix.SYS_FUTEX:
		f.futexWait(ctx, t)
	case unix.SYS_MQ_TIMEDSEND, unix.SYS_MQ_TIMEDRECEIVE:
		f.messageWait(ctx, t)
	case unix.SYS_SEMOP, unix.SYS_SEMTIMEDOP, unix.SYS_MSGRCV, unix.SYS_MSGSND:
		f.ipcWait(ctx, t)
	default:
		f.otherCall(t)
	}
}

// otherCall adds a thread that sleeps in a system call which names nothing that can be followed:
// more than that the process waits is not known.
func (f *waiting) otherCall(t thread) {
	switch {
	case t.call.Idle != "":
		f.calls[t.call.Idle]++
	case !t.call.IsIdle(t.channel):
		out := kernelWait(t)
		out.state = facts.LinkAsleep
		out.link = facts.Link{}
		f.kernel = append(f.kernel, out)
	}
}

// kernelWait is that of a thread of which only the kernel function is known.
func kernelWait(t thread) wait {
	function := cmp.Or(t.channel, "a kernel function that cannot be read")
	return wait{
		key: "kernel " + function, state: facts.LinkBlocked,
		evidence: fmt.Sprintf("thread %d waits in %s", t.PID, function),
		link: facts.Link{
			Kind: facts.KindKernel, Name: function, State: facts.LinkBlocked,
			Evidence: "the system call names no file that plegd can see",
		},
	}
}

// alone is the wait of a process without a visible wait for anything outside of it.
func (f *waiting) alone(ctx context.Context) wait {
	if out, ok := f.dumpsCore(ctx); ok {
		return out
	}
	if out, ok := f.throttled(f.pid); ok {
		out.next = 0
		return out
	}
	if out, ok := f.greediestClient(ctx); ok {
		return out
	}
	if out, ok := f.polledLock(ctx, ""); ok {
		return out
	}
	passed := f.last.time.Sub(f.first.time)
	share := f.share()
	switch {
	case slices.ContainsFunc(f.unmoved(), func(t thread) bool { return t.State == 'R' }):
		return wait{state: facts.LinkStarved, evidence: fmt.Sprintf(
			"a thread has been runnable for %s without getting a CPU, and no quota holds it%s",
			passed.Round(100*time.Millisecond), f.lowPriority())}
	case share >= busyShare || f.isRunnable():
		return wait{state: facts.LinkRunning, evidence: fmt.Sprintf("runs: %d %% of a CPU", int(100*share))}
	}
	if out, ok := f.heldUpServer(ctx); ok {
		return out
	}
	switch {
	case f.unread != "":
		return wait{state: facts.LinkUnread, evidence: f.unread + "; " + f.asleepText()}
	case f.unseen != "":
		return unclear(fmt.Sprintf("%d threads, none stopped, frozen or in D", len(f.last.threads)),
			"the waits of process %d cannot be read (%s)", f.pid, f.unseen)
	case len(f.doubts) > 0:
		return unclear(strings.Join(f.doubts, "; "), "whether that is an idle wait of process %d cannot be seen", f.pid)
	}
	return wait{state: facts.LinkAsleep, evidence: f.asleepText()}
}

// lowPriority describes how the process stands behind others for a CPU, "" where it does not.
func (f *waiting) lowPriority() string {
	priority, err := proc.ReadPriority(f.procfs, f.pid)
	f.unseenIf("its priority", err)
	switch {
	case err != nil:
		return ""
	case priority.IsIdle:
		return "; its scheduling policy is SCHED_IDLE"
	case priority.Nice > 0:
		return fmt.Sprintf("; its nice value is %d", priority.Nice)
	}
	return ""
}

// share is how much of a CPU the process has used between the looks.
func (f *waiting) share() float64 { return float64(f.ran()) / float64(f.last.time.Sub(f.first.time)) }

// isRuntime reports whether the process is the runtime, or the daemon behind it.
func (f *waiting) isRuntime() bool {
	return f.pid == f.symptom.RuntimePID || f.pid == f.symptom.DaemonPID
}

// isRunnable reports whether the first thread waits for nothing but a CPU.
func (f *waiting) isRunnable() bool {
	return f.first.threads[f.pid].State == 'R' && f.last.threads[f.pid].State == 'R'
}

// asleepText describes how the threads of a process sleep.
func (f *waiting) asleepText() string {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(f.calls)) {
		calls = append(calls, fmt.Sprintf("%d in %s", f.calls[name], name))
	}
	text := facts.Count(len(f.last.threads), "thread", "threads") + " asleep"
	if len(calls) > 0 {
		text += " (" + strings.Join(calls, ", ") + ")"
	}
	return text + ", waiting for nothing outside of the process that can be seen"
}
