package evidence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/proc"
)

// newNode returns the source of the node as a whole. It needs no privilege.
func newNode(root string) *Watch[facts.Node] {
	var last procfs.CPUStat
	missing := proc.Unread{}
	files := proc.NewFiles(missing.Add)
	return NewWatch(Spec[facts.Node]{
		Name:    "node",
		Every:   5,
		Calm:    8,
		Timeout: time.Second,
		Gather: func(context.Context) (*facts.Node, error) {
			n, times, err := readNode(root, files)
			if err != nil {
				return nil, err
			}
			n.CPUIdle = idleShare(last, times)
			last = times
			return n, nil
		},
		Unread: missing.Drain,
		Store:  func(e *facts.Evidence, v *facts.Node) { e.Node = v },
	})
}

// idleShare returns the share of the time between two samples that no CPU was used,
// waiting for a disk included; -1 where no time has passed since a sample. The times of
// guests are in User, and the kernel's Iowait may decrease.
func idleShare(last, next procfs.CPUStat) float64 {
	all := func(s procfs.CPUStat) float64 {
		return s.User + s.Nice + s.System + s.Idle + s.Iowait + s.IRQ + s.SoftIRQ + s.Steal
	}
	passed := all(next) - all(last)
	idle := (next.Idle - last.Idle) + (next.Iowait - last.Iowait)
	if all(last) == 0 || passed <= 0 || idle < 0 {
		return -1
	}
	return min(1, idle/passed)
}

func readNode(root string, files proc.Files) (*facts.Node, procfs.CPUStat, error) {
	n := &facts.Node{
		At:         time.Now(),
		CPUIdle:    -1,
		CPUSome:    files.Pressure("some", root, "pressure/cpu"),
		MemoryFull: files.Pressure("full", root, "pressure/memory"),
		IOFull:     files.Pressure("full", root, "pressure/io"),
	}
	var pids, unused int
	var load float64
	err := errors.Join(
		scan(root, "sys/fs/file-nr", "%d %d %d", &n.Files, &unused, &n.FilesMax),
		scan(root, "sys/kernel/pid_max", "%d", &pids),
		scan(root, "sys/kernel/threads-max", "%d", &n.ThreadsMax),
		// procfs parses the averages only.
		scan(root, "loadavg", "%f %f %f %d/%d", &load, &load, &load, &unused, &n.Threads),
	)
	if err != nil {
		return nil, procfs.CPUStat{}, err
	}
	n.ThreadsMax = min(n.ThreadsMax, pids)
	if inotifyUsedUp() {
		n.InotifyMax = int(max(0, files.Number(root, "sys/fs/inotify/max_user_instances")))
	}
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, procfs.CPUStat{}, err
	}
	stat, err := fs.Stat()
	if err != nil {
		return nil, procfs.CPUStat{}, err
	}
	return n, stat.CPUTotal, nil
}

// inotifyUsedUp reports whether plegd's user, which is the runtime's, can make no further inotify
// instance, although it can have another descriptor.
func inotifyUsedUp() bool {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err == nil {
		_ = unix.Close(fd) // nothing is watched
		return false
	}
	second, failed := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if failed != nil {
		return false
	}
	_ = unix.Close(second) // nothing was written
	return errors.Is(err, unix.EMFILE) && os.Geteuid() == 0
}

// scan decodes a file by a format of fmt.Sscanf.
func scan(root, name, format string, values ...any) error {
	b, err := proc.ReadFile(root, name)
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(string(b), format, values...); err != nil {
		return fmt.Errorf("%s: want %s, got %q", name, format, plain.Cut(string(b)))
	}
	return nil
}
