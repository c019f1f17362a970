package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

// TestThrottling: the quotas of all levels count from when they were found, in both versions of cgroups; a
// level that is throttled without a quota by now, and another process's, do not.
func TestThrottling(t *testing.T) {
	for _, v := range []struct{ cgroup, dir, format, file, none string }{
		{"4:cpu,cpuacct:/a/plegd\n", "fs/cgroup/cpu", "nr_periods 5\nthrottled_time %d000\n", "cpu.cfs_quota_us", "-1\n"},
		{"0::/a/plegd\n", "fs/cgroup", "nr_periods 5\nthrottled_usec %d\n", "cpu.max", "max 100000\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			procfs, sysfs := t.TempDir(), t.TempDir()
			level := func(name, quota string, usec int) {
				dir := filepath.Join(v.dir, name)
				evidencetest.WriteTree(t, sysfs, map[string]string{dir + "/cpu.stat": fmt.Sprintf(v.format, usec), dir + "/" + v.file: quota})
			}
			evidencetest.WriteTree(t, procfs, map[string]string{fmt.Sprintf("%d/cgroup", os.Getpid()): v.cgroup})
			evidencetest.WriteTree(t, sysfs, map[string]string{v.dir + "/cgroup.controllers": "cpu\n"})
			level("a", v.none, 100)
			level("a/plegd", "1000\n", 7_000_000)
			level("other", "1000\n", 0)
			w := NewThrottling(procfs, sysfs)
			check.Equal(t, w.Total(), 0, "before it began")
			level("a/plegd", "1000\n", 7_500_000)
			level("a", "1000\n", 900)
			level("other", "1000\n", 1_000_000)
			check.Equal(t, w.Total(), 500*time.Millisecond, "of its own")
			time.Sleep(quotaInterval)
			check.Equal(t, w.Total(), 500*time.Millisecond, "a new quota above")
			level("a", "1000\n", 1900)
			check.Equal(t, w.Total(), 501*time.Millisecond, "of its own and the one above")
		})
	}
	check.Equal(t, NewThrottling(t.TempDir(), t.TempDir()).Total(), 0, "unknown cgroups")
}
