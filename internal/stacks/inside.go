package stacks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
)

const (
	// readAfter is the age of a call from which a dump is read. Most calls that hang for
	// a moment end before.
	readAfter = 3 * time.Second
	// readInterval is the time between two dumps: each one stops the runtime for some
	// milliseconds.
	readInterval = 30 * time.Second
)

// Inside adds to a chain of waiting what the runtime's goroutines show about the call that
// hangs: the lock that it waits for, and the request that holds it. Not for several goroutines
// at once.
type Inside struct {
	Reader Reader

	fault  time.Time // the begin of the present one
	read   time.Time // the last attempt
	report *Report   // of the present fault, nil for none
	made   time.Time
}

// Complete returns the chain of a symptom with what the goroutines show. It reads at most one
// dump each 30 s, for at most 2 s. A dump of another fault is not used.
func (s *Inside) Complete(ctx context.Context, c facts.Chain, symptom facts.Symptom, targets []Target) facts.Chain {
	if c.First().Kind != facts.KindCall || symptom.Suspected || time.Since(symptom.Called) < readAfter {
		return c
	}
	if !symptom.Since.Equal(s.fault) {
		s.fault = symptom.Since
		s.report = nil
	}
	if time.Since(s.read) >= readInterval {
		s.read = time.Now()
		s.readDumps(ctx, targets)
	}
	if s.report == nil {
		return c
	}
	return s.report.complete(c, s.made)
}

// readDumps reads the dumps of the runtime and the processes behind it until one shows a
// contended lock.
func (s *Inside) readDumps(ctx context.Context, targets []Target) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	s.report = nil
	for _, target := range targets {
		found, err := s.Reader.Read(ctx, target)
		if err != nil || found.Time.Before(s.fault) {
			continue
		}
		report, err := found.Report()
		if err != nil {
			continue
		}
		if s.report == nil || len(report.Locks) > 0 {
			s.report = report
			s.made = found.Time
		}
		if len(report.Locks) > 0 {
			return
		}
	}
}

// complete adds the wait of the call, and the holder of its lock, to a chain.
func (r *Report) complete(c facts.Chain, made time.Time) facts.Chain {
	method := cri.Method(c.First().Name)
	lock := r.lockOf(method)
	if lock == nil {
		return r.addWait(c, method)
	}
	c.Links = slices.Clone(c.Links)
	call := &c.Links[0]
	call.Evidence += fmt.Sprintf("; its goroutine waits for %s", lock.Name)
	if lock.Holder == nil {
		call.Evidence += ", whose holder is not proven"
		return c
	}
	if len(c.Links) >= facts.MaxLinks {
		return c
	}
	h := lock.Holder
	c.Links = slices.Insert(c.Links, 1, facts.Link{
		Kind: facts.KindCall, Name: h.name(), State: facts.LinkUnanswered,
		Since: made.Add(-seconds(h.WaitedSeconds)), Evidence: "holds " + lock.Name + "; " + h.Wait + h.duration(),
	})
	return c
}

// duration says how long the holder has waited, "" for less than a minute.
func (h *Holder) duration() string {
	waited := seconds(h.WaitedSeconds)
	if waited < time.Minute {
		return ""
	}
	return " for " + age(waited)
}

// lockOf returns the contended lock that a method waits for, nil for none. Without a method
// it is the one that most requests wait for.
func (r *Report) lockOf(method string) *Lock {
	for i := range r.Locks {
		l := &r.Locks[i]
		fromOutside := len(l.Requests) > 1 || l.Requests["internal"] == 0
		if l.Requests[method] > 0 || method == "" && fromOutside {
			return l
		}
	}
	return nil
}

// addWait adds to the call what its own goroutine waits for.
func (r *Report) addWait(c facts.Chain, method string) facts.Chain {
	i := slices.IndexFunc(r.Requests, func(q Request) bool { return q.Name == method })
	if method == "" || i < 0 {
		return c
	}
	c.Links = slices.Clone(c.Links)
	c.Links[0].Evidence += "; its goroutine " + r.Requests[i].Wait
	return c
}
