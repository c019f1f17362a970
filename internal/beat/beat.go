// Package beat says when to do what is done now and then: at moments that all parts
// of plegd have in common, so that the process wakes up once for all of them. Each
// wake-up costs more than most of what it is for: the scheduler looks for work, and
// Go's monitor thread polls for a while.
//
// It starts nothing, and holds nothing but the next moments.
package beat

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Least and Most bound the time between two beats; it is spread evenly between them.
// Looks at a fixed period can be in phase with a fault that comes and goes, and never
// see it; around a mean that is the fault's own period they would stay in phase for
// long.
const (
	Least = 750 * time.Millisecond
	Most  = time.Second
)

// beats are the next moments. The zero value is ready for use.
type beats struct {
	mu   sync.Mutex
	next []time.Time // ascending
}

var common beats

// After returns how long it is to the last beat within d. Where that is in less than
// Least of Most of d, as it may be for a d that is not a whole number of seconds, the
// wait is Spread(d), and ends at no beat.
func After(d time.Duration) time.Duration { return common.after(time.Now(), d) }

// Spread returns a time between Least of Most of d and d, at random.
func Spread(d time.Duration) time.Duration {
	return soonest(d) + time.Duration(rand.Float64()*float64(d-soonest(d))) //nolint:gosec // no secret
}

func soonest(d time.Duration) time.Duration {
	return time.Duration(float64(Least) / float64(Most) * float64(d))
}

func (b *beats) after(now time.Time, d time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	passed := 0
	for passed < len(b.next) && !b.next[passed].After(now) {
		passed++
	}
	b.next = append(b.next[:0], b.next[passed:]...)
	if len(b.next) > 0 && b.next[0].Sub(now) > Most {
		b.next = b.next[:0] // the clock was set back: a test's
	}
	end := now.Add(d)
	last := now
	for i := 0; ; i++ {
		if i == len(b.next) {
			b.next = append(b.next, last.Add(Least+rand.N(Most-Least)))
		}
		if b.next[i].After(end) {
			break
		}
		last = b.next[i]
	}
	if wait := last.Sub(now); wait >= soonest(d) {
		return wait
	}
	return Spread(d)
}
