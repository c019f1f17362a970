package events

import (
	"context"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// endedAtOnce is a StreamClosed before anything came and before the stream could
// count as one that holds.
const endedAtOnce cri.StreamEnd = 255

// ended is a stream that has ended.
type ended struct {
	stream *stream
	end    cri.StreamEnd
	err    error
}

// overlap is how long before its end a lease is followed by the next one, and
// settles how long after that end the next one is followed in any case.
func overlap(lease time.Duration) time.Duration { return min(lease/5, 2*time.Second) }

const settles = 500 * time.Millisecond

// leaseNow is how long the next lease lasts.
func (s *Subscriber) leaseNow(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	silence := now.Sub(s.quiet)
	if silence < quietAfter {
		return s.opts.Lease
	}
	long := time.Duration(float64(s.opts.Lease) * (float64(silence) / float64(quietAfter)))
	return max(s.opts.Lease, min(long, MaxLease))
}

// hold keeps one lease after the other open until one fails, or until none is.
func (s *Subscriber) hold(ctx context.Context) (cri.StreamEnd, error) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()

	ends := make(chan ended)
	live := 0
	open := func() *stream {
		own, stop := context.WithCancel(ctx)
		now := time.Now()
		lease := s.leaseNow(now)
		st := &stream{lease: lease, ends: now.Add(lease), cancel: stop}
		s.handover.add(st)
		s.update(func(state *State) { state.Opened++ })
		live++
		reading.Go(func() {
			defer stop()
			end, err := s.opts.Source.ContainerEvents(own, st.lease, func(e *cri.ContainerEvent) { s.handover.receive(st, e) })
			s.handover.end(st)
			select {
			case ends <- ended{st, end, err}:
			case <-ctx.Done():
			}
		})
		return st
	}

	began := time.Now()
	s.mu.Lock()
	s.began = began
	before := s.state.Events
	s.mu.Unlock()
	newest := open()
	renew := time.NewTimer(newest.lease - overlap(newest.lease))
	defer renew.Stop()
	follow := time.NewTimer(newest.lease) // reset when there is one to follow
	defer follow.Stop()
	holds := holdsAfter
	if s.State().FellBack {
		holds = s.opts.Lease // once bitten
	}
	held := time.NewTimer(holds)
	defer held.Stop()
	next := func() {
		after := overlap(newest.lease) + settles
		if !time.Now().Before(newest.ends) {
			// plegd was stopped, and this comes too late: there was no lease for a
			// while, and a relist is to find what happened then.
			s.lapsed()
			held.Reset(holdsAfter)
		}
		newest = open()
		follow.Reset(after)
		renew.Reset(newest.lease - overlap(newest.lease))
	}

	for {
		select {
		case <-ctx.Done():
			return cri.StreamFailed, ctx.Err()
		case <-held.C:
			s.held()
		case <-renew.C:
			next()
		case <-s.busy:
			if newest.lease > s.opts.Lease {
				next()
				follow.Reset(settles)
			}
		case <-follow.C:
			for _, old := range s.handover.promote(newest) {
				if old.lease > s.opts.Lease {
					old.cancel()
				}
			}
		case e := <-ends:
			live--
			switch {
			case e.stream.lease > s.opts.Lease && e.stream != newest:
				// a long lease, cut short on purpose
			case e.end == cri.StreamLeaseOver:
				s.unended = 0
			case e.end == cri.StreamClosed && time.Since(began) < holdsAfter && s.State().Events == before:
				return endedAtOnce, nil
			default:
				return e.end, e.err
			}
			if live == 0 {
				return cri.StreamLeaseOver, nil
			}
		}
	}
}

// pass hands an event on, for the first time that it comes.
func (s *Subscriber) pass(e *cri.ContainerEvent) {
	s.mu.Lock()
	if int(e.Type) < len(s.state.Events) {
		s.state.Events[e.Type]++
	}
	backlog := e.CreatedAt < s.began.UnixNano()
	if backlog {
		s.state.Backlog++
	}
	s.state.LastEvent = e.Received
	long := e.Received.Sub(s.quiet) >= quietAfter
	s.quiet = e.Received
	s.mu.Unlock()
	if !backlog {
		s.opts.Delay(max(0, time.Duration(e.Received.UnixNano()-e.CreatedAt)))
	}
	if long {
		select {
		case s.busy <- struct{}{}:
		default:
		}
	}
	s.opts.Loop.Tell(e)
}
