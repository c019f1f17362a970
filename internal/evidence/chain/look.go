package chain

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

const (
	// betweenLooks is the least time between the two looks at a process that are
	// compared, usableLook the most.
	betweenLooks = 300 * time.Millisecond
	usableLook   = 5 * time.Second
	// maxThreads bounds the threads of a process that are read.
	maxThreads = 512
	maxSyscall = 256 // bytes of /proc/PID/syscall
)

// thread is a thread at the moment of a look.
type thread struct {
	tid   int
	start uint64
	state byte
	sched proc.Schedstat
}

// look is a process at a moment.
type look struct {
	at      time.Time
	stat    proc.Stat
	tracer  int
	threads map[int]thread
	// sockets are its connected sockets, by inode.
	sockets map[uint32]connection
	// denied is true where something could not be read for want of a privilege.
	denied bool
}

// looks are two looks at one process.
type looks struct{ before, now *look }

// look returns two looks at a process: it waits a moment where there is no recent one.
func (w *Walker) look(ctx context.Context, s proc.Stat) (l looks, ok bool) {
	l.before = w.looks[s.ID()]
	if l.before == nil || time.Since(l.before.at) > usableLook {
		if l.before = w.once(ctx, s); l.before == nil {
			return looks{}, false
		}
	}
	if d := betweenLooks - time.Since(l.before.at); d > 0 && !sleep(ctx, d) {
		return looks{}, false
	}
	s, err := proc.ReadStat(w.procfs, s.PID)
	if err != nil || s.Start != l.before.stat.Start {
		return looks{}, false
	}
	if l.now = w.once(ctx, s); l.now == nil {
		return looks{}, false
	}
	w.looks[s.ID()] = l.now
	return l, true
}

// once reads the threads and sockets of a process, nil when it has ended.
func (w *Walker) once(ctx context.Context, s proc.Stat) *look {
	l := &look{at: time.Now(), stat: s, threads: map[int]thread{}}
	if b, err := proc.ReadFile(proc.Path(w.procfs, s.PID, "status")); err == nil {
		l.tracer = proc.TracerPID(b)
	}
	task := proc.Path(w.procfs, s.PID, "task")
	tids, err := proc.Numbers(task, maxThreads)
	if err != nil {
		return nil
	}
	for _, tid := range tids {
		if ctx.Err() != nil {
			return nil
		}
		if t, ok := readThread(task, tid); ok {
			l.threads[tid] = t
		}
	}
	if len(l.threads) == 0 {
		return nil
	}
	l.sockets, l.denied = w.connections(ctx, s.PID)
	return l
}

// readThread reads a thread; ok is false when it has just ended.
func readThread(task string, tid int) (t thread, ok bool) {
	s, err := proc.ReadStat(task, tid)
	if err != nil {
		return thread{}, false
	}
	t = thread{tid: tid, start: s.Start, state: s.State}
	if b, err := proc.ReadFile(proc.Path(task, tid, "schedstat")); err == nil {
		t.sched, _ = proc.ParseSchedstat(b)
	}
	return t, true
}

// still returns the threads that have not run between the looks and are in the same
// state.
func (l looks) still() (out []thread) {
	for tid, t := range l.now.threads {
		b, ok := l.before.threads[tid]
		same := ok && b.start == t.start && b.state == t.state
		if same && b.sched.Run == t.sched.Run && b.sched.Slices == t.sched.Slices {
			out = append(out, t)
		}
	}
	return out
}

// all reports whether each thread is in one of the states, in both looks.
func (l looks) all(states string) bool {
	for _, one := range []*look{l.before, l.now} {
		for _, t := range one.threads {
			if strings.IndexByte(states, t.state) < 0 {
				return false
			}
		}
	}
	return true
}

// passed is the time between the looks, ran the CPU time of all threads in it.
func (l looks) passed() time.Duration { return l.now.at.Sub(l.before.at) }

func (l looks) ran() (sum time.Duration) {
	for tid, t := range l.now.threads {
		if b, ok := l.before.threads[tid]; ok && b.start == t.start && t.sched.Run > b.sched.Run {
			sum += time.Duration(t.sched.Run - b.sched.Run) //nolint:gosec // nanoseconds of a process
		}
	}
	return sum
}

// place is where a thread waits in the kernel.
type place struct {
	pid, tid int
	channel  string // "" where it cannot be read
	call     proc.Syscall
	inCall   bool // false where the system call is not known
	denied   bool // it may not be read
}

// place reads where a thread waits.
func (w *Walker) place(pid, tid int) place {
	p := place{pid: pid, tid: tid}
	dir := proc.Path(w.procfs, pid, "task")
	b, err := w.table.ReadSlow(proc.Path(dir, tid, "syscall"), maxSyscall)
	if err == nil {
		p.call, p.inCall = proc.ParseSyscall(b)
	} else {
		p.denied = !proc.Gone(err)
	}
	if b, err := proc.ReadFile(proc.Path(dir, tid, "wchan")); err == nil && string(b) != "0" {
		p.channel = clean(string(b))
	}
	return p
}

// fd returns where a descriptor of a process leads.
func (w *Walker) fd(pid int, n uint64) string {
	return w.link(strconv.Itoa(pid) + "/fd/" + strconv.FormatUint(n, 10))
}

// rawFDInfo returns the fdinfo of a descriptor, nil where it cannot be read.
func (w *Walker) rawFDInfo(pid int, fd string) []byte {
	b, err := proc.ReadFile(proc.Path(w.procfs, pid, "fdinfo"), fd)
	if err != nil {
		return nil
	}
	return b
}

// fdInfo returns the fdinfo of a descriptor, decoded.
func (w *Walker) fdInfo(pid int, n uint64) proc.FDInfo {
	return proc.ParseFDInfo(w.rawFDInfo(pid, strconv.FormatUint(n, 10)))
}
