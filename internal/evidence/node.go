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

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// newNode returns the source of the node as a whole: pressure, the idle time of the
// CPUs, open files, threads. It needs no privilege.
func newNode(root string) *Watch[health.Node] {
	var before procfs.CPUStat
	return NewWatch(Spec[health.Node]{
		Name: "node", Every: 5, Calm: 10, Timeout: time.Second,
		Gather: func(context.Context) (*health.Node, error) {
			n, now, err := readNode(root)
			if err != nil {
				return nil, err
			}
			n.CPUIdle = idleShare(before, now)
			before = now
			return n, nil
		},
		Store: func(e *health.Evidence, v *health.Node) { e.Node = v },
	})
}

// idleShare returns the share of the time between two samples that no CPU was used,
// waiting for a disk included; -1 where no time has passed since a sample. The times of
// guests are in User, and the kernel's Iowait may decrease.
func idleShare(before, now procfs.CPUStat) float64 {
	all := func(s procfs.CPUStat) float64 {
		return s.User + s.Nice + s.System + s.Idle + s.Iowait + s.IRQ + s.SoftIRQ + s.Steal
	}
	passed, idle := all(now)-all(before), (now.Idle-before.Idle)+(now.Iowait-before.Iowait)
	if all(before) == 0 || passed <= 0 || idle < 0 {
		return -1
	}
	return min(1, idle/passed)
}

func readNode(root string) (*health.Node, procfs.CPUStat, error) {
	fail := func(err error) (*health.Node, procfs.CPUStat, error) { return nil, procfs.CPUStat{}, err }
	fs, err := procfs.NewFS(root)
	if err != nil {
		return fail(err)
	}
	n := &health.Node{At: time.Now(), CPUIdle: -1}
	for resource, to := range map[string]struct{ some, full *float64 }{
		"cpu": {some: &n.CPUSome}, "memory": {full: &n.MemoryFull}, "io": {full: &n.IOFull},
	} {
		some, full, err := pressureOf(fs, resource)
		if err != nil {
			return fail(fmt.Errorf("read the %s pressure: %w", resource, err))
		}
		if to.some != nil {
			*to.some = some
		} else {
			*to.full = full
		}
	}
	files, err := sysctl(fs, "fs.file-nr", 3) // open, unused, most
	if err != nil {
		return fail(err)
	}
	n.Files, n.FilesMax = uint64(files[0]), uint64(files[2]) //nolint:gosec // not negative
	for _, name := range []string{"kernel.pid_max", "kernel.threads-max"} {
		limit, err := sysctl(fs, name, 1)
		if err != nil {
			return fail(err)
		}
		if n.ThreadsMax == 0 || limit[0] < n.ThreadsMax {
			n.ThreadsMax = limit[0]
		}
	}
	if n.Threads, err = threadCount(root); err != nil {
		return fail(err)
	}
	stat, err := fs.Stat()
	if err != nil {
		return fail(err)
	}
	return n, stat.CPUTotal, nil
}

// sysctl returns the numbers of a file below /proc/sys.
func sysctl(fs procfs.FS, name string, count int) ([]int, error) {
	out, err := fs.SysctlInts(name)
	if err == nil && len(out) != count {
		err = fmt.Errorf("sysctl %s: want %d numbers, got %d", name, count, len(out))
	}
	return out, err
}

// pressureOf returns the pressure on a resource over the last 10 s, -1 where the kernel
// does not give it: without pressure stall information there is no file, and with psi=0
// it cannot be read.
func pressureOf(fs procfs.FS, resource string) (some, full float64, err error) {
	some, full = -1, -1
	psi, err := fs.PSIStatsForResource(resource)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EOPNOTSUPP) {
		return some, full, nil
	}
	if err != nil {
		return 0, 0, err
	}
	if psi.Some != nil {
		some = psi.Some.Avg10
	}
	if psi.Full != nil {
		full = psi.Full.Avg10
	}
	return some, full, nil
}

// threadCount returns the number of threads by /proc/loadavg, which procfs does not
// parse: "0.1 0.2 0.3 running/all lastpid".
func threadCount(root string) (int, error) {
	path := filepath.Join(root, "loadavg")
	b, err := node.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, all, _ := strings.Cut(string(b), "/")
	all, _, _ = strings.Cut(all, " ")
	n, err := strconv.ParseUint(all, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s: want running/all, got %q", path, b)
	}
	return int(n), nil
}
