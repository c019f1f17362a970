package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Outcome is why a read of the node has no value. It is an error, so that errors.Is finds it.
type Outcome string

// The outcomes. A rule that needs a value which was not read reports the outcome. Only Absent means
// that there is none.
const (
	Absent   Outcome = "not there"
	Denied   Outcome = "denied"
	TooLarge Outcome = "too large"
	Late     Outcome = "no answer in time"
	Failed   Outcome = "failed" // any other error
)

func (o Outcome) Error() string { return string(o) }

// ReadError is the failure of one read. It wraps its outcome and its cause.
type ReadError struct {
	Path    string
	Outcome Outcome
	Limit   string // of TooLarge, with its unit
	Err     error  // of the system call; nil for none
}

func (e *ReadError) Error() string {
	switch {
	case e.Outcome == TooLarge:
		return e.Path + ": larger than " + e.Limit
	case e.Err != nil:
		return e.Path + ": " + e.Err.Error()
	}
	return e.Path + ": " + string(e.Outcome)
}

func (e *ReadError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Outcome}
	}
	return []error{e.Outcome, e.Err}
}

// OutcomeOf returns the outcome of an error; "" for nil.
func OutcomeOf(err error) Outcome {
	var outcome Outcome
	switch {
	case err == nil:
		return ""
	case errors.As(err, &outcome):
		return outcome
	}
	return outcomeOf(err)
}

// Why returns the outcome of an error in words, without the path: "larger than 50000 lines".
func Why(err error) string {
	var read *ReadError
	if errors.As(err, &read) && read.Outcome == TooLarge {
		return "larger than " + read.Limit
	}
	outcome := OutcomeOf(err)
	if outcome == Failed {
		return err.Error()
	}
	return string(outcome)
}

// outcomeOf classifies the error of a system call.
func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENOTDIR),
		errors.Is(err, unix.ENODEV), errors.Is(err, unix.EOPNOTSUPP): // of a removed cgroup; of a kernel with psi=0
		return Absent
	case errors.Is(err, fs.ErrPermission):
		return Denied
	}
	return Failed
}

func failed(path string, err error) error {
	return &ReadError{Path: path, Outcome: outcomeOf(err), Err: err}
}

// firstRead is the size of the first buffer; most files of /proc are smaller.
const firstRead = 4 << 10

// Read reads a file of /proc, /sys or a cgroup of at most limit bytes. It does not use
// os.File, which costs as much again. Use Table.ReadSlow for a file that may block.
func Read(path string, limit int) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, failed(path, err)
	}
	defer func() { _ = unix.Close(fd) }() // only read from
	var first [firstRead]byte             // on the stack: what is kept is as long as the file
	b := first[:0:min(limit+1, firstRead)]
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, failed(path, err)
		case n == 0:
			return bytes.Clone(b), nil
		}
		b = b[:len(b)+n]
		if len(b) > limit {
			return nil, &ReadError{Path: path, Outcome: TooLarge, Limit: fmt.Sprintf("%d bytes", limit)}
		}
		if len(b) == cap(b) {
			larger := make([]byte, len(b), min(limit+1, 4*cap(b)))
			copy(larger, b)
			b = larger
		}
	}
}

// open opens a file or directory, again where a signal interrupts it.
func open(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// WithoutDeleted returns the path to which a link of /proc leads, also where nothing is at that path any more.
func WithoutDeleted(leads string) string { return strings.TrimSuffix(leads, " (deleted)") }

// Link returns where a symbolic link of /proc leads. It never follows it.
func Link(path string) (string, error) {
	target, err := os.Readlink(path)
	if err != nil {
		return "", failed(path, err)
	}
	return target, nil
}

// PIDs lists the processes. The error is TooLarge where there are more than 131,072, beside those.
func PIDs(procfs string) ([]int, error) { return Numbers(procfs, maxProcesses) }

// Numbers lists the entries of a directory that are numbers. It reads no more than limit
// entries: the error is TooLarge where there are more, beside those that were read.
func Numbers(dir string, limit int) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, failed(dir, err)
	}
	defer func() { _ = d.Close() }() // only read from
	return numbersOf(d, limit)
}

// Names lists the entries of a directory, sorted. It reads no more than limit entries: the error is
// TooLarge where there are more, beside those that were read.
func Names(dir string, limit int) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, failed(dir, err)
	}
	defer func() { _ = d.Close() }() // only read from
	var out []string
	err = eachName(d, limit, func(name string) { out = append(out, name) })
	out = out[:min(len(out), limit)]
	slices.Sort(out)
	return out, err
}

// numbersOf lists the numbers of an open directory, of which it reads one entry more than limit at most.
func numbersOf(d *os.File, limit int) ([]int, error) {
	var out []int
	err := eachName(d, limit, func(name string) {
		if n, err := strconv.Atoi(name); err == nil && n >= 0 {
			out = append(out, n)
		}
	})
	return out[:min(len(out), limit)], err
}

// eachName visits the entries of an open directory, one more than limit at most.
func eachName(d *os.File, limit int, visit func(name string)) error {
	for seen := 0; seen <= limit; {
		names, err := d.Readdirnames(min(limit+1-seen, 1024))
		seen += len(names)
		for _, name := range names {
			visit(name)
		}
		if len(names) > 0 {
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return failed(d.Name(), err)
	}
	return &ReadError{Path: d.Name(), Outcome: TooLarge, Limit: fmt.Sprintf("%d entries", limit)}
}
