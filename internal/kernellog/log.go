// Package kernellog reads the kernel's log (/dev/kmsg) and finds in it what explains a runtime that does not answer.
package kernellog

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// Path is the kernel's log.
const Path = "/dev/kmsg"

// ErrOverrun is returned once where the kernel has overwritten records before they were read.
var ErrOverrun = errors.New("records were overwritten before they were read")

// Log is the kernel's log, from its oldest record on. It is not safe for concurrent use.
type Log struct {
	fd     int
	read   func(fd int, p []byte) (int, error) // read(2)
	record []byte
}

// Open opens the log at a path. With kernel.dmesg_restrict=1 it takes CAP_SYSLOG, which is checked at no other time.
func Open(path string) (*Log, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	const largestRecord = 8 << 10 // kernel/printk/printk.c, CONSOLE_EXT_LOG_MAX of older kernels
	return &Log{fd: fd, read: unix.Read, record: make([]byte, largestRecord)}, nil
}

// Close closes the log.
func (l *Log) Close() { _ = unix.Close(l.fd) }

// Next returns the next record, which is valid until the next call, io.EOF after the newest one, or
// ErrOverrun. It does not block.
func (l *Log) Next() ([]byte, error) {
	for {
		n, err := l.read(l.fd, l.record)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EPIPE):
			return nil, ErrOverrun
		case errors.Is(err, unix.EAGAIN) || err == nil && n == 0:
			return nil, io.EOF
		case err != nil:
			return nil, fmt.Errorf("read the kernel's log: %w", err)
		}
		return l.record[:n], nil
	}
}
