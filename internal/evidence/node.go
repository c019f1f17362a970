package evidence

import (
	"cmp"
	"context"
	"fmt"
	"strings"
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
	n := &health.Node{At: time.Now(), CPUIdle: -1}
	n.CPUSome, _ = pressureOf(root + "/pressure/cpu")
	_, n.MemoryFull = pressureOf(root + "/pressure/memory")
	_, n.IOFull = pressureOf(root + "/pressure/io")
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, procfs.CPUStat{}, err
	}
	var failed error
	sysctl := func(name string, i int) int {
		out, err := fs.SysctlInts(name)
		if err == nil && len(out) <= i {
			err = fmt.Errorf("sysctl %s has %d numbers", name, len(out))
		}
		if failed = cmp.Or(failed, err); err != nil {
			return 0
		}
		return out[i]
	}
	n.Files, n.FilesMax = uint64(sysctl("fs.file-nr", 0)), uint64(sysctl("fs.file-nr", 2)) //nolint:gosec // not negative
	n.ThreadsMax = min(sysctl("kernel.pid_max", 0), sysctl("kernel.threads-max", 0))
	// The threads are in /proc/loadavg, which procfs does not parse: "0.1 0.2 0.3 running/all lastpid".
	b, err := node.ReadFile(root, "loadavg")
	_, all, _ := strings.Cut(string(b), "/")
	if _, invalid := fmt.Sscan(all, &n.Threads); err == nil && invalid != nil {
		err = fmt.Errorf("loadavg: want running/all, got %q", b)
	}
	stat, noStat := fs.Stat()
	if err := cmp.Or(failed, err, noStat); err != nil {
		return nil, procfs.CPUStat{}, err
	}
	return n, stat.CPUTotal, nil
}
