package evidence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// NewNode returns the source about the node as a whole: pressure, the CPUs' idle
// time, open files, threads. It looks every 10 s, every 5 s while something may be
// wrong, and needs no privilege.
func NewNode(root string) *Watch[health.Node] {
	var before cpuTimes
	return NewWatch(Spec[health.Node]{Name: "node", Every: 5, Calm: 10, Timeout: time.Second, Gather: func(context.Context) (*health.Node, error) {
		n, err := readNode(root)
		if err != nil {
			return nil, err
		}
		now, err := readCPUTimes(root)
		if err != nil {
			return nil, err
		}
		n.CPUIdle = now.idleSince(before)
		before = now
		return n, nil
	}, Store: func(e *health.Evidence, v *health.Node) { e.Node = v }})
}

// cpuTimes are the times of all CPUs since boot, in clock ticks.
type cpuTimes struct{ idle, all uint64 }

// readCPUTimes reads the first line of /proc/stat:
//
//	cpu  user nice system idle iowait irq softirq steal guest guest_nice
func readCPUTimes(root string) (cpuTimes, error) {
	path := filepath.Join(root, "stat")
	b, err := proc.ReadFile(path)
	if err != nil {
		return cpuTimes{}, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[0] != "cpu" {
		return cpuTimes{}, fmt.Errorf("%s: want a line of the times of all CPUs, got %q", path, line)
	}
	var t cpuTimes
	for i, field := range fields[1:min(len(fields), 9)] { // guests' times are in user's
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return cpuTimes{}, fmt.Errorf("%s: %w", path, err)
		}
		t.all += n
		if i == 3 || i == 4 { // idle, and idle while a disk was waited for
			t.idle += n
		}
	}
	return t, nil
}

// idleSince is the share of the time since b that no CPU was used; -1 where there
// is no b, or no time has passed. The kernel's iowait may go back.
func (t cpuTimes) idleSince(b cpuTimes) float64 {
	if b.all == 0 || t.all <= b.all || t.idle < b.idle {
		return -1
	}
	return min(1, float64(t.idle-b.idle)/float64(t.all-b.all))
}

func readNode(root string) (*health.Node, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, err
	}
	n := &health.Node{At: time.Now(), CPUIdle: -1, CPUSome: -1, MemorySome: -1, MemoryFull: -1, IOSome: -1, IOFull: -1}
	for _, resource := range []string{"cpu", "memory", "io"} {
		some, full, err := pressureOf(fs, resource)
		if noPressure(err) {
			continue // a kernel without pressure stall information
		}
		if err != nil {
			return nil, fmt.Errorf("read the %s pressure: %w", resource, err)
		}
		switch resource {
		case "cpu":
			n.CPUSome = some
		case "memory":
			n.MemorySome, n.MemoryFull = some, full
		default:
			n.IOSome, n.IOFull = some, full
		}
	}
	if n.Files, n.FilesMax, err = fileTable(root); err != nil {
		return nil, err
	}
	if n.Threads, err = threadCount(root); err != nil {
		return nil, err
	}
	for _, name := range []string{"pid_max", "threads-max"} {
		limit, err := readInt(filepath.Join(root, "sys/kernel", name))
		if err != nil {
			return nil, err
		}
		if n.ThreadsMax == 0 || limit < n.ThreadsMax {
			n.ThreadsMax = limit
		}
	}
	return n, nil
}

func pressureOf(fs procfs.FS, resource string) (some, full float64, err error) {
	psi, err := fs.PSIStatsForResource(resource)
	if err != nil {
		return 0, 0, err
	}
	some, full = -1, -1
	if psi.Some != nil {
		some = psi.Some.Avg10
	}
	if psi.Full != nil {
		full = psi.Full.Avg10
	}
	return some, full, nil
}

// noPressure tells a kernel without pressure stall information: there is no
// file, or it is switched off (psi=0) and the file refuses to be read.
func noPressure(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EOPNOTSUPP)
}

// fileTable reads /proc/sys/fs/file-nr: open files, unused ones, the most.
func fileTable(root string) (open, most uint64, err error) {
	path := filepath.Join(root, "sys/fs/file-nr")
	b, err := proc.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) != 3 {
		return 0, 0, fmt.Errorf("%s: want three numbers, got %q", path, b)
	}
	open, err1 := strconv.ParseUint(fields[0], 10, 64)
	most, err2 := strconv.ParseUint(fields[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return open, most, nil
}

// threadCount reads the number of threads from /proc/loadavg: "0.1 0.2 0.3 running/all lastpid".
func threadCount(root string) (int, error) {
	path := filepath.Join(root, "loadavg")
	b, err := proc.ReadFile(path)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b))
	if len(fields) < 4 {
		return 0, fmt.Errorf("%s: want five fields, got %q", path, b)
	}
	_, all, ok := strings.Cut(fields[3], "/")
	if !ok {
		return 0, fmt.Errorf("%s: want running/all, got %q", path, fields[3])
	}
	n, err := strconv.ParseUint(all, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return int(n), nil
}

func readInt(path string) (int, error) {
	b, err := proc.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}
