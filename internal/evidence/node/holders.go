package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

var (
	// ErrGone is returned for a process that has ended.
	ErrGone = fmt.Errorf("no such process: %w", fs.ErrNotExist)
	// ErrHidden is returned where descriptors of other processes cannot be read.
	ErrHidden = errors.New("the descriptors of other users' processes cannot be read: give plegd CAP_SYS_PTRACE")
)

// holdersAge is the age of a pass that is good enough for a search of descriptors.
const holdersAge = 2500 * time.Millisecond

// Holders returns the processes that have sockets open, by the sockets' inodes; of
// several the one with the smallest pid, and never pid 1, which keeps what systemd
// made. It reads the descriptors of every process until all are found. The error says
// why some could not be read.
func (t *Table) Holders(ctx context.Context, inodes ...uint32) (pids map[uint32]int, err error) {
	all, err := t.Processes(ctx, holdersAge)
	if err != nil {
		return nil, err
	}
	want := map[uint32]bool{}
	for _, inode := range inodes {
		want[inode] = true
	}
	pids = map[uint32]int{}
	hidden := false
	for _, pid := range all.pids {
		if len(pids) == len(want) {
			return pids, nil
		}
		if ctx.Err() != nil {
			return pids, fmt.Errorf("look for the process of a socket: %w", ctx.Err())
		}
		if pid == 1 {
			continue
		}
		dir := proc.Path(t.procfs, pid, "fd")
		if err := proc.MayReadFDs(dir); err != nil {
			hidden = hidden || errors.Is(err, fs.ErrPermission)
			continue
		}
		over := func() bool { return len(pids) == len(want) || ctx.Err() != nil }
		proc.EachSocket(dir, over, func(inode uint32) {
			if _, ok := pids[inode]; want[inode] && !ok {
				pids[inode] = pid
			}
		})
	}
	switch {
	case len(pids) == len(want):
		return pids, nil
	case ctx.Err() != nil:
		return pids, fmt.Errorf("look for the process of a socket: %w", ctx.Err())
	case hidden:
		return pids, ErrHidden
	}
	return pids, nil
}

// Holder returns the process that has one socket open; ErrGone where none has.
func (t *Table) Holder(ctx context.Context, inode uint32) (int, error) {
	pids, err := t.Holders(ctx, inode)
	switch {
	case pids[inode] != 0:
		return pids[inode], nil
	case err != nil:
		return 0, err
	}
	return 0, ErrGone
}
