package evidence

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// noMemoryLimit is from where a v1 memory limit means none: the kernel writes
// the largest number of pages.
const noMemoryLimit = 1 << 60

// cgroupSource reads the runtime's own cgroup, on v1, v2 and the hybrid layout.
type cgroupSource struct {
	procfs, root string // root is /sys/fs/cgroup
	pid          func() int
	before       map[string]throttling // by directory
}

type throttling struct {
	at                 time.Time
	periods, throttled uint64
	time               time.Duration
}

// NewCgroup returns the source about the cgroup of the process that pid names,
// 0 for none. It looks every second and needs no privilege.
func NewCgroup(procfs, sysfs string, pid func() int) *Watch[health.Cgroup] {
	c := &cgroupSource{procfs: procfs, root: filepath.Join(sysfs, "fs/cgroup"), pid: pid}
	return NewWatch("cgroup", Timing{Period: time.Second, Timeout: 500 * time.Millisecond}, c.gather)
}

// controllers maps each controller to the directory of a process's cgroup in
// its hierarchy; "" is the unified one.
type controllers map[string]string

// parseCgroups parses /proc/PID/cgroup: "4:cpu,cpuacct:/path" for v1,
// "0::/path" for v2.
func parseCgroups(b []byte) controllers {
	c := controllers{}
	for line := range bytes.Lines(b) {
		parts := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		for _, name := range strings.Split(parts[1], ",") {
			c[name] = parts[2]
		}
	}
	return c
}

func (s *cgroupSource) gather(context.Context) (*health.Cgroup, error) {
	pid := s.pid()
	if pid == 0 {
		return nil, ErrNoData
	}
	b, err := readProc(s.procfs, strconv.Itoa(pid), "cgroup")
	if gone(err) {
		return nil, ErrNoData // it has just gone
	}
	if err != nil {
		return nil, err
	}
	c := parseCgroups(b)
	for _, path := range c {
		if path == "/.." || strings.HasPrefix(path, "/../") {
			return nil, fmt.Errorf("the runtime's cgroup %s lies outside plegd's cgroup namespace: plegd needs the node's", path)
		}
	}
	v := &health.Cgroup{At: time.Now(), Path: c.path()}
	s.frozen(c, v)
	s.throttled(c, v)
	s.limits(c, v)
	return v, nil
}

// path is what a person looks for: the unified path unless v1 controllers hold
// the process elsewhere.
func (c controllers) path() string {
	for _, name := range []string{"cpu", "name=systemd", ""} {
		if p, ok := c[name]; ok && p != "/" {
			return p
		}
	}
	return "/"
}

// dir returns the directory of a process's cgroup for a controller, "" when
// there is none: in its v1 hierarchy, else in the unified one.
func (s *cgroupSource) dir(c controllers, controller string) (dir string, v2 bool) {
	if p, ok := c[controller]; ok {
		for _, name := range []string{controller, "cpu,cpuacct"} {
			if d := filepath.Join(s.root, name, p); isDir(d) {
				return d, false
			}
		}
		return "", false
	}
	p, ok := c[""]
	if !ok {
		return "", true
	}
	for _, base := range []string{"", "unified"} {
		if d := filepath.Join(s.root, base); isFile(filepath.Join(d, "cgroup.controllers")) {
			return filepath.Join(d, p), true
		}
	}
	return "", true
}

// frozen looks at the freezer: freezer.state of v1, which counts a frozen
// parent in, or cgroup.events of v2, which does too.
func (s *cgroupSource) frozen(c controllers, v *health.Cgroup) {
	if dir, v2 := s.dir(c, "freezer"); dir != "" && !v2 {
		if b, err := readProc(dir, "freezer.state"); err == nil {
			v.Frozen = strings.TrimSpace(string(b)) == "FROZEN"
		}
	}
	if dir, _ := s.dir(controllers{"": c[""]}, "freezer"); dir != "" {
		if b, err := readProc(dir, "cgroup.events"); err == nil {
			v.Frozen = v.Frozen || keyed(b)["frozen"] == 1
		}
	}
}

// throttled works out what the CPU quotas took since the last look, its own and
// those above it: the one that took the most counts. ThrottledTotal is of all.
func (s *cgroupSource) throttled(c controllers, v *health.Cgroup) {
	before := s.before
	s.before = map[string]throttling{}
	dir, v2 := s.dir(c, "cpu")
	for ; len(dir) > len(s.root); dir = filepath.Dir(dir) {
		b, err := readProc(dir, "cpu.stat")
		if err != nil {
			continue
		}
		now := parseThrottling(b, v2)
		now.at = v.At
		s.before[dir] = now
		v.ThrottledTotal += now.time
		share, periods := now.since(before[dir])
		if share > v.Throttled {
			v.Throttled, v.ThrottledPeriods = share, periods
		}
	}
}

func parseThrottling(b []byte, v2 bool) throttling {
	stat := keyed(b)
	t := throttling{periods: stat["nr_periods"], throttled: stat["nr_throttled"]}
	if v2 {
		t.time = time.Duration(stat["throttled_usec"]) * time.Microsecond
	} else {
		t.time = time.Duration(stat["throttled_time"])
	}
	return t
}

// since returns the time per second and the share of periods that were throttled
// since b; 0 when there was no b, or the cgroup was made anew.
func (t throttling) since(b throttling) (share, periods float64) {
	if b.at.IsZero() || !t.at.After(b.at) || t.periods < b.periods || t.throttled < b.throttled || t.time < b.time {
		return 0, 0
	}
	if n := t.periods - b.periods; n > 0 {
		periods = min(1, float64(t.throttled-b.throttled)/float64(n))
	}
	return (t.time - b.time).Seconds() / t.at.Sub(b.at).Seconds(), periods
}

// limits reads the tasks and the memory against the nearest limit at the
// cgroup or above it.
func (s *cgroupSource) limits(c controllers, v *health.Cgroup) {
	if dir, _ := s.dir(c, "pids"); dir != "" {
		current, most := s.nearest(dir, "pids.current", "pids.max", 1<<40)
		v.PIDs, v.PIDsMax = int(current), int(most)
	}
	if dir, v2 := s.dir(c, "memory"); dir != "" {
		if v2 {
			v.Memory, v.MemoryMax = s.nearest(dir, "memory.current", "memory.max", noMemoryLimit)
		} else {
			v.Memory, v.MemoryMax = s.nearest(dir, "memory.usage_in_bytes", "memory.limit_in_bytes", noMemoryLimit)
		}
	}
}

// nearest walks up from dir to the limit that is closest to being reached, and
// returns it with what it counts; the cgroup's own count and 0 where there is
// no limit.
func (s *cgroupSource) nearest(dir, current, limit string, none int64) (used, most int64) {
	own := int64(-1)
	for ; len(dir) > len(s.root); dir = filepath.Dir(dir) {
		n, err := readNumber(dir, current)
		if err != nil {
			continue
		}
		if own < 0 {
			own = n
		}
		l, err := readNumber(dir, limit)
		if err != nil || l >= none || l <= 0 {
			continue // "max" is no number
		}
		if most == 0 || float64(n)*float64(most) > float64(used)*float64(l) {
			used, most = n, l
		}
	}
	if most == 0 {
		return max(own, 0), 0
	}
	return used, most
}

func readNumber(path ...string) (int64, error) {
	b, err := readProc(path...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// keyed parses "name number" lines, as of cpu.stat; what is no such line is
// passed over.
func keyed(b []byte) map[string]uint64 {
	out := map[string]uint64{}
	for line := range bytes.Lines(b) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), " ")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
