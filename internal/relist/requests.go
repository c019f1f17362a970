package relist

import (
	"sync"
	"time"
)

// requests is what others ask of the loop, until it gets to it.
type requests struct {
	wake chan struct{} // holds one token while there is something to look at
	mu   sync.Mutex
	asked
}

type asked struct {
	waiting []chan struct{} // for a relist that begins after this
	relist  bool            // a relist as soon as possible
	early   bool            // as a kubelet would make one
	use     *bool
	listen  *bool
}

func (r *requests) put(change func(*asked)) {
	r.mu.Lock()
	change(&r.asked)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take takes all that was asked, at once: a relist that was asked for together
// with something else is made after that was done.
func (r *requests) take() asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.asked
	r.asked = asked{}
	return a
}

// answer tells those who waited for a relist that it has ended.
func answer(waiting []chan struct{}) {
	for _, w := range waiting {
		close(w)
	}
}

// Relist asks for a relist as soon as possible, which a kubelet would make too.
// What it returns is closed when one that began after this has ended. Nobody
// waits here.
func (l *Loop) Relist() <-chan struct{} {
	done := make(chan struct{})
	l.requests.put(func(a *asked) { a.relist, a.early, a.waiting = true, true, append(a.waiting, done) })
	return done
}

// CatchUp asks for a relist soon, which a kubelet would not make: a period of the
// generic loop's after the last one at the earliest, however often it is asked
// for.
func (l *Loop) CatchUp() { l.requests.put(func(a *asked) { a.relist = true }) }

// UseEvents makes the loop rely on events, with EventedPeriod between relists, or
// go on without, with its own period and a relist at once.
func (l *Loop) UseEvents(on bool) { l.requests.put(func(a *asked) { a.use = &on }) }

// Listening says whether from now on events should tell of every change. What
// they do not tell then is counted as missed.
func (l *Loop) Listening(on bool) {
	if on {
		l.trust.resumed()
	}
	l.requests.put(func(a *asked) { a.listen = &on })
}

// Interrupted says that until Listening(true) events may be lost: the stream was
// cut, or there was none for a while. What is missed then is counted, and is not
// held against the runtime.
func (l *Loop) Interrupted() { l.trust.interrupted() }

// due is when the next relist is.
func (l *Loop) due() time.Time {
	if l.soon {
		return l.ended.Add(l.cfg.Period)
	}
	return l.ended.Add(l.now.Period)
}

// handleRequests does what was asked. It returns whether that is a relist now, and whether
// a kubelet would make it too.
func (l *Loop) handleRequests() (now, early bool) {
	a := l.requests.take()
	l.waiting = append(l.waiting, a.waiting...)
	now, early = a.relist || l.soon, a.early
	if now && !early && a.use == nil && time.Since(l.ended) < l.cfg.Period {
		now, l.soon = false, true
	}
	if a.listen != nil {
		l.trust.listen(*a.listen)
	}
	if use := a.use; use != nil && *use != l.now.Evented {
		l.now.Evented, l.now.Period = *use, l.cfg.Period
		if *use {
			l.now.Period = EventedPeriod
		} else {
			now, early = true, true // the kubelet restarts its generic loop
		}
		if l.now.Counted {
			l.count()
		}
		if !now {
			l.publish() // a relist does so itself
		}
	}
	return now, early
}
