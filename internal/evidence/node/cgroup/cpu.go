package cgroup

import (
	"strings"
	"time"
)

// CPUStat is what is used of a cpu.stat.
type CPUStat struct {
	Periods, Throttled uint64
	Time               time.Duration // in v1 summed over the CPUs
}

// ParseCPUStat decodes a cpu.stat; ok is false where it tells of no quota.
func ParseCPUStat(b []byte) (s CPUStat, ok bool) {
	k := Keyed(b)
	s.Periods, s.Throttled = k["nr_periods"], k["nr_throttled"]
	if usec, v2 := k["throttled_usec"]; v2 {
		s.Time = nanoseconds(usec, time.Microsecond)
	} else {
		s.Time = nanoseconds(k["throttled_time"], time.Nanosecond)
	}
	_, ok = k["nr_periods"]
	return s, ok
}

func nanoseconds(n uint64, unit time.Duration) time.Duration {
	return time.Duration(min(n, uint64((1<<63-1)/unit))) * unit
}

// HasQuota reports whether a cgroup has a CPU quota (cpu.max of v2, cpu.cfs_quota_us of
// v1); true where that cannot be read. What a quota took before it was lifted is
// over at once, and not when the samples have forgotten it.
func (t *Tree) HasQuota(dir string) bool {
	for file, none := range map[string]string{"cpu.max": "max", "cpu.cfs_quota_us": "-1"} {
		if b, err := t.Reader.ReadRecord(dir + "/" + file); err == nil {
			value, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
			return value != none
		}
	}
	return true
}
