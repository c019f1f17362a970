package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is held by the plegd that uses a state directory. It is empty; the
// kernel knows the holder, and lets go of the lock when that process ends.
const lockFile = "lock"

// InUseError is a state directory that another plegd uses.
type InUseError struct {
	Dir string
	// PID is the other plegd's, 0 where it is in another pid namespace.
	PID int
}

func (e *InUseError) Error() string {
	holder := "another plegd, in another pid namespace, uses it"
	if e.PID > 0 {
		holder = fmt.Sprintf("plegd with pid %d uses it", e.PID)
	}
	return fmt.Sprintf("--state-dir: %s: %s: want a directory of its own for each plegd", e.Dir, holder)
}

// lock takes the state directory for this process. It returns an *InUseError
// where another plegd has it. A directory that cannot be written or does not
// answer within stateTimeout is no error: plegd runs without it.
func (s *store) lock() error {
	done := make(chan error, 1)
	go func() { done <- s.takeLock() }()
	select {
	case err := <-done:
		var used *InUseError
		if errors.As(err, &used) {
			return used
		}
	case <-time.After(stateTimeout):
	}
	return nil // load and save report what is wrong with the directory
}

func (s *store) takeLock() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		defer func() { _ = f.Close() }()
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return err // the file system has no locks
		}
		holder := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &holder); err != nil || holder.Type == unix.F_UNLCK {
			return &InUseError{Dir: s.dir}
		}
		return &InUseError{Dir: s.dir, PID: int(holder.Pid)}
	}
	s.locked = f // closing it would let go of the lock
	return nil
}
