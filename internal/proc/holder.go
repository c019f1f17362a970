package proc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// holderInterval is the time between two failed searches for a socket, and maxHolders the
	// number of sockets that are remembered.
	holderInterval = 5 * time.Second
	maxHolders     = 64
)

// ErrHidden is returned where descriptors of other processes cannot be read.
var ErrHidden = fmt.Errorf("read the descriptors of other users' processes: %w (give plegd CAP_SYS_PTRACE)", Denied)

// holder is how a search for the holder of a socket ended.
type holder struct {
	id  ID
	err error
	at  time.Time
}

// Holder returns the process that has a socket open; of several the one with the smallest
// pid, and never pid 1, which keeps what systemd made. ErrGone where none has, ErrHidden
// where the descriptors of some cannot be read. What a search has found counts while the
// process lives; a search that found nothing is repeated after holderInterval.
func (t *Table) Holder(ctx context.Context, inode uint32) (Process, error) {
	t.mu.Lock()
	known := t.holders[inode]
	t.mu.Unlock()
	if p, err := t.Alive(known.id.PID); err == nil && p.ID() == known.id {
		return p, nil
	}
	if known.err != nil && time.Since(known.at) < holderInterval {
		return Process{}, known.err
	}
	p, err := t.findHolder(ctx, inode)
	if errors.Is(err, Late) {
		return p, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.holders) >= maxHolders {
		clear(t.holders)
	}
	t.holders[inode] = holder{id: p.ID(), err: err, at: time.Now()}
	return p, err
}

func (t *Table) findHolder(ctx context.Context, inode uint32) (Process, error) {
	link := fmt.Sprintf("socket:[%d]", inode)
	pids, err := Holders(ctx, t.ProcFS, func(_, _ int, target string) bool { return target == link })
	i := slices.IndexFunc(pids, func(pid int) bool { return pid != 1 })
	if i >= 0 {
		return t.Alive(pids[i])
	}
	if err == nil {
		err = ErrGone
	}
	return Process{}, err
}

// Holders returns the processes that have a descriptor for which keep is true, by where it
// leads; ascending. The error is why some were not read: ErrHidden where their descriptors are
// denied, TooLarge for a process with too many, and Late where ctx ends. That those of pid 1 are
// denied, as some kernels do to root, is none: no process waits for what systemd keeps.
func Holders(ctx context.Context, procfs string, keep func(pid, fd int, target string) bool) ([]int, error) {
	pids, unread := PIDs(procfs)
	slices.Sort(pids)
	var out []int
	for _, pid := range pids {
		if ctx.Err() != nil {
			break
		}
		err := EachFD(procfs, pid, func(fd int, target string) bool {
			found := keep(pid, fd, target)
			if found {
				out = append(out, pid)
			}
			return !found && ctx.Err() == nil
		})
		switch {
		case errors.Is(err, Denied) && pid == 1:
		case errors.Is(err, Denied):
			unread = ErrHidden
		case err != nil && !Gone(err) && unread == nil:
			unread = err
		}
	}
	if ctx.Err() != nil {
		return out, &ReadError{Path: procfs, Outcome: Late, Err: context.Cause(ctx)}
	}
	return out, unread
}
