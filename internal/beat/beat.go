// Package beat says when to do what is done now and then: at moments that all parts
// of plegd have in common, so that the process wakes up once for all of them. Each
// wake-up costs more than most of what it is for: the scheduler looks for work, and
// Go's monitor thread polls for a while.
//
// It starts nothing, and holds nothing but the next moments.
package beat

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// most is the most time between two beats. It is spread: looks at a fixed period can be
// in phase with a fault that comes and goes, and never see it; around a mean that is the
// fault's own period they would stay in phase for long.
const most = time.Second

// beats are the next moments. The zero value is ready for use.
type beats struct {
	mu   sync.Mutex
	next []time.Time // ascending
}

var common beats

// After returns how long it is to the last beat within d. Where that comes too soon, as
// it may for a d that is not a whole number of seconds, the wait is Spread(d).
func After(d time.Duration) time.Duration { return common.after(time.Now(), d) }

// Spread returns a time between three quarters of d and d, at random.
func Spread(d time.Duration) time.Duration {
	return soonest(d) + time.Duration(rand.Float64()*float64(d-soonest(d))) //nolint:gosec // no secret
}

func soonest(d time.Duration) time.Duration { return d / 4 * 3 }

// Limit returns how long it is to the first beat that is d or more away: for a limit
// that is hardly ever reached. Go wakes up for a timer that was stopped, too.
func Limit(d time.Duration) time.Duration {
	now := time.Now()
	_, first := common.around(now, now.Add(d))
	return first.Sub(now)
}

func (b *beats) after(now time.Time, d time.Duration) time.Duration {
	last, _ := b.around(now, now.Add(d))
	if wait := last.Sub(now); wait >= soonest(d) {
		return wait
	}
	return Spread(d)
}

// around returns the last beat before end, or now where there is none, and the first
// that is not before it.
func (b *beats) around(now, end time.Time) (last, first time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = slices.DeleteFunc(b.next, func(at time.Time) bool { return !at.After(now) })
	last = now
	for i := 0; ; i++ {
		if i == len(b.next) || b.next[i].Sub(last) > most { // the clock was set back
			b.next = append(b.next[:i], last.Add(Spread(most)))
		}
		if !b.next[i].Before(end) {
			return last, b.next[i]
		}
		last = b.next[i]
	}
}
