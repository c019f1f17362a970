//go:build e2e

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ControlGroup is a cgroup of the test's own for one process.
type ControlGroup struct {
	t    testing.TB
	dir  string
	home string // where the process is put back
	v2   bool
	pid  int
}

// NewControlGroup moves a process into a cgroup of its own in the hierarchy of a controller ("cpu", "freezer"), or in
// the one of v2. When the test ends the process is thawed and moved back.
func NewControlGroup(t testing.TB, controller string, pid int) *ControlGroup {
	t.Helper()
	g := &ControlGroup{t: t, pid: pid, home: filepath.Join(CgroupRoot, controller)}
	if _, err := os.Stat(filepath.Join(CgroupRoot, "cgroup.controllers")); err == nil {
		g.v2, g.home = true, CgroupRoot
		if controller == "cpu" {
			// Fails where it is enabled already or may not be: then so will the quota.
			_ = os.WriteFile(filepath.Join(CgroupRoot, "cgroup.subtree_control"), []byte("+cpu"), 0o644)
		}
	}
	g.dir = filepath.Join(g.home, NewCgroupName())
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		Unable(t, "no cgroup can be made: "+err.Error())
	}
	t.Cleanup(func() {
		for _, f := range []string{"freezer.state", "cgroup.freeze"} {
			if _, err := os.Stat(filepath.Join(g.dir, f)); err == nil {
				g.Freeze(false)
			}
		}
		_ = os.WriteFile(filepath.Join(g.home, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
		RemoveCgroup(filepath.Base(g.dir))
	})
	g.Enter()
	return g
}

// Above moves the process into a cgroup below, and returns the group that is above it.
func (g *ControlGroup) Above() *ControlGroup {
	g.t.Helper()
	Must(g.t, os.Mkdir(filepath.Join(g.dir, "below"), 0o755))
	g.write("below/cgroup.procs", strconv.Itoa(g.pid))
	return g
}

// LimitWrites limits the group's writes to a device ("7:0"), in bytes a second; 0: no limit.
func (g *ControlGroup) LimitWrites(device string, bytes int) {
	g.t.Helper()
	if g.v2 {
		limit := strconv.Itoa(bytes)
		if bytes == 0 {
			limit = "max"
		}
		g.write("io.max", device+" wbps="+limit)
		return
	}
	g.write("blkio.throttle.write_bps_device", fmt.Sprint(device, " ", bytes))
}

// Path is the cgroup below the root of its hierarchy.
func (g *ControlGroup) Path() string { return "/" + filepath.Base(g.dir) }

// Enter moves the process into the cgroup again: in v2 another cgroup of the test's takes it away.
func (g *ControlGroup) Enter() {
	g.t.Helper()
	g.write("cgroup.procs", strconv.Itoa(g.pid))
}

// Freeze freezes the process, or thaws it, and returns when that is done.
func (g *ControlGroup) Freeze(frozen bool) {
	g.t.Helper()
	file, value, done := "freezer.state", "THAWED", "THAWED"
	if frozen {
		value, done = "FROZEN", "FROZEN"
	}
	if g.v2 {
		file, value, done = "cgroup.freeze", "0", "frozen 0"
		if frozen {
			value, done = "1", "frozen 1"
		}
	}
	g.write(file, value)
	if g.v2 {
		file = "cgroup.events"
	}
	Eventually(g.t, 5*time.Second, "the cgroup's freezer is "+value, func() error {
		b, err := os.ReadFile(filepath.Join(g.dir, file))
		if err == nil && !strings.Contains(string(b), done) {
			err = fmt.Errorf("it is %q", b)
		}
		return err
	})
}

// Quota gives the process so much CPU time in every half second; 0: without limit.
func (g *ControlGroup) Quota(a time.Duration) {
	g.t.Helper()
	const period = "500000"
	quota := strconv.FormatInt(a.Microseconds(), 10)
	if g.v2 {
		if a == 0 {
			quota = "max"
		}
		g.write("cpu.max", quota+" "+period)
		return
	}
	if a == 0 {
		quota = "-1"
	}
	g.write("cpu.cfs_period_us", period)
	g.write("cpu.cfs_quota_us", quota)
}

func (g *ControlGroup) write(file, value string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0o644); err != nil {
		g.t.Fatalf("lab: write %q: %v", value, err)
	}
}

// LimitMemory lets the group's process have so many bytes more, and has those
// that need more wait instead of being killed (v1). lift undoes it.
func (g *ControlGroup) LimitMemory(more int64) (lift func()) { return g.limitMemory(more, "1") }

// KillForMemory lets the group's processes have so many bytes more, and has one killed when they need more (v1).
// lift undoes it.
func (g *ControlGroup) KillForMemory(more int64) (lift func()) { return g.limitMemory(more, "0") }

func (g *ControlGroup) limitMemory(more int64, disableKills string) (lift func()) {
	g.t.Helper()
	if g.v2 {
		Unable(g.t, "cgroup v2: its memory limits are not made here")
	}
	b, err := os.ReadFile(filepath.Join(g.dir, "memory.usage_in_bytes"))
	var used int64
	if err == nil {
		_, err = fmt.Sscan(string(b), &used)
	}
	if err != nil {
		g.t.Fatalf("lab: %v", err)
	}
	g.write("memory.oom_control", disableKills)
	g.write("memory.limit_in_bytes", strconv.FormatInt(used+more, 10))
	lift = sync.OnceFunc(func() {
		g.write("memory.limit_in_bytes", "-1")
		g.write("memory.oom_control", "0")
	})
	g.t.Cleanup(lift)
	return lift
}

// Shares sets the group's CPU weight against the usual 1024 (v1) or 100 (v2); 0 sets the usual one.
func (g *ControlGroup) Shares(n int) {
	g.t.Helper()
	file, usual := "cpu.shares", 1024
	if g.v2 {
		file, usual = "cpu.weight", 100
	}
	if n == 0 {
		n = usual
	}
	g.write(file, strconv.Itoa(n))
}

// Pressed is near what NodePressure needs of CPUPressure.
const Pressed = 60

// CPUPressure is the share of the last 10 s in which somebody waited for a CPU, in per
// cent; 0 where the kernel does not say.
func CPUPressure() (some float64) {
	if b, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		_, _ = fmt.Sscanf(string(b), "some avg10=%f", &some)
	}
	return some
}
