package evidence

import (
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/health"
)

// throttleWindow is how many samples back the throttling is compared with. With
// one, a quota whose period is as long as that between samples would show as
// nothing now and twice as much then.
const throttleWindow = 2

// wholly is the number of fully throttled CFS periods in one sample, without any
// accounted throttled time, that counts as throttling: the time of a single period may
// be accounted a moment later.
const wholly = 2

// tooOld is the maximum age of a sample for a comparison if there is a newer one: an
// older one would average a new fault with the healthy time before it. Samples are that
// far apart in the steady state.
const tooOld = 2500 * time.Millisecond

// throttling works out what the CPU quotas at a cgroup and above it take.
type throttling struct {
	before [throttleWindow]quotaSample // the oldest first
	at     time.Time                   // when a quota was last seen to take time
}

type quotaSample struct {
	at     time.Time
	levels map[string]cgroup.CPUStat // by directory
}

// isBehind reports whether a counter of s is behind b's.
func isBehind(s, b cgroup.CPUStat) bool {
	return s.Periods < b.Periods || s.Throttled < b.Throttled || s.Time < b.Time
}

// throttledShare is the time a second that was taken since b, at most 1 (v1 counts that of
// each CPU), and the share of periods in which some was.
//
// The kernel accounts the time when it gives the CPU back. A group that has overdrawn a
// small quota by a tick may wait for many periods until then: while periods increase
// and the time does not, it has not run in any of them.
func throttledShare(s, b cgroup.CPUStat, passed time.Duration) (taken, periods float64) {
	if n := s.Periods - b.Periods; n > 0 {
		periods = min(1, float64(s.Throttled-b.Throttled)/float64(n))
	}
	if s.Time == b.Time {
		return periods, periods
	}
	return min(1, (s.Time-b.Time).Seconds()/passed.Seconds()), periods
}

// waitingShare is the share of throttled periods since b, the last sample, while none
// of the throttled time is accounted yet; 0 if some is. A group that waited briefly,
// and then for long, has only the first wait accounted: over two samples that looks
// small.
func waitingShare(s, b cgroup.CPUStat) float64 {
	n := s.Periods - b.Periods
	if s.Time != b.Time || n < wholly {
		return 0
	}
	return min(1, float64(s.Throttled-b.Throttled)/float64(n))
}

// look fills in the throttling: of the level at which it is hardest, since a
// quota above is not counted below. ThrottledTotal is of all levels.
func (t *throttling) look(tree *cgroup.Tree, m cgroup.Paths, v *health.Cgroup) {
	now := quotaSample{at: v.At, levels: map[string]cgroup.CPUStat{}}
	for dir := range tree.Up(m, "cpu") {
		if b, err := tree.Reader.ReadRecord(dir + "/cpu.stat"); err == nil {
			if s, ok := cgroup.ParseCPUStat(b); ok {
				now.levels[dir] = s
			}
		}
	}
	for dir, s := range now.levels {
		v.ThrottledTotal += s.Time
		taken, periods, compared := 0.0, 0.0, false
		for i, before := range t.before {
			b, ok := before.levels[dir]
			younger := i+1 < len(t.before) && !t.before[i+1].at.IsZero()
			if !ok || !now.at.After(before.at) || isBehind(s, b) || younger && now.at.Sub(before.at) > tooOld {
				continue // it is a new cgroup of the same name, or too long ago
			}
			if !compared { // the oldest that can be
				taken, periods = throttledShare(s, b, now.at.Sub(before.at))
			} else if w := waitingShare(s, b); w > taken {
				taken, periods = w, w
			}
			compared = true
		}
		if taken > v.Throttled && tree.HasQuota(dir) {
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
		if before, ok := b.levels[dir]; ok && (now.Throttled > before.Throttled || now.Time > before.Time) {
			return true
		}
	}
	return false
}
