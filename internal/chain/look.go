package chain

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/proc"
)

// thread is a thread at the moment of a look, and where it waits in the kernel.
type thread struct {
	proc.Thread

	channel string // "" where it cannot be read
	call    proc.Syscall
}

// look is a process at a moment: its threads by id, its sockets by inode.
type look struct {
	time    time.Time
	threads map[int]thread
	sockets map[uint32]connection
}

// waiting is two looks at a process, and what its threads wait for.
type waiting struct {
	*Explorer
	pid         int
	first, last look
	mounts      []proc.Mount // nil before they are read
	mountsErr   error        // why they could not be
	fuseServed  map[int]bool // the FUSE connections that a process serves, nil before they are read
	isLocated   bool         // the other ends of its connections have been looked for
	unlocated   error        // why some may be missing
	unseen      string       // why something of the process could not be read, "" if all was

	found     []wait
	blocked   []wait            // threads in D whose object is not known: they count where nothing else is found
	kernel    []wait            // threads in another call: the last to count
	doubts    []string          // those that may as well be of idle threads
	calls     map[string]int    // the idle threads, by their system call
	lockPaths map[string]string // in whose fcntl(2) or flock(2) threads sleep, by inode
	unread    string            // describes bytes that it does not read, "" if there are none
}

// look returns two looks at a process; ok is false when it has ended.
func (e *Explorer) look(ctx context.Context, pid int) (f *waiting, ok bool) {
	f = &waiting{Explorer: e, pid: pid, calls: map[string]int{}, lockPaths: map[string]string{}}
	if !f.read(ctx, &f.first) {
		return f, false
	}
	if !bounded.Sleep(ctx, betweenLooks) {
		return f, false
	}
	return f, f.read(ctx, &f.last) && f.last.threads[pid].ID() == f.first.threads[pid].ID()
}

// read reads the threads and sockets of a process; false when it has ended.
func (f *waiting) read(ctx context.Context, l *look) bool {
	*l = look{time: time.Now(), threads: map[int]thread{}}
	all, err := proc.Threads(f.procfs, f.pid, maxThreads)
	f.unseenIf("its threads", err)
	for _, t := range all {
		l.threads[t.PID] = thread{Thread: t}
	}
	if !f.isHeld(l) { // the cause is known without them
		l.sockets = f.connections(ctx)
	}
	return ctx.Err() == nil && len(l.threads) > 0
}

// unmoved returns the threads that have not run between the looks and are in the same
// state: those in D first.
func (f *waiting) unmoved() (out []thread) {
	for tid, t := range f.last.threads {
		b := f.first.threads[tid]
		if b.ID() == t.ID() && b.State == t.State && b.Schedstat == t.Schedstat {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b thread) int { return int(a.State) - int(b.State) })
	return out
}

// ran is the CPU time of all threads between the looks, in nanoseconds.
func (f *waiting) ran() (sum uint64) {
	for tid, t := range f.last.threads {
		if b := f.first.threads[tid]; b.ID() == t.ID() {
			sum += max(t.Run, b.Run) - b.Run
		}
	}
	return sum
}

// place reads where a thread waits in the kernel.
func (f *waiting) place(t *thread) {
	place := f.table.Place(f.pid, t.PID)
	t.call = place.Call
	t.channel = place.Channel
	f.unseenIf("the system call of a thread", place.Unread)
}

// fd returns where a descriptor of the process leads, "" where that cannot be read.
func (f *waiting) fd(n int) string {
	leads, err := proc.Link(proc.Path(f.procfs, f.pid, fmt.Sprintf("fd/%d", n)))
	if err != nil {
		f.unseenIf("a descriptor", err)
	}
	return leads
}

// cgroupsOf returns the cgroups of a process, nil for none, with a reader of their files. What cannot
// be read is noted in unseen.
func (f *waiting) cgroupsOf(pid int, unseen *string) (proc.CgroupTree, proc.Cgroups) {
	addUnseen := func(part string, err error) {
		if proc.OutcomeOf(err) != proc.Absent {
			*unseen = fmt.Sprintf("its %s: %s", part, proc.Why(err))
		}
	}
	tree := proc.NewCgroupTree(f.procfs, f.sysfs, proc.NewFiles(addUnseen))
	groups, err := tree.Of(pid)
	if err != nil {
		addUnseen("cgroup", err)
		return tree, nil
	}
	return tree, groups
}

// missingPrivilege is why a file of another process is denied.
const missingPrivilege = "CAP_SYS_PTRACE"

// unseenIf notes that something of the process could not be read: its waits are not all known.
func (f *waiting) unseenIf(what string, err error) {
	outcome := proc.OutcomeOf(err)
	switch outcome {
	case "", proc.Absent:
	case proc.Denied:
		f.unseen = what + ": denied (" + missingPrivilege + ")"
	case proc.Failed:
		f.unseen = fmt.Sprintf("%s: %v", what, err)
	default:
		f.unseen = what + ": " + string(outcome)
	}
}
