package chain

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// futexPrivate is the flag of a futex(2) in memory that no other process shares (FUTEX_PRIVATE_FLAG).
const futexPrivate = 128

// futexWait follows a thread in futex(2) that waits in memory which is shared with a file, as of a POSIX semaphore, to the
// process that maps the same file. A process with several threads may have one that waits for work there: then it is only
// one that is held up.
func (f *waiting) futexWait(ctx context.Context, t thread) {
	memory, word, ok := f.sharedWord(f.pid, t.call)
	if !ok {
		f.calls[t.call.Idle]++
		return
	}
	users, err := f.usersOf(ctx, memory.File, word)
	if len(f.last.threads) > 1 && len(f.heldUp(users)) != 1 {
		f.doubt("thread %d waits in the shared memory %s", t.PID, memory.Path)
		return
	}
	out := wait{
		key: "memory " + memory.File, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in the shared memory %s", t.PID, memory.Path),
	}
	named := f.holdersToName(ctx, users)
	switch {
	case len(named) == 1:
		out.next = named[0]
		out.evidence += fmt.Sprintf(", which pid %d has too", out.next)
	case len(named) > 1:
		out.unknown = fmt.Sprintf("%d other processes have that memory, and none of them stands still", len(named))
	case err != nil:
		f.unseenIf("the memory of other processes", err)
		out.unknown = fmt.Sprintf("which other process has that memory cannot be read (%s)", f.unseen)
	default:
		out.unknown = "no other process that plegd can see has that memory: one that had it may have ended"
	}
	f.add(out)
}

// sharedWord returns the shared memory in which a futex(2) of a process waits, and its place in the file there; ok is false
// for any other call.
func (f *waiting) sharedWord(pid int, call proc.Syscall) (memory proc.Mapping, word uint64, ok bool) {
	if call.Number != unix.SYS_FUTEX || call.Args[1]&futexPrivate != 0 {
		return memory, 0, false
	}
	all, err := f.table.SharedMappings(pid)
	f.unseenIf("its memory", err)
	i := slices.IndexFunc(all, func(m proc.Mapping) bool { return m.Contains(call.Args[0]) })
	if i < 0 {
		return memory, 0, false
	}
	return all[i], all[i].Offset + call.Args[0] - all[i].Start, true
}

// usersOf returns the other processes that map a file, but for those that wait at the same word of it. The error is why
// some could not be read.
func (f *waiting) usersOf(ctx context.Context, file string, word uint64) (users []int, unread error) {
	for pid := range f.processes(ctx).ByPID {
		if pid == f.pid || ctx.Err() != nil {
			continue
		}
		all, err := f.table.SharedMappings(pid)
		if err != nil && !proc.Gone(err) {
			unread = err
		}
		shares := slices.ContainsFunc(all, func(m proc.Mapping) bool { return m.File == file })
		if shares && !f.waitsAt(pid, file, word) {
			users = append(users, pid)
		}
	}
	if ctx.Err() != nil {
		unread = &proc.ReadError{Path: f.procfs, Outcome: proc.Late, Err: context.Cause(ctx)}
	}
	slices.Sort(users)
	return users, unread
}

// waitsAt reports whether the first thread of a process waits at a word of a file that it maps.
func (f *waiting) waitsAt(pid int, file string, word uint64) bool {
	memory, place, waits := f.sharedWord(pid, f.table.Place(pid, pid).Call)
	return waits && memory.File == file && place == word
}
