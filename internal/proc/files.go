package proc

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Files reads the files of cgroups and others with numbers. A value that could not be read looks like
// an absent one, so each such failure is reported with its part: the files of a
// controller ("memory files"), or one file.
type Files struct {
	unread func(part string, err error) // nil for nobody
}

// NewFiles returns a reader that reports each part it could not read, absent ones too.
func NewFiles(unread func(part string, err error)) Files { return Files{unread: unread} }

// Text returns the content of a file, "" where it could not be read.
func (f Files) Text(path ...string) string {
	b, err := ReadFile(path...)
	if err != nil {
		f.report(err, path)
	}
	return string(b)
}

func (f Files) report(err error, path []string) {
	if f.unread == nil {
		return
	}
	part, _, ofController := strings.Cut(path[len(path)-1], ".")
	if ofController {
		part += " files"
	}
	f.unread(part, err)
}

// reportInvalid reports a file whose content holds no value: not one that could not be read, or "max".
func (f Files) reportInvalid(text string, path []string) {
	if text != "" && !strings.HasPrefix(text, "max") {
		f.report(fmt.Errorf("not a value that plegd knows: %.40q", text), path)
	}
}

// Number reads a file with one number in it; -1 where it has none, or a negative one.
func (f Files) Number(path ...string) int64 {
	text := f.Text(path...)
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		f.reportInvalid(text, path)
		return -1
	}
	return max(-1, n)
}

// noLimit is from where a limit of v1 means none: for memory the kernel writes
// the largest number of pages, in bytes.
const noLimit = 1 << 60

// Limit reads a limit; 0 for none.
func (f Files) Limit(path ...string) int64 {
	n := f.Number(path...)
	if n < 0 || n >= noLimit { // "max" is no number
		return 0
	}
	return max(n, 1) // a limit of 0 is one
}

// Counters reads lines of a name and a number, as of cpu.stat. An invalid line is left out.
func (f Files) Counters(path ...string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(f.Text(path...)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

// CPUStat is what the CPU quota of one level did, by its cpu.stat.
type CPUStat struct {
	Periods, Throttled uint64
	Time               time.Duration // in v1 summed over the CPUs
}

// CPUStat reads the cpu.stat of a level; ok is false where it has no quota.
func (f Files) CPUStat(dir string) (s CPUStat, ok bool) {
	k := f.Counters(dir, "cpu.stat")
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
func (f Files) HasQuota(dir string) bool {
	v2 := f.Text(dir, "cpu.max")
	v1 := f.Text(dir, "cpu.cfs_quota_us")
	return !strings.HasPrefix(v2, "max") && !strings.HasPrefix(v1, "-1")
}

// Pressure returns avg10 of a line, "some" or "full", of a pressure file; -1 where there is
// none, as with psi=0. procfs reads those of the node only.
//
//	some avg10=0.00 avg60=0.00 avg300=0.00 total=0
func (f Files) Pressure(line string, path ...string) float64 {
	text := f.Text(path...)
	_, rest, _ := strings.Cut("\n"+text, "\n"+line+" avg10=")
	var share float64
	if _, err := fmt.Sscanf(rest, "%f", &share); err != nil || !(share >= 0 && share <= 100) { // not NaN either
		f.reportInvalid(text, path)
		return -1
	}
	return share
}
