package evidence

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

const (
	maxThreads = 2048            // of a process are read
	maxBlocked = 16              // are reported
	stuckAfter = 5 * time.Second // without a run the wait channel of a thread that sleeps is read
	// fifoAfter is for how long the runtime may wait until somebody reads a FIFO that it writes to: the
	// input of a container from its creation to its start, on a busy node too.
	fifoAfter  = 30 * time.Second
	mostShare  = 0.75 // of the samples must find a thread in D for mostly
	sumSamples = 2    // before the present one are kept
)

// thread is a thread at the moment of a sample.
type thread struct {
	proc.Thread // its Delay includes the present wait for a CPU
	mostly

	since time.Time // the first of the consecutive samples in this state without a run
	idle  bool      // it waits for work, and has not run since that was read
}

// mostly counts the samples since a thread was first found in D, and those in which it
// was: a disk that is throttled lets it run now and then.
type mostly struct {
	first        time.Time
	inD, sampled int
}

func (m mostly) next(state byte, at time.Time) mostly {
	m.sampled++
	if state == 'D' {
		m.inD++
	}
	if !m.first.IsZero() && float64(m.inD) >= mostShare*float64(m.sampled) {
		return m
	}
	if state == 'D' {
		return mostly{first: at, inD: 1, sampled: 1}
	}
	return mostly{}
}

// threads are the threads of a process at the last sample.
type threads struct {
	table *proc.Table
	id    proc.ID
	byID  map[int]thread
	// sums are those of the last two samples: the kernel counts a wait of seconds for a CPU
	// when the thread gets one.
	sums []threadSum
}

// threadSum are the times of all threads, ended ones too, since the first sample: the sum of
// those that live would decrease when one ends.
type threadSum struct {
	proc.Schedstat
	at time.Time
}

// add adds what a thread has used since the sample before.
func (s *threadSum) add(next, last thread) {
	s.Run += increase(next.Run, last.Run)
	s.Delay += increase(next.Delay, last.Delay)
	s.Slices += increase(next.Slices, last.Slices)
}

// increase is 0 for a counter that began again.
func increase(next, last uint64) uint64 { return max(next, last) - last }

// sample fills in the states of the threads of a process, which of them are blocked and where,
// and their times per second. The error is that the process has ended; what could not be read
// is noted in unread.
func (t *threads) sample(id proc.ID, v *facts.Process, unread proc.Unread) error {
	all, err := proc.Threads(t.table.ProcFS, id.PID, maxThreads)
	if len(all) == 0 {
		return err
	}
	if errors.Is(err, proc.TooLarge) {
		unread.Add("threads", err)
	}
	if t.id != id {
		*t = threads{table: t.table, id: id}
	}
	sum := threadSum{}
	if n := len(t.sums); n > 0 {
		sum = t.sums[n-1]
	}
	sum.at = v.At
	byID := make(map[int]thread, len(all))
	v.Threads = map[string]int{}
	for _, one := range all {
		last := t.byID[one.PID] // zero of a new one: all its time is since then
		next := nextThread(one, last, v.At)
		byID[one.PID] = next
		v.Threads[proc.ThreadState(one.State)]++
		sum.add(next, last)
	}
	opensOutputs := family.OpensOutputs(v.Comm)
	v.Blocked = blocked(byID, v.At, opensOutputs, func(tid int) proc.Place {
		place := t.table.Place(id.PID, tid)
		unread.Add("system calls", place.Unread)
		return place
	})
	t.rates(sum, v)
	t.byID = byID
	t.sums = append(t.sums[max(0, len(t.sums)-sumSamples+1):], sum)
	return nil
}

// rates fills in the times per second since the samples before.
func (t *threads) rates(sum threadSum, v *facts.Process) {
	n := len(t.sums)
	if n == 0 || !sum.at.After(t.sums[n-1].at) {
		return
	}
	last := t.sums[n-1]
	first := t.sums[0]
	if sum.at.Sub(first.at) > maxSampleAge {
		first = last
	}
	v.CPU = time.Duration(sum.Run-last.Run).Seconds() / sum.at.Sub(last.at).Seconds()
	v.Delay = time.Duration(sum.Delay-first.Delay).Seconds() / sum.at.Sub(first.at).Seconds()
	v.DelayPerRun = time.Duration((sum.Delay - first.Delay) / max(sum.Slices-first.Slices, 1))
}

// nextThread continues the history of a thread with a new sample.
func nextThread(sample proc.Thread, last thread, at time.Time) thread {
	next := thread{Thread: sample, since: at}
	if last.Start == sample.Start {
		next.mostly = last.mostly
		ran := sample.Slices == 0 || sample.Slices != last.Slices || sample.Run != last.Run
		if last.State == sample.State && !ran {
			next.since = last.since
			next.idle = last.idle
		}
	}
	next.mostly = next.next(sample.State, at)
	if sample.State == 'R' {
		next.Delay += uint64(at.Sub(next.since)) //nolint:gosec // not negative
	}
	return next
}

// blocked returns the threads in D, and those that sleep without waiting for work, the
// longest first, and where they wait. It remembers which of them wait for work. opensOutputs is true of
// a runtime that opens FIFOs to read for as long as nobody writes.
func blocked(byID map[int]thread, at time.Time, opensOutputs bool, placeOf func(tid int) proc.Place) []facts.BlockedThread {
	var out []facts.BlockedThread
	for tid, t := range byID {
		asleep := t.sleepsLong(at)
		if t.State != 'D' && !asleep {
			continue
		}
		place := placeOf(tid)
		t.idle = asleep && waitsForWork(place, opensOutputs)
		byID[tid] = t
		if t.idle || asleep && opensLately(place, at.Sub(t.since)) {
			continue
		}
		b := facts.BlockedThread{
			TID: tid, Since: t.since, Asleep: asleep, Channel: place.Channel, Syscall: place.Call.File,
		}
		if !asleep {
			b.MostlySince = t.mostlySince()
		}
		out = append(out, b)
	}
	slices.SortFunc(out, func(a, b facts.BlockedThread) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.TID, b.TID))
	})
	return out[:min(len(out), maxBlocked)]
}

// sleepsLong reports whether a thread has slept for long without a known reason.
func (t *thread) sleepsLong(at time.Time) bool {
	return t.State == 'S' && !t.idle && at.Sub(t.since) >= stuckAfter
}

// mostlySince is since when a thread has been in D in most samples; zero where that is not for
// longer than its present wait.
func (t *thread) mostlySince() time.Time {
	if t.first.Before(t.since) {
		return t.first
	}
	return time.Time{}
}

// waitsForWork reports whether a thread that sleeps waits for work: where it opens the outputs of containers, also
// for a writer of a FIFO.
func waitsForWork(place proc.Place, opensOutputs bool) bool {
	opensOutput := opensOutputs && wchan.Of(place.Channel).Kind == wchan.FIFO && place.Call.OpensToRead()
	return place.IsIdle() || opensOutput
}

// opensLately reports whether a thread has waited for the other end of a FIFO for no longer than is
// usual.
func opensLately(place proc.Place, waited time.Duration) bool {
	return wchan.Of(place.Channel).Kind == wchan.FIFO && waited < fifoAfter
}
