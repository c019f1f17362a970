package evidence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// maxProcFile bounds what is read of one file of /proc or of a cgroup. Only
// /proc/locks ever comes near it.
const maxProcFile = 1 << 20

// procReader reads small files of /proc and of cgroups, hundreds a second: three
// system calls a file, into one buffer. os.ReadFile takes nearly twice the time.
// Not for several goroutines at once.
type procReader struct{ buf []byte }

// read returns what is in the file at path, valid until the next read. Its
// errors are those of os.ReadFile, and ESRCH for a process that has just ended.
func (r *procReader) read(path string) ([]byte, error) {
	fd, err := retryIntr(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if r.buf == nil {
		r.buf = make([]byte, 4<<10)
	}
	for n := 0; ; {
		if n == len(r.buf) {
			if n >= maxProcFile {
				return nil, fmt.Errorf("%s is larger than %d bytes", path, maxProcFile)
			}
			r.buf = append(r.buf, make([]byte, n)...)
		}
		m, err := retryIntr(func() (int, error) { return unix.Read(fd, r.buf[n:]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if m == 0 {
			return r.buf[:n], nil
		}
		n += m
	}
}

// readProc reads a file that is read now and then.
func readProc(path ...string) ([]byte, error) {
	var r procReader
	return r.read(filepath.Join(path...))
}

func retryIntr(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// gone tells whether an error says that a process, or its file, is no more.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// numbers lists the entries of a directory that are numbers from 1, at most limit
// of them: of /proc the processes, of /proc/PID/task the threads.
func numbers(dir string, limit int) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read from
	out := make([]int, 0, min(limit, 256))
	for {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			if len(out) == limit {
				return out, nil
			}
			if name[0] < '1' || name[0] > '9' {
				continue
			}
			if n, err := strconv.Atoi(name); err == nil {
				out = append(out, n)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		}
	}
}

// uptime is the time since boot, in the clock of the start times of
// /proc/PID/stat.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // never on a kernel that Go runs on
	}
	return time.Duration(t.Nano())
}

// startedAt converts a start time of /proc/PID/stat: now is the wall clock's,
// up the time since boot. The age, and not btime of /proc/stat, is what counts:
// so the result keeps now's monotonic reading, and a process that was started
// before the clock was set right is as old as it is.
func startedAt(now time.Time, up time.Duration, ticks uint64) time.Time {
	return now.Add(-max(0, up-ticksToDuration(ticks)))
}
