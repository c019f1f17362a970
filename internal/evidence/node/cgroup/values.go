package cgroup

import (
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// Number reads a file with one number in it.
func (t *Tree) Number(path string) (int64, error) {
	b, err := proc.ReadFile(path)
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
func (t *Tree) HasQuota(dir string) bool {
	for file, none := range map[string]string{"cpu.max": "max", "cpu.cfs_quota_us": "-1"} {
		if b, err := proc.ReadFile(dir, file); err == nil {
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
func (t *Tree) Limit(path string) int64 {
	n, err := t.Number(path)
	if err != nil || n >= noLimit {
		return 0 // "max" is no number
	}
	return max(n, 1) // a limit of 0 is one
}

// Fullest returns the usage and the limit of the level, of a cgroup and those above it,
// that is nearest to its limit. Where none has one, the usage of the cgroup and 0.
func (t *Tree) Fullest(m Paths, controller, current, limit string) (used, most int64) {
	own, first := int64(0), true
	for dir := range t.Up(m, controller) {
		n, err := t.Number(dir + "/" + current)
		if err != nil {
			continue // the root of a hierarchy counts nothing
		}
		if first {
			own, first = n, false
		}
		l := t.Limit(dir + "/" + limit)
		if l > 0 && (most == 0 || float64(n)*float64(most) > float64(used)*float64(l)) {
			used, most = n, l
		}
	}
	if most == 0 {
		return own, 0
	}
	return used, most
}

// Refaults adds up some counters of memory.stat.
func (t *Tree) Refaults(dir string, names ...string) (n uint64) {
	b, err := proc.ReadFile(dir, "memory.stat")
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
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		value, ok := strings.CutPrefix(f[1], "avg10=")
		n, err := strconv.ParseFloat(value, 64)
		switch {
		case !ok, err != nil, !(n >= 0 && n <= 100): // not NaN either
		case f[0] == "some":
			some = n
		case f[0] == "full":
			full = n
		}
	}
	return some, full
}

// Frozen reports whether a process in these cgroups is frozen, and by which level:
// the topmost one that has to be thawed. To thaw a level below a frozen one has no
// effect.
func (t *Tree) Frozen(m Paths) (path string, frozen bool) {
	if path, frozen := t.FrozenV1(m); frozen {
		return path, true
	}
	return t.FrozenV2(m)
}

// FrozenV1 reads freezer.state, which includes the levels above, and looks for the
// topmost level with freezer.self_freezing. FREEZING lasts while one of the processes
// waits for a disk; the others are frozen. Such a process is in state D.
func (t *Tree) FrozenV1(m Paths) (path string, frozen bool) {
	base, path, v2 := t.Base(m, "freezer")
	if base == "" || v2 {
		return "", false
	}
	b, err := proc.ReadFile(base, path, "freezer.state")
	if state := strings.TrimSpace(string(b)); err != nil || state != "FROZEN" && state != "FREEZING" {
		return "", false
	}
	for dir := range t.Up(m, "freezer") {
		if n, err := t.Number(dir + "/freezer.self_freezing"); err == nil && n == 1 {
			path = LevelPath(base, dir)
		}
	}
	return path, true
}

// FrozenV2 reads cgroup.events, of the cgroup or one above it, and looks for the
// topmost level with cgroup.freeze. A process that is frozen so looks asleep.
func (t *Tree) FrozenV2(m Paths) (path string, frozen bool) {
	base, _, _ := t.Base(m, "")
	for dir := range t.Up(m, "") {
		if b, err := proc.ReadFile(dir, "cgroup.events"); err == nil && Keyed(b)["frozen"] == 1 {
			path, frozen = LevelPath(base, dir), true
		}
		if n, err := t.Number(dir + "/cgroup.freeze"); frozen && err == nil && n == 1 {
			path = LevelPath(base, dir)
		}
	}
	return path, frozen
}
