package node

import (
	"cmp"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Cgroups are the cgroups of one process: by the controllers of a v1 hierarchy as
// /proc/PID/cgroup lists them ("cpu,cpuacct"), and by "" that of v2's.
type Cgroups map[string]string

// ParseCgroups decodes /proc/PID/cgroup: "4:cpu,cpuacct:/path" for v1, "0::/path"
// for v2. An invalid line is left out.
func ParseCgroups(b []byte) Cgroups {
	m := Cgroups{}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && strings.HasPrefix(parts[2], "/") {
			m[parts[1]] = parts[2]
		}
	}
	return m
}

// Main is the cgroup by which a person knows the process: where a service manager put it.
func (m Cgroups) Main() string {
	_, cpu, _ := m.v1("cpu")
	for _, p := range []string{m[""], m["name=systemd"], cpu} {
		if p != "" && p != "/" {
			return p
		}
	}
	return "/"
}

// v1 returns the v1 hierarchy that has a controller.
func (m Cgroups) v1(controller string) (list, path string, ok bool) {
	for list, path := range m {
		if controller != "" && slices.Contains(strings.Split(list, ","), controller) {
			return list, path, true
		}
	}
	return "", "", false
}

// CgroupTree finds cgroups below /sys/fs/cgroup.
type CgroupTree struct {
	ProcFS, Root string // Root is /sys/fs/cgroup
}

// NewCgroupTree returns the cgroups below fs/cgroup of sysfs, of the processes below procfs.
func NewCgroupTree(procfs, sysfs string) CgroupTree {
	return CgroupTree{ProcFS: procfs, Root: filepath.Join(sysfs, "fs/cgroup")}
}

// Of returns the cgroups of a process.
func (t *CgroupTree) Of(pid int) (Cgroups, error) {
	b, err := ReadFile(Path(t.ProcFS, pid, "cgroup"))
	if err != nil {
		return nil, err
	}
	m := ParseCgroups(b)
	for list, path := range m {
		switch {
		case path == "/.." || strings.HasPrefix(path, "/../"):
			if m[list], err = t.outside(m, list, pid); err != nil {
				return nil, err
			}
		case strings.HasSuffix(path, " (deleted)"): // it has ended, and its cgroup after it
			return nil, fmt.Errorf("look at the cgroup of pid %d: %w", pid, fs.ErrNotExist)
		}
	}
	return m, nil
}

// outside returns the path from the root of the hierarchy of a cgroup that is outside
// plegd's cgroup namespace, as the runtime's is for a pod that is not privileged. The
// kernel gives it relative to that namespace ("/../../system.slice/x"). If it is in another
// branch from the root on, the rest is the path, and its list of processes holds pid.
func (t *CgroupTree) outside(m Cgroups, list string, pid int) (string, error) {
	rest := m[list]
	for rest == "/.." || strings.HasPrefix(rest, "/../") {
		rest = rest[len("/.."):]
	}
	rest = "/" + strings.TrimPrefix(rest, "/")
	controller, _, _ := strings.Cut(list, ",")
	if base, _, _ := t.Base(m, controller); base != "" {
		b, err := ReadFile(base + rest + "/cgroup.procs")
		if err == nil && slices.Contains(strings.Fields(string(b)), strconv.Itoa(pid)) {
			return rest, nil
		}
	}
	return "", fmt.Errorf("look at the cgroup of pid %d: %s is outside plegd's cgroup namespace, and %s/cgroup.procs "+
		"below %s does not hold it; plegd needs the node's /sys, and its PIDs", pid, m[list], rest, t.Root)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Base returns where the hierarchy of a controller is mounted, and the path of the cgroup
// in it; "" for neither. The v1 hierarchy comes before the unified one, which is also that
// of the controller "".
func (t *CgroupTree) Base(m Cgroups, controller string) (base, path string, v2 bool) {
	if list, path, ok := m.v1(controller); ok {
		for _, name := range []string{list, controller} {
			if base := t.Root + "/" + strings.TrimPrefix(name, "name="); exists(base) {
				return base, path, false
			}
		}
		return "", "", false
	}
	if path, ok := m[""]; ok {
		for _, base := range []string{t.Root, t.Root + "/unified"} {
			if exists(base + "/cgroup.controllers") {
				return base, path, true
			}
		}
	}
	return "", "", true
}

// Up goes from the cgroup to the root of a controller's hierarchy: directories and paths.
func (t *CgroupTree) Up(m Cgroups, controller string) iter.Seq2[string, string] {
	return func(yield func(dir, path string) bool) {
		base, path, _ := t.Base(m, controller)
		if base == "" {
			return
		}
		for path = strings.TrimSuffix(path, "/"); yield(base+path, cmp.Or(path, "/")) && path != ""; {
			path = path[:strings.LastIndexByte(path, '/')]
		}
	}
}

// Shows reports whether any of the cgroups is there.
func (t *CgroupTree) Shows(m Cgroups) bool {
	for list := range m {
		name, _, _ := strings.Cut(list, ",")
		if base, path, _ := t.Base(m, name); base != "" && exists(base+path) {
			return true
		}
	}
	return false
}

// Number reads a file with one number in it.
func (t *CgroupTree) Number(path string) (int64, error) {
	b, err := ReadFile(path)
	if err != nil {
		return 0, err
	}
	return parseNumber(b)
}

func parseNumber(b []byte) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err == nil && n < 0 {
		return 0, strconv.ErrRange
	}
	return n, err
}

// Keyed decodes lines of a name and a number, as of cpu.stat; an invalid line is left out.
func Keyed(b []byte) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); ok && err == nil {
			out[name] = n
		}
	}
	return out
}

// CPUStat is the CPU quota in a cpu.stat.
type CPUStat struct {
	Periods, Throttled uint64
	Time               time.Duration // in v1 summed over the CPUs
}

// ParseCPUStat decodes a cpu.stat; ok is false where it has no quota.
func ParseCPUStat(b []byte) (s CPUStat, ok bool) {
	k := Keyed(b)
	ns := k["throttled_time"] // of v1
	if us, v2 := k["throttled_usec"]; v2 {
		ns = min(us, uint64((1<<63-1)/time.Microsecond)) * uint64(time.Microsecond)
	}
	_, ok = k["nr_periods"]
	return CPUStat{Periods: k["nr_periods"], Throttled: k["nr_throttled"], Time: time.Duration(min(ns, 1<<63-1))}, ok
}

// HasQuota reports whether a cgroup has a CPU quota (cpu.max of v2, cpu.cfs_quota_us of
// v1); true where that cannot be read. A quota that is lifted holds nothing up at once,
// although its counters stay.
func (t *CgroupTree) HasQuota(dir string) bool {
	for file, none := range map[string]string{"cpu.max": "max", "cpu.cfs_quota_us": "-1"} {
		if b, err := ReadFile(dir, file); err == nil {
			value, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
			return value != none
		}
	}
	return true
}

// noLimit is from where a limit of v1 means none: for memory the kernel writes
// the largest number of pages, in bytes.
const noLimit = 1 << 60

// Limit reads a limit; 0 for none.
func (t *CgroupTree) Limit(path string) int64 {
	n, err := t.Number(path)
	if err != nil || n >= noLimit {
		return 0 // "max" is no number
	}
	return max(n, 1) // a limit of 0 is one
}

// Usage is what a level of a cgroup uses, and its limit: 0 for none.
type Usage struct {
	Path, File  string // of the level, and of the limit
	Used, Limit int64
}

// Fullest returns the level, of a cgroup and those above it, that is nearest to one of its
// limits. Where none has one, it is the cgroup itself.
func (t *CgroupTree) Fullest(m Cgroups, controller, current string, limits ...string) (out Usage) {
	for dir, path := range t.Up(m, controller) {
		used, err := t.Number(dir + "/" + current)
		if err != nil {
			continue // the root of a hierarchy counts nothing
		}
		if out.Path == "" {
			out = Usage{Path: path, Used: used}
		}
		for _, file := range limits {
			l := t.Limit(dir + "/" + file)
			if l > 0 && (out.Limit == 0 || float64(used)*float64(out.Limit) > float64(out.Used)*float64(l)) {
				out = Usage{Path: path, File: file, Used: used, Limit: l}
			}
		}
	}
	return out
}

// Refaults adds up some counters of memory.stat.
func (t *CgroupTree) Refaults(dir string, names ...string) (n uint64) {
	b, err := ReadFile(dir, "memory.stat")
	if err != nil {
		return 0
	}
	k := Keyed(b)
	for _, name := range names {
		n += k[name]
	}
	return n
}

// ParsePressure returns avg10 of the two lines of a pressure file; -1 for a missing one.
// procfs reads those of the node only.
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
func ParsePressure(b []byte) (some, full float64) {
	some, full = -1, -1
	for line := range strings.Lines(string(b)) {
		var kind string
		var share float64
		_, err := fmt.Sscanf(line, "%s avg10=%f", &kind, &share)
		switch {
		case err != nil || !(share >= 0 && share <= 100): // not NaN either
		case kind == "some":
			some = share
		case kind == "full":
			full = share
		}
	}
	return some, full
}

// Frozen reports whether a process in these cgroups is frozen, and by which level: the
// topmost one that has to be thawed. To thaw a level below a frozen one has no effect.
func (t *CgroupTree) Frozen(m Cgroups) (path string, frozen bool) {
	if path, frozen = t.FrozenBy(m, "freezer"); frozen {
		return path, true
	}
	return t.FrozenBy(m, "")
}

// FrozenBy is Frozen for one hierarchy: "freezer" for v1's, where there is one, "" for
// v2's. In v1 FREEZING lasts while one of the processes waits for a disk: the others are
// frozen. Such a process is in D; one that v2 has frozen looks asleep.
func (t *CgroupTree) FrozenBy(m Cgroups, controller string) (path string, frozen bool) {
	for dir, level := range t.Up(m, controller) {
		b, _ := ReadFile(dir, "freezer.state") // v1; without a file there is no freezer
		state := strings.TrimSpace(string(b))
		b, _ = ReadFile(dir, "cgroup.events") // v2
		if state == "FROZEN" || state == "FREEZING" || Keyed(b)["frozen"] == 1 {
			path, frozen = level, true
		}
		for _, file := range []string{"freezer.self_freezing", "cgroup.freeze"} {
			if n, err := t.Number(dir + "/" + file); frozen && err == nil && n == 1 {
				path = level
			}
		}
	}
	return path, frozen
}
