package chain

import (
	"context"
	"fmt"
	"os"
	"slices"
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

// thread is a thread at the moment of a look, and where it waits in the kernel.
type thread struct {
	node.Process
	node.Schedstat
	channel string // "" where it cannot be read
	call    node.Syscall
}

// look is a process at a moment.
type look struct {
	at      time.Time
	process node.Process
	tracer  int
	threads map[int]thread
	sockets map[uint32]connection // by inode
}

// waiting is two looks at a process, and what its threads wait for.
type waiting struct {
	*Explorer
	pid         int
	before, now look
	mounts      []node.Mount // nil before they are read
	denied      bool         // something of the process could not be read for want of a privilege

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

// look returns two looks at a process; ok is false when it has ended.
func (e *Explorer) look(ctx context.Context, pid int) (f *waiting, ok bool) {
	f = &waiting{Explorer: e, pid: pid, calls: map[string]int{}, lockPaths: map[string]string{}}
	ok = f.once(ctx, &f.before) && sleep(ctx, betweenLooks) && f.once(ctx, &f.now)
	return f, ok && f.now.process.Start == f.before.process.Start
}

// once reads the threads and sockets of a process; false when it has ended.
func (f *waiting) once(ctx context.Context, l *look) bool {
	p, err := node.ReadStat(f.procfs, f.pid)
	status, _ := node.ReadFile(node.Path(f.procfs, f.pid, "status")) // of nothing there is no tracer
	*l = look{at: time.Now(), process: p, tracer: node.TracerPID(status), threads: map[int]thread{}}
	task := node.Path(f.procfs, f.pid, "task")
	tids, _ := node.Numbers(task, maxThreads) // of nothing there is none
	for _, tid := range tids {
		if p, err := node.ReadStat(task, tid); err == nil && ctx.Err() == nil { // or it has just ended
			l.threads[tid] = thread{Process: p, Schedstat: node.ReadSchedstat(node.Path(task, tid, ""))}
		}
	}
	if err != nil || ctx.Err() != nil || len(l.threads) == 0 {
		return false
	}
	l.sockets = f.connections(ctx)
	return true
}

// still returns the threads that have not run between the looks and are in the same
// state: those in D first.
func (f *waiting) still() (out []thread) {
	for tid, t := range f.now.threads {
		b := f.before.threads[tid]
		if b.ID() == t.ID() && b.State == t.State && b.Schedstat == t.Schedstat {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b thread) int { return int(a.State) - int(b.State) })
	return out
}

// all reports whether each thread is in one of the states, in both looks.
func (f *waiting) all(states string) bool {
	for _, one := range []look{f.before, f.now} {
		for _, t := range one.threads {
			if strings.IndexByte(states, t.State) < 0 {
				return false
			}
		}
	}
	return true
}

// passed is the time between the looks, ran the CPU time of all threads in it.
func (f *waiting) passed() time.Duration { return f.now.at.Sub(f.before.at) }

func (f *waiting) ran() (sum time.Duration) {
	for tid, t := range f.now.threads {
		if b := f.before.threads[tid]; b.ID() == t.ID() && t.Run > b.Run {
			sum += time.Duration(t.Run - b.Run) //nolint:gosec // nanoseconds of a process
		}
	}
	return sum
}

// single reports whether the process has one thread.
func (f *waiting) single() bool { return len(f.now.threads) == 1 }

// place reads where a thread waits in the kernel.
func (f *waiting) place(t *thread) {
	dir := node.Path(f.procfs, f.pid, "task")
	b, err := f.table.ReadSlow(node.Path(dir, t.PID, "syscall"), maxSyscall)
	t.call = node.ParseSyscall(b)
	f.denied = f.denied || err != nil && !node.Gone(err)
	if b, err := node.ReadFile(node.Path(dir, t.PID, "wchan")); err == nil && string(b) != "0" {
		t.channel = string(b)
	}
}

// fd returns where a descriptor of the process leads, "" where that cannot be read.
func (f *waiting) fd(n int) string {
	to, _ := os.Readlink(node.Path(f.procfs, f.pid, fmt.Sprintf("fd/%d", n)))
	f.denied = f.denied || to == ""
	return to
}

func (f *waiting) fdInfo(n int) node.FDInfo { return node.ReadFDInfo(f.procfs, f.pid, n) }
