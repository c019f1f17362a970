// Package proc reads and parses /proc: processes and their threads (stat, status,
// schedstat, limits, syscall), their arguments and descriptors, and file locks.
//
// It parses and does not judge: it knows no runtime and no reason. It opens no
// file that belongs to a process's memory (cmdline) except where the read can be
// left behind, and never follows a descriptor's link to the file itself: the file
// system behind it may be what hangs.
package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Path returns the path of a file of a process.
func Path(procfs string, pid int, name string) string {
	return procfs + "/" + strconv.Itoa(pid) + "/" + name
}

// maxProcFile bounds what is read of one file of /proc or of a cgroup. Only
// /proc/locks ever comes near it.
const maxProcFile = 1 << 20

// Reader reads small files of /proc and of cgroups into one buffer, with fewer system
// calls than os.ReadFile. Not for several goroutines at once.
type Reader struct{ buf []byte }

// Read returns what is in the file at path, valid until the next read. Its
// errors are those of os.ReadFile, and ESRCH for a process that has just ended.
func (r *Reader) Read(path string) ([]byte, error) { return r.read(path, false) }

// ReadRecord is Read for a file that the kernel prints as a whole, as a process's
// stat and all of a cgroup but its lists of processes: what is shorter than the
// buffer is all of it, and the read that would find the end is left out.
func (r *Reader) ReadRecord(path string) ([]byte, error) { return r.read(path, true) }

func (r *Reader) read(path string, record bool) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // only read from
	return r.readAll(fd, path, record)
}

// readAll reads a file from its beginning.
func (r *Reader) readAll(fd int, path string, record bool) ([]byte, error) {
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
		m, err := retryIntr(func() (int, error) { return unix.Pread(fd, r.buf[n:], int64(n)) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		n += m
		if m == 0 || record && n < len(r.buf) {
			return r.buf[:n], nil
		}
	}
}

// ReadFile reads a file that is read now and then.
func ReadFile(path ...string) ([]byte, error) {
	var r Reader
	return r.Read(filepath.Join(path...))
}

func open(path string) (fd int, err error) {
	fd, err = retryIntr(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

func retryIntr(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// Gone reports whether an error says that a process, or its file, is gone.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// Numbers lists the entries of a directory that are numbers from 1, at most limit
// of them: of /proc the processes, of /proc/PID/task the threads.
func Numbers(dir string, limit int) ([]int, error) {
	fd, err := open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // only read from
	out := make([]int, 0, min(limit, 256))
	var names []string
	for buf := make([]byte, 8<<10); ; {
		n, err := retryIntr(func() (int, error) { return unix.ReadDirent(fd, buf) })
		if err != nil {
			return nil, &fs.PathError{Op: "list", Path: dir, Err: err}
		}
		if n == 0 {
			return out, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
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
	}
}
