package evidence

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// newNode returns the source of the node as a whole. It needs no privilege.
func newNode(root string) *Watch[facts.Node] {
	var before procfs.CPUStat
	return NewWatch(Spec[facts.Node]{
		Name: "node", Every: 5, Calm: 8, Timeout: time.Second,
		Gather: func(context.Context) (*facts.Node, error) {
			n, now, err := readNode(root)
			if err != nil {
				return nil, err
			}
			n.CPUIdle = idleShare(before, now)
			before = now
			return n, nil
		},
		Store: func(e *facts.Evidence, v *facts.Node) { e.Node = v },
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

func readNode(root string) (*facts.Node, procfs.CPUStat, error) {
	n, failed := &facts.Node{At: time.Now(), CPUIdle: -1}, error(nil)
	n.CPUSome = proc.Pressure(root+"/pressure/cpu", "some")
	n.MemoryFull = proc.Pressure(root+"/pressure/memory", "full")
	n.IOFull = proc.Pressure(root+"/pressure/io", "full")
	scan := func(name, format string, to ...any) {
		b, err := proc.ReadFile(root, name)
		if _, invalid := fmt.Sscanf(string(b), format, to...); err == nil && invalid != nil {
			err = fmt.Errorf("%s: want %s, got %q", name, format, b)
		}
		failed = cmp.Or(failed, err)
	}
	var pids, unused int
	var load float64
	scan("sys/fs/file-nr", "%d %d %d", &n.Files, &unused, &n.FilesMax)
	scan("sys/kernel/pid_max", "%d", &pids)
	scan("sys/kernel/threads-max", "%d", &n.ThreadsMax)
	scan("loadavg", "%f %f %f %d/%d", &load, &load, &load, &unused, &n.Threads) // procfs parses the averages only
	n.ThreadsMax = min(n.ThreadsMax, pids)
	var stat procfs.Stat
	fs, err := procfs.NewFS(root)
	if err == nil {
		stat, err = fs.Stat()
	}
	if err = cmp.Or(failed, err); err != nil {
		return nil, procfs.CPUStat{}, err
	}
	return n, stat.CPUTotal, nil
}
