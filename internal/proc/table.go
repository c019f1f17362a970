// Package proc reads what the kernel shows of the node's processes: one process table that
// all sources of evidence share, and threads, descriptors, locks, mounts, unix sockets and
// cgroups, from /proc, /sys/fs/cgroup and sock_diag.
//
// Each read returns a value or an Outcome. It judges and writes nothing. It never follows a
// descriptor's link to the file itself, whose file system may be what hangs, and never connects
// to a socket.
package proc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/bounded"
)

const (
	// maxProcesses bounds the entries of one pass over /proc: about 50 MiB of memory.
	maxProcesses = 1 << 17
	maxZombies   = 256
	// slowTimeout limits the wait for a file that may block, and slowReaders the number of such
	// reads that hang at the same time.
	slowTimeout = 200 * time.Millisecond
	slowReaders = 4
	// A pass that takes longer than slowPass is not repeated for slowPassRest times its duration.
	slowPass     = 100 * time.Millisecond
	slowPassRest = 4
	// maxPause is the age from which an interrupted pass starts again.
	maxPause = 10 * time.Second
)

// ErrGone is returned for a process that has ended.
var ErrGone = fmt.Errorf("no such process: %w", Absent)

// Processes are the processes of the node at a moment. They are not changed.
type Processes struct {
	At    time.Time // when the pass began
	ByPID map[int]Process
	// Zombies are those that have ended and were not reaped yet, maxZombies of them.
	Zombies []Process
	// Unreaped is how many children of a process have ended and were not reaped yet, by its pid.
	Unreaped map[int]int
	// Unread is why processes are missing, nil where none is: more of them than one pass reads.
	Unread error
	// children are pids by the parent's, ascending.
	children map[int][]int
}

// copy returns the processes of a pass that continues later.
func (p *Processes) copy(unread error) *Processes {
	return &Processes{
		At: p.At, ByPID: maps.Clone(p.ByPID), Zombies: slices.Clone(p.Zombies), Unreaped: maps.Clone(p.Unreaped), Unread: unread,
		children: maps.Clone(p.children),
	}
}

func (p *Processes) add(process Process) {
	if !process.Dead() {
		p.ByPID[process.PID] = process
		p.children[process.PPID] = append(p.children[process.PPID], process.PID)
		return
	}
	p.Unreaped[process.PPID]++
	if len(p.Zombies) < maxZombies {
		p.Zombies = append(p.Zombies, process)
	}
}

// Children returns the children of a process, by ascending pid.
func (p *Processes) Children(pid int) []Process {
	var out []Process
	for _, child := range p.children[pid] {
		out = append(out, p.ByPID[child])
	}
	return out
}

// Ancestors returns a process and those that it descends from, the nearest first.
func (p *Processes) Ancestors(pid int) []int {
	var out []int
	for pid > 0 && !slices.Contains(out, pid) {
		out = append(out, pid)
		pid = p.ByPID[pid].PPID
	}
	return out
}

// Table is the node's process table, for several goroutines at once.
type Table struct {
	ProcFS string // where /proc is mounted

	slow  [slowReaders]bounded.Slot[[]byte]
	lists [slowReaders]bounded.Slot[[]Mount]
	stats bounded.Slot[bool] // of stat(2) on file systems that may hang
	files bounded.Slot[Program]

	passing chan struct{} // holds one token while a pass runs
	last    *Processes    // of the last complete pass
	took    time.Duration // for the last pass
	paused  *pass         // a pass whose context ended, to be continued

	mu       sync.Mutex     // of the following fields
	programs map[ID]program // by process
	holders  map[uint32]holder
}

// pass is a pass over the processes that has not ended.
type pass struct {
	pids []int // still to be read
	next *Processes
	took time.Duration
}

// NewTable returns a table of the processes below procfs.
func NewTable(procfs string) *Table {
	return &Table{
		ProcFS:   procfs,
		passing:  make(chan struct{}, 1),
		programs: map[ID]program{},
		holders:  map[uint32]holder{},
	}
}

// Processes returns the processes, read again if the last pass is older than maxAge. Zombies are
// apart from the others.
//
// A pass stops when ctx ends: the error is Late, and the next call continues it. The processes
// that were read until then are returned with the error. Any other error is of /proc itself.
func (t *Table) Processes(ctx context.Context, maxAge time.Duration) (*Processes, error) {
	if !t.acquire(ctx) {
		return nil, t.late(ctx)
	}
	defer func() { <-t.passing }()
	if t.took > slowPass {
		maxAge = max(maxAge, slowPassRest*t.took)
	}
	if t.last != nil && time.Since(t.last.At) < maxAge {
		return t.last, nil
	}
	current := t.paused
	t.paused = nil
	if current == nil || time.Since(current.next.At) > maxPause {
		started, err := t.startPass()
		if err != nil {
			return nil, err
		}
		current = started
	}
	if !t.continuePass(ctx, current) {
		t.paused = current
		err := t.late(ctx)
		return current.next.copy(err), err
	}
	t.last = current.next
	t.took = current.took
	t.forgetEnded(t.last)
	return t.last, nil
}

// acquire waits until no other pass runs; false where ctx ends before.
func (t *Table) acquire(ctx context.Context) bool {
	select {
	case t.passing <- struct{}{}:
		return true
	default:
	}
	select {
	case t.passing <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// late is the error of a pass that did not end in time.
func (t *Table) late(ctx context.Context) error {
	return fmt.Errorf("list the processes: %w", &ReadError{Path: t.ProcFS, Outcome: Late, Err: context.Cause(ctx)})
}

// startPass lists the pids.
func (t *Table) startPass() (*pass, error) {
	started := time.Now()
	pids, err := PIDs(t.ProcFS)
	if err != nil && !errors.Is(err, TooLarge) {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("list the processes: %w", &ReadError{Path: t.ProcFS, Outcome: Absent})
	}
	slices.Sort(pids)
	next := &Processes{At: started, Unread: err, ByPID: make(map[int]Process, len(pids)), Unreaped: map[int]int{}, children: map[int][]int{}}
	return &pass{pids: pids, next: next, took: time.Since(started)}, nil
}

// continuePass reads the processes that are left; false where ctx ends before.
func (t *Table) continuePass(ctx context.Context, p *pass) bool {
	started := time.Now()
	defer func() { p.took += time.Since(started) }()
	for len(p.pids) > 0 {
		if ctx.Err() != nil {
			return false
		}
		process, err := ReadStat(t.ProcFS, p.pids[0])
		p.pids = p.pids[1:]
		if err == nil { // else it has just ended
			p.next.add(process)
		}
	}
	return true
}

// forgetEnded drops the programs of processes that have ended, and those that could not be read.
func (t *Table) forgetEnded(current *Processes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.programs, func(id ID, p program) bool {
		return p.args == nil || current.ByPID[id.PID].ID() != id
	})
}

// Alive returns a process as it is now; an error that it is gone where it has ended.
func (t *Table) Alive(pid int) (Process, error) {
	p, err := ReadStat(t.ProcFS, pid)
	if err == nil && p.Dead() {
		err = ErrGone
	}
	return p, err
}

// ReadSlow reads a file that may block while its process is wedged, as cmdline and syscall do while
// the memory map is locked. A read that does not return in time is abandoned: the outcome is
// Late then, and while too many of them hang.
func (t *Table) ReadSlow(path string, limit int) ([]byte, error) {
	return inSlot(context.Background(), t.slow[:], slowTimeout, path, func(context.Context) ([]byte, error) {
		return Read(path, limit)
	})
}

// inSlot reads in the first slot that is free. The outcome is Late where the read does not return
// in time, and while all slots hold reads that hang.
func inSlot[T any](ctx context.Context, slots []bounded.Slot[T], timeout time.Duration, path string,
	read func(context.Context) (T, error)) (T, error) {
	var none T
	for i := range slots {
		value, err := slots[i].Do(ctx, timeout, read)
		if errors.Is(err, bounded.ErrBusy) {
			continue
		}
		if errors.Is(err, bounded.ErrLate) {
			return none, &ReadError{Path: path, Outcome: Late, Err: err}
		}
		return value, err
	}
	return none, &ReadError{Path: path, Outcome: Late, Err: bounded.ErrBusy}
}
