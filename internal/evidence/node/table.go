// Package node shows the processes of the node: one table that all sources of
// evidence share, with the arguments of processes and the holders of sockets on
// request. Its subpackages read the kernel's interfaces: proc, cgroup, sockdiag.
//
// It judges nothing: it knows kinds of processes by their names, and no reason.
package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// maxProcesses bounds the processes of one pass.
const maxProcesses = 32768

// Process is one process of a table.
type Process struct {
	proc.Stat
	Kind Kind
}

// Processes are the processes of the node at a moment. They are not changed.
type Processes struct {
	At    time.Time
	ByPID map[int]Process
	pids  []int // ascending
	// children are pids by their parent's, ascending.
	children map[int][]int
}

// Children returns the children of a process, by ascending pid.
func (p *Processes) Children(pid int) []Process {
	out := make([]Process, 0, len(p.children[pid]))
	for _, child := range p.children[pid] {
		out = append(out, p.ByPID[child])
	}
	return out
}

// Ancestors returns a process and those that it descends from, the nearest first.
func (p *Processes) Ancestors(pid int) (out []int) {
	for pid > 0 && !slices.Contains(out, pid) {
		out = append(out, pid)
		pid = p.ByPID[pid].PPID
	}
	return out
}

// Table is the node's process table, for several goroutines at once.
type Table struct {
	procfs string
	args   arguments

	mu   sync.Mutex // of one pass
	last *Processes
}

// NewTable returns a table of the processes below procfs.
func NewTable(procfs string) *Table { return &Table{procfs: procfs} }

// Processes returns the processes, read again if the last pass is older than
// maxAge. Zombies are left out. The error is of /proc itself, or of ctx.
func (t *Table) Processes(ctx context.Context, maxAge time.Duration) (*Processes, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil && time.Since(t.last.At) < maxAge {
		return t.last, nil
	}
	next, err := t.pass(ctx)
	if err != nil {
		return nil, err
	}
	t.last = next
	t.args.forget(next)
	return next, nil
}

func (t *Table) pass(ctx context.Context) (*Processes, error) {
	pids, err := proc.Numbers(t.procfs, maxProcesses+1)
	switch {
	case err != nil:
		return nil, fmt.Errorf("list the processes: %w", err)
	case len(pids) == 0:
		return nil, fmt.Errorf("list the processes: %s shows none", t.procfs)
	case len(pids) > maxProcesses:
		return nil, fmt.Errorf("list the processes: there are more than %d", maxProcesses)
	}
	slices.Sort(pids)
	var reader proc.Reader
	p := &Processes{At: time.Now(), ByPID: make(map[int]Process, len(pids)), children: map[int][]int{}}
	for i, pid := range pids {
		if i%256 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("list the processes: %w after %d", ctx.Err(), i)
		}
		s, err := reader.Stat(t.procfs, pid)
		if err != nil || s.Dead() {
			continue // it has just ended
		}
		p.pids = append(p.pids, pid)
		p.ByPID[pid] = Process{Stat: s, Kind: KindOf(s.Comm)}
		p.children[s.PPID] = append(p.children[s.PPID], pid)
	}
	return p, nil
}

// Alive returns a process as it is now; an error that it is gone where it has ended.
func (t *Table) Alive(pid int) (Process, error) {
	s, err := proc.ReadStat(t.procfs, pid)
	if err == nil && s.Dead() {
		err = ErrGone
	}
	return Process{Stat: s, Kind: KindOf(s.Comm)}, err
}

// Args returns the arguments of a process, nil where they cannot be read in time.
// They are read once for each process.
func (t *Table) Args(id proc.ID) []string { return t.args.of(t.procfs, id) }
