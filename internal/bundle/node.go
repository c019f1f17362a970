package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

const kernelBytes = 512 << 10 // of the newest kernel messages

// Node is the part of the node: pressure, memory, mounts and file locks.
func Node(procfs string) Part {
	files := []string{
		"version", "uptime", "loadavg", "meminfo", "vmstat", "stat", "cmdline", "locks", "1/mountinfo",
		"pressure/cpu", "pressure/io", "pressure/memory", "sys/fs/file-nr", "sys/kernel/pid_max",
		"sys/kernel/threads-max", "diskstats",
	}
	return Part{Name: "node", Gather: func(_ context.Context, add Add) error {
		var errs []error
		for _, name := range files {
			b, err := os.ReadFile(filepath.Join(procfs, name))
			if err == nil {
				add("node/"+name+".txt", b, 0)
			} else if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}}
}

// Kernel is the part of the newest kernel messages, the newest last.
func Kernel() Part {
	return Part{Name: "kernel messages", Gather: func(_ context.Context, add Add) error {
		b, err := kernelMessages("/dev/kmsg")
		add("node/kernel.log", b, kernelBytes)
		return err
	}}
}

// kernelMessages reads /dev/kmsg: one record per read, EAGAIN after the last.
func kernelMessages(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var out []byte
	record := make([]byte, 8<<10) // the size of the kernel's largest record
	for {
		n, err := unix.Read(fd, record)
		switch {
		case errors.Is(err, unix.EPIPE): // overwritten meanwhile: the next read continues
			continue
		case errors.Is(err, unix.EAGAIN) || n == 0 && err == nil:
			return newest(out), nil
		case err != nil:
			return newest(out), fmt.Errorf("read %s: %w", path, err)
		}
		text, _, _ := bytes.Cut(record[:n], []byte("\n"))
		out = append(append(out, text...), '\n')
		if len(out) > 2*kernelBytes {
			out = append(out[:0], newest(out)...)
		}
	}
}

// newest returns the last whole lines of at most kernelBytes.
func newest(b []byte) []byte {
	if len(b) <= kernelBytes {
		return b
	}
	_, rest, _ := bytes.Cut(b[len(b)-kernelBytes-1:], []byte("\n"))
	return rest
}

// Sockets is the part of the unix sockets that have a name, or a peer with one.
func Sockets() Part {
	return Part{Name: "unix sockets", Gather: func(ctx context.Context, add Add) error {
		all := map[uint32]sockdiag.Socket{}
		states := uint32(1<<sockdiag.Established | 1<<sockdiag.Listening)
		if err := sockdiag.Each(ctx, states, func(s sockdiag.Socket) { all[s.Inode] = s }); err != nil {
			return err
		}
		add("node/unix-sockets.txt", socketTable(all), 2*partBytes)
		return nil
	}}
}

func socketTable(all map[uint32]sockdiag.Socket) []byte {
	var list []sockdiag.Socket
	for _, s := range all {
		if s.Name != "" || all[s.Peer].Name != "" {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b sockdiag.Socket) int { // listeners first
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.State, a.State), cmp.Compare(a.Inode, b.Inode))
	})
	var b bytes.Buffer
	fmt.Fprintln(&b, "Queues of a listener: connections not accepted yet, and their limit. Of a connection: unread "+
		"bytes, and memory of what the peer has not read.")
	fmt.Fprintf(&b, "%-6s %10s %10s %8s %8s %s\n", "STATE", "INODE", "PEER", "RQUEUE", "WQUEUE", "NAME")
	for _, s := range list {
		state := "conn"
		if s.Listens() {
			state = "listen"
		}
		fmt.Fprintf(&b, "%-6s %10d %10d %8d %8d %q\n", state, s.Inode, s.Peer, s.RQueue, s.WQueue, s.Name)
	}
	return b.Bytes()
}
