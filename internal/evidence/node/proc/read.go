// Package proc reads and parses /proc: processes and their threads (stat, status,
// schedstat, limits, syscall), their arguments and descriptors, and file locks.
//
// It parses and does not judge: it knows no runtime and no reason. It never follows a
// descriptor's link to the file itself: the file system behind it may be what hangs.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxProcFile bounds one file of /proc or of a cgroup. Only
// /proc/locks ever comes near it.
const maxProcFile = 1 << 20

// readSize is the least room for one read, in bytes: a stat fits.
const readSize = 512

// Path returns the path of a file of a process.
func Path(procfs string, pid int, name string) string {
	return procfs + "/" + strconv.Itoa(pid) + "/" + name
}

// ReadLimited reads a file; an error where it has more than limit bytes. It calls the
// kernel without os.File, which costs as much again for a small file.
func ReadLimited(file string, limit int) ([]byte, error) {
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: file, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // only read from
	for b := make([]byte, 0, readSize); ; {
		b = slices.Grow(b, readSize)
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: file, Err: err}
		case n == 0:
			return b, nil
		case len(b)+n > limit:
			return nil, fmt.Errorf("%s is larger than %d bytes", file, limit)
		}
		b = b[:len(b)+n]
	}
}

// ReadFile reads a file of /proc or of a cgroup.
func ReadFile(path ...string) ([]byte, error) {
	return ReadLimited(filepath.Join(path...), maxProcFile)
}

// Gone reports whether an error says that a process, or its file, is gone.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// Numbers lists the entries of a directory that are numbers from 1, at most limit
// of them: of /proc the processes, of /proc/PID/task the threads.
func Numbers(dir string, limit int) (out []int, err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read from
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n > 0 && name[0] != '+' && len(out) < limit {
			out = append(out, n)
		}
	}
	return out, nil
}

// SplitArgs splits a /proc/PID/cmdline.
func SplitArgs(b []byte) []string {
	b = bytes.TrimRight(b, "\x00")
	if len(b) == 0 {
		return nil
	}
	return strings.Split(string(b), "\x00")
}

// ArgValues returns the values of a flag among the arguments, written as --name=value or
// --name value, with one dash or two.
func ArgValues(args []string, name string) (out []string) {
	for i, arg := range args {
		flag, ok := strings.CutPrefix(arg, "-")
		flag = strings.TrimPrefix(flag, "-")
		value, joined := strings.CutPrefix(flag, name+"=")
		switch {
		case !ok:
		case joined:
			out = append(out, value)
		case flag == name && i+1 < len(args):
			out = append(out, args[i+1])
		}
	}
	return out
}

// ArgValue returns the first value of a flag, "" where it is not given.
func ArgValue(args []string, name string) string {
	if all := ArgValues(args, name); len(all) > 0 {
		return all[0]
	}
	return ""
}

// Value returns the rest after "name:" on a line of its own, as in /proc/PID/status.
func Value(b []byte, name string) string {
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return string(bytes.TrimSpace(rest))
		}
	}
	return ""
}

// number is Value for a number of a base, from 0; otherwise is returned where there is none.
func number(b []byte, name string, base, otherwise int) int {
	if n, err := strconv.ParseInt(Value(b, name), base, 32); err == nil && n >= 0 {
		return int(n)
	}
	return otherwise
}
