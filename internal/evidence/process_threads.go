package evidence

import (
	"cmp"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	maxThreads = 2048            // of a process are read
	maxBlocked = 16              // are reported
	stuckAfter = 5 * time.Second // without a run the wait channel of a thread that sleeps is read
	// fifoAfter is for how long the runtime may wait until somebody reads a FIFO that it writes to: the
	// input of a container from its creation to its start, on a busy node too. It opens the output of one
	// that is created and not started for as long as it is so.
	fifoAfter = 30 * time.Second
	mostShare = 0.75 // of the samples must find a thread in D for mostly
)

// thread is a thread at the moment of a sample.
type thread struct {
	proc.Process
	// Schedstat has no Slices where the kernel does not count; its Delay includes the present
	// wait for a CPU.
	proc.Schedstat
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
	switch {
	case float64(m.inD) >= mostShare*float64(m.sampled) && !m.first.IsZero():
		return m
	case state == 'D':
		return mostly{first: at, inD: 1, sampled: 1}
	}
	return mostly{}
}

// threads are the threads of a process at the last sample.
type threads struct {
	id   proc.ID
	byID map[int]thread
	// sums are those of the last two samples: the kernel counts a wait of seconds for a CPU
	// when the thread gets one.
	sums []threadSum
}

// threadSum are the times of all threads, ended ones too, since the first sample: the sum of
// those that live would go back when one ends.
type threadSum struct {
	proc.Schedstat
	at    time.Time
	blkio uint64
}

// sample fills in the states of the threads of a process, which of them are blocked and
// where, and their times per second.
func (t *threads) sample(procfs string, id proc.ID, v *facts.Process) error {
	dir := proc.Path(procfs, id.PID, "task")
	tids, _ := proc.Numbers(dir, maxThreads) // of nothing there is none
	if t.id != id {
		*t = threads{id: id}
	}
	byID, sum := make(map[int]thread, len(tids)), threadSum{}
	if n := len(t.sums); n > 0 {
		sum = t.sums[n-1]
	}
	sum.at, v.Threads = v.At, map[string]int{}
	for _, tid := range tids {
		before := t.byID[tid] // zero of a new one: all its time is since then
		now, err := readThread(dir, tid, before, v.At)
		if err != nil {
			continue // it has just ended, or is hidden, as the others are then
		}
		byID[tid] = now
		v.Threads[proc.ThreadState(now.State)]++
		sum.Run += rise(now.Run, before.Run)
		sum.Delay += rise(now.Delay, before.Delay)
		sum.Slices += rise(now.Slices, before.Slices)
		sum.blkio += rise(now.BlockIO, before.BlockIO)
	}
	if len(byID) == 0 {
		return proc.ErrGone
	}
	blocked(dir, byID, v)
	if n := len(t.sums); n > 0 && sum.at.After(t.sums[n-1].at) {
		first, last := t.sums[0], t.sums[n-1]
		v.CPU = time.Duration(sum.Run-last.Run).Seconds() / sum.at.Sub(last.at).Seconds()
		v.Delay = time.Duration(sum.Delay-first.Delay).Seconds() / sum.at.Sub(first.at).Seconds()
		v.DelayPerRun = time.Duration((sum.Delay - first.Delay) / max(sum.Slices-first.Slices, 1))
		v.BlockIODelay = sum.blkio > first.blkio
	}
	t.byID, t.sums = byID, append(t.sums[max(0, len(t.sums)-1):], sum)
	return nil
}

// rise is 0 for a counter that began again.
func rise(now, before uint64) uint64 { return max(now, before) - before }

func readThread(dir string, tid int, before thread, at time.Time) (now thread, err error) {
	// Before the state: a thread that runs in between has run at the next sample, too.
	now.Schedstat, now.since = proc.ReadSchedstat(proc.Path(dir, tid, "")), at
	if now.Process, err = proc.ReadStat(dir, tid); err != nil {
		return now, err
	}
	if before.Start == now.Start {
		now.mostly = before.mostly
		ran := now.Slices == 0 || now.Slices != before.Slices || now.Run != before.Run
		if before.State == now.State && !ran {
			now.since, now.idle = before.since, before.idle
		}
	}
	now.mostly = now.next(now.State, at)
	if now.State == 'R' {
		now.Delay += uint64(at.Sub(now.since)) //nolint:gosec // not negative
	}
	return now, nil
}

// blocked reports the threads in D, and those that sleep without waiting for work, the
// longest first, and where they wait.
func blocked(dir string, byID map[int]thread, v *facts.Process) {
	for tid, s := range byID {
		asleep := s.State == 'S' && !s.idle && v.At.Sub(s.since) >= stuckAfter
		if s.State != 'D' && !asleep {
			continue
		}
		b := facts.BlockedThread{TID: tid, Since: s.since, Asleep: asleep}
		call := readPlace(dir, &b)
		opensFIFO := asleep && proc.OpensFIFO(b.Channel)
		s.idle = asleep && (call.IsIdle(b.Channel) || opensFIFO && call.OpensToRead())
		if s.idle {
			byID[tid] = s
			continue
		}
		if opensFIFO && v.At.Sub(s.since) < fifoAfter {
			continue
		}
		if !asleep && s.first.Before(s.since) {
			b.MostlySince = s.first
		}
		v.Blocked = append(v.Blocked, b)
	}
	slices.SortFunc(v.Blocked, func(a, b facts.BlockedThread) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.TID, b.TID))
	})
	v.Blocked = v.Blocked[:min(len(v.Blocked), maxBlocked)]
}

// idles fills in where a thread waits in the kernel, and reports whether that is for
// work; true where it cannot be read.
func idles(dir string, b *facts.BlockedThread) bool {
	call := readPlace(dir, b)
	return call.IsIdle(b.Channel)
}

// readPlace fills in where a thread waits in the kernel, and returns its system call.
func readPlace(dir string, b *facts.BlockedThread) proc.Syscall {
	channel, _ := proc.ReadFile(proc.Path(dir, b.TID, "wchan")) // without a privilege there is none
	b.Channel = string(channel)
	if b.Channel == "0" {
		b.Channel = ""
	}
	line, _ := proc.ReadFile(proc.Path(dir, b.TID, "syscall")) // likewise
	call := proc.ParseSyscall(line)
	b.Syscall = call.File
	return call
}
