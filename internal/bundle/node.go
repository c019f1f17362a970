package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/plegd/plegd/internal/kernellog"
	"github.com/plegd/plegd/internal/proc"
)

const kernelBytes = 512 << 10 // of the newest kernel messages

var nodeFiles = []string{
	"version", "uptime", "loadavg", "meminfo", "vmstat", "stat", "cmdline", "locks", "1/mountinfo", "diskstats",
	"pressure/cpu", "pressure/io", "pressure/memory", "sys/fs/file-nr", "sys/kernel/pid_max", "sys/kernel/threads-max",
}

// Node is the part of the node: pressure, memory, mounts, file locks, and the newest kernel
// messages.
func Node(procfs string) Part {
	return Part{Name: "node", Gather: func(_ context.Context, add Add) error {
		var errs []error
		for _, name := range nodeFiles {
			b, err := proc.Read(filepath.Join(procfs, name), maxMountBytes)
			switch proc.OutcomeOf(err) {
			case "":
				add("node/"+name+".txt", b)
			case proc.Absent: // this kernel does not have it
			default:
				errs = append(errs, err)
			}
		}
		log, err := kernelMessages(kernellog.Path)
		add("node/kernel.log", log)
		return errors.Join(append(errs, err)...)
	}}
}

// kernelMessages returns the newest messages.
func kernelMessages(path string) (out []byte, err error) {
	log, err := kernellog.Open(path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	for {
		record, err := log.Next()
		switch {
		case errors.Is(err, kernellog.ErrOverrun):
			continue
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		}
		text, _, _ := bytes.Cut(record, []byte("\n"))
		out = append(append(out, text...), '\n')
		for len(out) > kernelBytes {
			_, out, _ = bytes.Cut(out, []byte("\n"))
		}
	}
}

// Sockets is the part of the unix sockets that have a name, or a peer with one.
func Sockets() Part {
	return Part{Name: "unix sockets", Gather: func(ctx context.Context, add Add) error {
		all, err := proc.UnixSockets(ctx, 1<<proc.Established|1<<proc.Listening)
		if err != nil {
			return err
		}
		list := slices.SortedFunc(maps.Values(all), func(a, b proc.Socket) int { // listeners first
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.State, a.State), cmp.Compare(a.Inode, b.Inode))
		})
		var b bytes.Buffer
		fmt.Fprintf(&b, "Queues of a listener: connections not accepted yet, and their limit. Of a connection: unread "+
			"bytes, and memory of what the peer has not read.\n%-6s %10s %10s %8s %8s NAME\n",
			"STATE", "INODE", "PEER", "RQUEUE", "WQUEUE")
		for _, s := range list {
			state := "conn"
			switch {
			case s.Name == "" && all[s.Peer].Name == "":
				continue
			case s.Listens():
				state = "listen"
			}
			fmt.Fprintf(&b, "%-6s %10d %10d %8d %8d %q\n", state, s.Inode, s.Peer, s.RQueue, s.WQueue, s.Name)
		}
		add("node/unix-sockets.txt", b.Bytes())
		return nil
	}}
}
