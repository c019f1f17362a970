package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/wchan"
)

// waitKinds are the kinds of waits of threads in D that have reasons, by the more precise kind; any other one is Other.
var waitKinds = map[wchan.Kind]wchan.Kind{
	wchan.Unread: wchan.Unread, wchan.Freezer: wchan.Freezer, wchan.Memory: wchan.Memory, wchan.Reclaim: wchan.Memory,
	wchan.Exit: wchan.Exit, wchan.Exec: wchan.Exit, wchan.Lock: wchan.Lock,
	wchan.Storage: wchan.Storage, wchan.Agent: wchan.Storage, wchan.Thaw: wchan.Storage,
}

// waitOf classifies a thread in D: by its system call where many subsystems share the kernel's lock.
func waitOf(t *facts.BlockedThread) wchan.Kind {
	known, ok := waitKinds[wchan.Of(t.Channel).Kind]
	switch {
	case ok:
		return known
	case t.Syscall != "" && !t.Asleep: // a name is known only of calls on files and mounts
		return wchan.Storage
	}
	return wchan.Other
}

// blockedIn returns the threads that have been in D for a time, and wait for that; longest first.
func (s *signals) blockedIn(what wchan.Kind, limit time.Duration) (out []facts.BlockedThread) {
	for _, t := range s.process.Blocked {
		if s.process.Alive && waitOf(&t) == what && (s.age(t.Since) >= limit || s.mostlyFor(&t) >= whileServing) {
			out = append(out, t)
		}
	}
	return out
}

// mostlyFor is how long a thread has been in D in most samples, 0 for one that has not run.
func (s *signals) mostlyFor(t *facts.BlockedThread) time.Duration {
	if t.MostlySince.IsZero() {
		return 0
	}
	return s.age(t.MostlySince)
}

// blockedText states which threads are in D, for how long and in which channel; "" for none.
func (s *signals) blockedText(threads []facts.BlockedThread) string {
	if len(threads) == 0 {
		return ""
	}
	first := threads[0]
	who := fmt.Sprintf("thread %d", first.TID)
	if n := len(threads); n > 1 {
		who = fmt.Sprintf("%d threads, thread %d longest,", n, first.TID)
	}
	channel := channelText(&first)
	mostly := s.mostlyFor(&first)
	switch {
	case first.Asleep:
		return fmt.Sprintf("%s asleep for %s without having run, %s", who, s.ago(first.Since), channel)
	case mostly > 0:
		return fmt.Sprintf("%s in D for most of the last %s, %s", who, facts.Seconds(mostly), channel)
	}
	return fmt.Sprintf("%s in D for %s without having run, %s", who, s.ago(first.Since), channel)
}

// channelText states in which channel and system call a thread waits.
func channelText(t *facts.BlockedThread) string {
	switch {
	case t.Channel == "":
		return "wait channel not readable"
	case t.Syscall == "":
		return "waiting in " + t.Channel
	}
	return "waiting in " + t.Channel + " (" + t.Syscall + ")"
}

// freezerHoldsThreads reports whether a freezer of v1 may hold the threads in D, or did when they were read.
func (s *signals) freezerHoldsThreads() bool {
	inFreezer := func(t facts.BlockedThread) bool { return t.Channel == wchan.Refrigerator }
	return slices.ContainsFunc(s.process.Blocked, inFreezer) || s.cgroup.Frozen ||
		s.process.At.Sub(s.cgroup.FrozenAt) <= frozenUnseen
}
