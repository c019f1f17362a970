package evidence

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestPreparing: a command that runs in the cgroup of a runtime that has ended, since its end, is what its next start waits
// for; not what was there before, a shim, what has a parent there, what has just begun, or what is elsewhere.
func TestPreparing(t *testing.T) {
	const cgroup = "0::/system.slice/containerd.service\n"
	for _, tt := range []struct {
		name, comm string
		parent     int
		start      uint64
		group      string
		want       int
	}{
		{"a command before the start", "modprobe", 1, 100_100, cgroup, 5001},
		{"what was there before", "modprobe", 1, 90_000, cgroup, 0},
		{"a shim", "containerd-shim", 1, 100_100, cgroup, 0},
		{"a child of what was there", "sh", 5002, 100_100, cgroup, 0},
		{"it has just begun", "modprobe", 1, 100_900, cgroup, 0},
		{"elsewhere", "modprobe", 1, 100_100, "0::/system.slice/other.service\n", 0},
	} {
		root := evidencetest.CopyTree(t, "testdata/proc")
		process := func(pid int, comm string, parent int, start uint64, group string) {
			dir := strconv.Itoa(pid)
			line := evidencetest.StatLine(pid, comm, 'S', parent, start)
			evidencetest.WriteTree(t, root, map[string]string{dir + "/stat": line, dir + "/cgroup": group, dir + "/task/" + dir + "/stat": line})
		}
		p := processOf(root, func() int { return 1000 })
		p.up = func() time.Duration { return 1000 * time.Second }
		evidencetest.WriteTree(t, root, map[string]string{"1000/cgroup": cgroup})
		gatherProcess(t, p)
		must.Do(t, os.RemoveAll(filepath.Join(root, "1000")))
		process(5002, "containerd-shim", 1, 50_000, cgroup)
		process(5001, tt.comm, tt.parent, tt.start, tt.group)
		p.up = func() time.Duration { return 1010 * time.Second }
		gone := gatherProcess(t, p)
		got := 0
		if gone.Preparing != nil {
			got = gone.Preparing.PID
		}
		check.Equal(t, got, tt.want, "%s", tt.name)
	}
}
