package stacks

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// fileTimeout is how long a runtime may take to write its dump.
	fileTimeout = 15 * time.Second
	// fileInterval is the time between two looks for the file.
	fileInterval = 100 * time.Millisecond
)

// Signal sends SIGUSR1 to a runtime that has proved to be containerd, crio or dockerd and
// that handles the signal, waits for the file that it writes, and returns it. The daemon
// never calls it: a person has to ask for it.
func (r *Reader) Signal(ctx context.Context, pid int) (*Found, error) {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	defer func() { _ = unix.Close(handle) }()
	target, err := r.accepted(ctx, pid) // after the handle: both are of the same process
	if err != nil {
		return nil, err
	}
	previous := target.snapshot()
	err = unix.PidfdSendSignal(handle, unix.SIGUSR1, nil, 0) //nolint:forbidigo // a person has asked for it
	if err != nil {
		return nil, fmt.Errorf("send SIGUSR1 to process %d: %w", pid, err)
	}
	return target.awaitFile(ctx, previous)
}

// Describe returns the program of a process that Signal would accept. The error is why it would not.
func (r *Reader) Describe(ctx context.Context, pid int) (string, error) {
	target, err := r.accepted(ctx, pid)
	return target.name, err
}

// accepted returns a process that may get the signal.
func (r *Reader) accepted(ctx context.Context, pid int) (process, error) {
	target, err := r.identify(ctx, pid)
	if err == nil && !target.handlesUSR1() {
		err = fmt.Errorf("process %d (%s) does not handle SIGUSR1, which would end it", pid, target.name)
	}
	return target, err
}

// handlesUSR1 reports whether the process has a handler for the signal.
func (r process) handlesUSR1() bool {
	status, err := proc.Read(proc.Path(r.procfs, r.PID, "status"), maxProcFile)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		mask, ok := strings.CutPrefix(line, "SigCgt:")
		if !ok {
			continue
		}
		caught, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		return err == nil && caught&(1<<(unix.SIGUSR1-1)) != 0
	}
	return false
}

// snapshot returns the newest dump that is there, an empty one for none.
func (r process) snapshot() *Found {
	found, err := r.newestFile(time.Time{})
	if err != nil {
		return &Found{}
	}
	return found
}

// awaitFile waits for a newer file than the previous one, until it no longer grows.
func (r process) awaitFile(ctx context.Context, previous *Found) (*Found, error) {
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	last := previous
	for bounded.Sleep(ctx, fileInterval) {
		found := r.snapshot()
		isNew := found.Source != "" && (found.Source != previous.Source || !found.Time.Equal(previous.Time))
		if isNew && len(found.Text) > 0 && bytes.Equal(found.Text, last.Text) {
			return found, nil
		}
		last = found
	}
	return nil, fmt.Errorf("%s, pid %d, has got SIGUSR1 and has written no file %s within %s: look into its log",
		r.name, r.PID, strings.Join(r.files(r), ", "), fileTimeout)
}
