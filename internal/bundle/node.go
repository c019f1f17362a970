package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// kernelBytes is as much of the kernel's messages as is kept: the newest.
const kernelBytes = 512 << 10

// Node is the part of the node itself: pressure, memory, mounts, file locks, and
// the kernel's messages.
func Node(procfs string) Part {
	files := []string{
		"version", "uptime", "loadavg", "meminfo", "vmstat", "stat", "cmdline", "locks", "1/mountinfo", "filesystems",
		"pressure/cpu", "pressure/io", "pressure/memory", "sys/fs/file-nr", "sys/kernel/pid_max", "sys/kernel/threads-max", "diskstats",
	}
	return Part{Name: "node", Gather: func(_ context.Context, add Add) error {
		var errs []error
		for _, name := range files {
			b, err := os.ReadFile(filepath.Join(procfs, name))
			if err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					errs = append(errs, err)
				}
				continue
			}
			add("node/"+filepath.ToSlash(name)+".txt", b, 0)
		}
		return errors.Join(errs...)
	}}
}

// Kernel is the part of the kernel's messages, the newest last.
func Kernel() Part {
	return Part{Name: "kernel messages", Gather: func(_ context.Context, add Add) error {
		b, err := kernelMessages("/dev/kmsg")
		if len(b) > 0 {
			add("node/kernel.log", b, kernelBytes)
		}
		return err
	}}
}

// kernelMessages reads /dev/kmsg: one record a read, EAGAIN after the last.
func kernelMessages(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var out []byte
	record := make([]byte, 8<<10) // as large as the kernel's largest record
	for {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE): // overwritten meanwhile: the next read gets the oldest there is
			continue
		case errors.Is(err, unix.EAGAIN) || n == 0 && err == nil:
			return out, nil
		case err != nil:
			return out, fmt.Errorf("read %s: %w", path, err)
		}
		line, _, _ := bytes.Cut(record[:n], []byte("\n"))
		out = append(append(out, line...), '\n')
		if over := len(out) - kernelBytes; over > kernelBytes {
			out = append(out[:0], out[over:]...)
		}
	}
}
