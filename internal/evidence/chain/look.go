package chain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
)

const (
	// betweenLooks is the time between the two looks at a process that are compared.
	betweenLooks = 300 * time.Millisecond
	// maxThreads bounds the threads of a process that are read.
	maxThreads = 512
	maxSyscall = 256 // bytes of /proc/PID/syscall
)

// thread is a thread at the moment of a look.
type thread struct {
	tid   int
	start uint64
	state byte
	sched node.Schedstat
}

// look is a process at a moment.
type look struct {
	at      time.Time
	stat    node.Process
	tracer  int
	threads map[int]thread
	sockets map[uint32]connection // by inode
}

// looks are two looks at one process.
type looks struct{ before, now *look }

// look returns two looks at a process; ok is false when it has ended.
func (w *Walker) look(ctx context.Context, pid int) (l looks, ok bool) {
	if l.before = w.once(ctx, pid); l.before == nil || !sleep(ctx, betweenLooks) {
		return looks{}, false
	}
	l.now = w.once(ctx, pid)
	return l, l.now != nil && l.now.stat.Start == l.before.stat.Start
}

// once reads the threads and sockets of a process, nil when it has ended.
func (w *Walker) once(ctx context.Context, pid int) *look {
	s, err := node.ReadStat(w.procfs, pid)
	if err != nil {
		return nil
	}
	status, _ := node.ReadFile(node.Path(w.procfs, s.PID, "status")) // of nothing there is no tracer
	l := &look{at: time.Now(), stat: s, tracer: node.TracerPID(status), threads: map[int]thread{}}
	task := node.Path(w.procfs, s.PID, "task")
	tids, err := node.Numbers(task, maxThreads)
	if err != nil {
		return nil
	}
	for _, tid := range tids {
		if ctx.Err() != nil {
			return nil
		}
		if s, err := node.ReadStat(task, tid); err == nil { // or it has just ended
			sched := node.ReadSchedstat(node.Path(task, tid, ""))
			l.threads[tid] = thread{tid: tid, start: s.Start, state: s.State, sched: sched}
		}
	}
	if len(l.threads) == 0 {
		return nil
	}
	l.sockets = w.connections(ctx, s.PID)
	return l
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
	call     node.Syscall
}

// place reads where a thread waits.
func (w *Walker) place(pid, tid int) place {
	p := place{pid: pid, tid: tid}
	dir := node.Path(w.procfs, pid, "task")
	b, err := w.table.ReadSlow(node.Path(dir, tid, "syscall"), maxSyscall)
	p.call = node.ParseSyscall(b)
	w.denied = w.denied || err != nil && !node.Gone(err)
	if b, err := node.ReadFile(node.Path(dir, tid, "wchan")); err == nil && string(b) != "0" {
		p.channel = string(b)
	}
	return p
}

// fd returns where a descriptor of a process leads.
func (w *Walker) fd(pid, n int) string { return w.link(fmt.Sprintf("%d/fd/%d", pid, n)) }

func (w *Walker) fdInfo(pid, fd int) node.FDInfo { return node.ReadFDInfo(w.procfs, pid, fd) }
