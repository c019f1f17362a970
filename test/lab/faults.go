//go:build e2e

package lab

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ReplaceInConfig changes a containerd's configuration before it is started.
func (c *Containerd) ReplaceInConfig(old, new string) {
	c.t.Helper()
	path := filepath.Join(filepath.Dir(c.Socket), "config.toml")
	b, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(b, []byte(old)) {
		err = fmt.Errorf("%s holds no %q", path, old)
	}
	if err == nil {
		err = os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(new), 1), 0o644)
	}
	Must(c.t, err)
}

// ListenAt makes a runtime that has not been started yet listen at another path.
func (c *Containerd) ListenAt(path string) {
	c.t.Helper()
	if c.docker != nil {
		i := slices.Index(c.argv, "unix://"+c.Socket)
		c.argv[i] = "unix://" + path
	} else {
		c.ReplaceInConfig(c.Socket, path)
	}
	c.Socket = path
}

// LiftListLimit lets the runtime send lists that are larger than a client takes,
// before it is started. CRI-O does by itself.
func (c *Containerd) LiftListLimit() {
	c.t.Helper()
	if c.monitor == "" {
		c.ReplaceInConfig("[grpc]\n", "[grpc]\n  max_send_message_size = 67108864\n")
	}
}

// LimitFiles sets the soft limit of containerd's open files, as prlimit does, and returns
// what undoes it. All descriptors below the limit are in use: it limits their numbers, and
// of low ones some may be free by then, or become so, so idle connections take these.
func (c *Containerd) LimitFiles(soft uint64) (undo func()) {
	c.t.Helper()
	reset := LimitFiles(c.t, c.pid, soft)
	var idle []net.Conn
	for range soft {
		if conn, err := net.Dial("unix", c.Socket); err == nil {
			idle = append(idle, conn)
		}
	}
	return func() {
		reset()
		for _, conn := range idle {
			_ = conn.Close()
		}
	}
}

// Shim returns the pid of a pod's shim, with CRI-O of a conmon of its.
func (c *Containerd) Shim(p *Pod) int {
	c.t.Helper()
	for pid, line := range CommandLines() {
		if c.isMonitorOf(p, line) {
			return pid
		}
	}
	c.t.Fatalf("lab: pod %s has no shim", p.Name)
	return 0
}

// ControlGroup is a cgroup of the test's own for one process.
type ControlGroup struct {
	t    testing.TB
	dir  string
	home string // where the process is put back
	v2   bool
	pid  int
}

// NewControlGroup moves a process into a cgroup of its own in the hierarchy of
// a controller ("cpu", "freezer"), or in the one of v2. When the test ends the
// process is thawed and moved back.
func NewControlGroup(t testing.TB, controller string, pid int) *ControlGroup {
	t.Helper()
	g := &ControlGroup{t: t, pid: pid, home: filepath.Join(cgroupRoot, controller)}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "cgroup.controllers")); err == nil {
		g.v2, g.home = true, cgroupRoot
		if controller == "cpu" {
			// Fails where it is enabled already or may not be: then so will the quota.
			_ = os.WriteFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"), []byte("+cpu"), 0o644)
		}
	}
	g.dir = filepath.Join(g.home, newCgroupName())
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
		removeCgroup(filepath.Base(g.dir))
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

// LimitWrites limits the group's writes to a device ("7:0"), in bytes a second; 0: no
// limit.
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

// Enter moves the process into the cgroup again: in v2 another cgroup of the
// test's takes it away.
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
