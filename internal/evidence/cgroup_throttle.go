package evidence

import (
	"bytes"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// throttleWindow is how many samples back the throttling is compared with. With
// one, a quota whose period is as long as that between samples would show as
// nothing now and twice as much then.
const throttleWindow = 2

// wholly is how many periods of the last sample, without any time given back in
// it, show by themselves that there is one who waits: what was taken in a single
// one may be counted in the next moment.
const wholly = 2

// throttling works out what the CPU quotas at a cgroup and above it take.
type throttling struct {
	before [throttleWindow]quotaSample // the oldest first
	at     time.Time                   // when a quota was last seen to take time
}

type quotaSample struct {
	at     time.Time
	levels map[string]cpuStat // by directory
}

// cpuStat is what is used of a cpu.stat.
type cpuStat struct {
	periods, throttled uint64
	time               time.Duration // in v1 summed over the CPUs
}

// parseCPUStat decodes a cpu.stat; ok is false where it tells of no quota.
func parseCPUStat(b []byte) (s cpuStat, ok bool) {
	k := keyed(b)
	s.periods, s.throttled = k["nr_periods"], k["nr_throttled"]
	if usec, v2 := k["throttled_usec"]; v2 {
		s.time = nanoseconds(usec, time.Microsecond)
	} else {
		s.time = nanoseconds(k["throttled_time"], time.Nanosecond)
	}
	_, ok = k["nr_periods"]
	return s, ok
}

// before tells whether a counter of s is behind b's.
func (s cpuStat) before(b cpuStat) bool {
	return s.periods < b.periods || s.throttled < b.throttled || s.time < b.time
}

// since is the time a second that was taken since b, at most 1 (v1 counts that of
// each CPU), and the share of periods in which some was.
//
// The kernel counts the time when it gives the CPU back. One who has overdrawn a
// small quota by a tick may wait for many periods until then: as long as there
// are such periods and no time, it has not run in any.
func (s cpuStat) since(b cpuStat, passed time.Duration) (taken, periods float64) {
	if n := s.periods - b.periods; n > 0 {
		periods = min(1, float64(s.throttled-b.throttled)/float64(n))
	}
	if s.time == b.time {
		return periods, periods
	}
	return min(1, (s.time-b.time).Seconds()/passed.Seconds()), periods
}

// waiting is the share of the periods since b, the last sample, in which the CPU
// was taken away, while none of it is counted yet; 0 where some is. Who was kept
// waiting for a moment at first, and then for long, has been given the time of
// the first: over two samples it looks like little.
func (s cpuStat) waiting(b cpuStat) float64 {
	n := s.periods - b.periods
	if s.time != b.time || n < wholly {
		return 0
	}
	return min(1, float64(s.throttled-b.throttled)/float64(n))
}

func nanoseconds(n uint64, unit time.Duration) time.Duration {
	return time.Duration(min(n, uint64((1<<63-1)/unit))) * unit
}

// look fills in the throttling: of the level at which it is hardest, since a
// quota above is not counted below. ThrottledTotal is of all levels.
func (t *throttling) look(tree *cgroupTree, m cgroups, v *health.Cgroup) {
	now := quotaSample{at: v.At, levels: map[string]cpuStat{}}
	for dir := range tree.up(m, "cpu") {
		if b, err := tree.reader.read(dir + "/cpu.stat"); err == nil {
			if s, ok := parseCPUStat(b); ok {
				now.levels[dir] = s
			}
		}
	}
	for dir, s := range now.levels {
		v.ThrottledTotal += s.time
		taken, periods, compared := 0.0, 0.0, false
		for _, before := range t.before {
			b, ok := before.levels[dir]
			if !ok || !now.at.After(before.at) || s.before(b) {
				continue // it is a new cgroup of the same name
			}
			if !compared { // the oldest that can be
				taken, periods = s.since(b, now.at.Sub(before.at))
			} else if w := s.waiting(b); w > taken {
				taken, periods = w, w
			}
			compared = true
		}
		if taken > v.Throttled && tree.quota(dir) {
			v.Throttled, v.ThrottledPeriods = taken, periods
		}
	}
	if v.Throttled > 0 || now.throttledSince(t.before[throttleWindow-1]) {
		t.at = v.At
	}
	v.ThrottledAt = t.at
	copy(t.before[:], t.before[1:])
	t.before[throttleWindow-1] = now
}

// throttledSince reports whether a quota has taken time since the sample b, be it
// lifted by now.
func (s quotaSample) throttledSince(b quotaSample) bool {
	for dir, now := range s.levels {
		if before, ok := b.levels[dir]; ok && (now.throttled > before.throttled || now.time > before.time) {
			return true
		}
	}
	return false
}

// quota tells whether a cgroup has a CPU quota (cpu.max of v2, cpu.cfs_quota_us of
// v1); true where that cannot be read. What a quota took before it was lifted is
// over at once, and not when the samples have forgotten it.
func (t *cgroupTree) quota(dir string) bool {
	for file, none := range map[string]string{"cpu.max": "max", "cpu.cfs_quota_us": "-1"} {
		if b, err := t.reader.read(dir + "/" + file); err == nil {
			value, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
			return value != none
		}
	}
	return true
}

// keyed decodes lines of a name and a number, as of cpu.stat; what is no such
// line is passed over.
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
