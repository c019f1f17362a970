package relist

import (
	"context"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// bestFor is how long a call's best time is believed within a burst; then it
	// is measured again, by an inspection that runs alone.
	bestFor = 30 * time.Second
	// patience is how long pace waits for an answer before it allows one more
	// inspection than it otherwise would: what hangs must not hold up what does
	// not. It is this while nothing is known, and then a multiple of what calls
	// take.
	patience      = 10 * time.Millisecond
	knownPatience = 100 * time.Millisecond
	knownTimes    = 8
	// Differences below this are the machine's, not the runtime's.
	jitter = 100 * time.Microsecond
)

// pace decides how many inspections run at once. A runtime that answers one
// call after another is not faster for being asked more at once: the calls wait
// in it, in everybody's way. So pace compares what calls take with the best
// they have taken, as TCP Vegas does with round trips: with n at once, each
// taking f times the best, about n/f are being worked on and the others wait.
// While hardly any waits there may be more, doubling; when more than three do
// there are as many as are worked on, and one.
//
// Each burst begins with one inspection alone, which tells the best: calls that
// always take a second are not slow.
type pace struct {
	max int

	mu      sync.Mutex
	limit   int // how many may run
	running int
	changed chan struct{} // closed at every change of the two
	answer  time.Time     // the last one, or the last time that one more was allowed
	cut     time.Time     // when the limit last fell
	best    map[cri.Operation]bestTime
	since   time.Time     // what best goes back to
	usual   time.Duration // what calls took at best in the burst before
}

// bestTime is the best that a call has taken.
type bestTime struct {
	time.Duration
	alone bool // measured while nothing else was asked
}

func newPace(most int) *pace {
	return &pace{max: most, limit: 1, changed: make(chan struct{}), best: map[cri.Operation]bestTime{}}
}

// start begins a burst.
func (p *pace) start(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = now
	p.measure(now)
}

// measure forgets the best times, and goes back to one inspection alone.
func (p *pace) measure(now time.Time) {
	if worst := p.worst(); worst > 0 {
		p.usual = worst
	}
	clear(p.best)
	p.since, p.limit = now, 1
}

// worst is the longest of the best times, 0 when there is none.
func (p *pace) worst() (worst time.Duration) {
	for _, b := range p.best {
		worst = max(worst, b.Duration)
	}
	return worst
}

// enter waits until one more inspection may run. It returns how many run then,
// and false when ctx has ended.
func (p *pace) enter(ctx context.Context) (running int, ok bool) {
	for {
		p.mu.Lock()
		now := time.Now()
		if now.Sub(p.since) >= bestFor {
			p.measure(now)
		}
		wait := p.answer.Add(p.patience()).Sub(now)
		if p.running >= p.limit && p.running < p.max && wait <= 0 {
			p.limit, p.answer = p.running+1, now
		}
		if p.running < p.limit {
			p.running++
			running = p.running
			p.mu.Unlock()
			return running, true
		}
		changed := p.changed
		if p.running >= p.max {
			wait = time.Hour // for one of them
		}
		p.mu.Unlock()
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, false
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (p *pace) patience() time.Duration {
	if worst := p.worst(); worst > 0 {
		return max(knownPatience, knownTimes*worst)
	}
	return max(patience, min(2*p.usual, knownPatience))
}

// calling returns how many inspections run, for called.
func (p *pace) calling() (running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// called notes a call that began when so many inspections ran, and is answered.
func (p *pace) called(op cri.Operation, running int, began time.Time, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = began.Add(took)
	if began.Before(p.since) {
		return // it was under way together with others
	}
	took = max(took, jitter)
	b, ok := p.best[op]
	if running == 1 && !b.alone {
		p.best[op] = bestTime{took, true}
	} else if ok && took < b.Duration {
		p.best[op] = bestTime{took, b.alone}
	}
}

// leave notes that an inspection has ended: it was one of running when it
// began, and made these calls.
func (p *pace) leave(began time.Time, running int, took map[cri.Operation]callTimes) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running--
	defer func() {
		close(p.changed)
		p.changed = make(chan struct{})
	}()
	var spent, best time.Duration
	for op, c := range took {
		b, ok := p.best[op]
		if !ok {
			// Never measured alone: as long as the other one, if that is known.
			b.Duration = max(c.total/time.Duration(c.n), jitter)
			for _, other := range p.best {
				b.Duration = min(b.Duration, other.Duration)
			}
			p.best[op] = b
		}
		spent += max(c.total, b.Duration*time.Duration(c.n))
		best += b.Duration * time.Duration(c.n)
	}
	if best == 0 {
		return
	}
	worked := float64(running) * float64(best) / float64(spent)
	switch waiting := float64(running) - worked; {
	case waiting > 3:
		if began.After(p.cut) { // one that began after the limit last fell
			p.limit = max(1, min(p.limit, int(worked)+1))
			p.cut = time.Now()
		}
	case waiting <= 1.5 && running >= p.limit:
		p.limit = min(2*p.limit, p.max)
	}
}

// callTimes are an inspection's calls of one operation.
type callTimes struct {
	n     int
	total time.Duration
}
