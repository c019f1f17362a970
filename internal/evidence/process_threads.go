package evidence

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// maxThreads bounds how many threads of the runtime are looked at.
	maxThreads = 2048
	// maxBlocked is how many threads in D are reported.
	maxBlocked = 16
	// timesWindow is over how long the waits for a CPU are added up: a thread that
	// waits for seconds shows nothing in the moment that it gets one.
	timesWindow = 2 * time.Second
	// everyThread is how often the state of a thread is read that has not run since the
	// last look, while something may be wrong. While all is well it is not: of itself a
	// thread changes its state only by running. That it waits for a CPU, and with Linux
	// 6.1 that its cgroup was frozen, is done to it.
	everyThread = 900 * time.Millisecond
)

// threadSample is a thread at the moment of a sample.
type threadSample struct {
	start uint64 // clock ticks since boot: the same number may be another thread
	state byte
	sched proc.Schedstat
	blkio uint64
	// runs counts how often it was put on a CPU; known is false where the kernel
	// does not count that.
	runs  uint64
	known bool
	// since is the time of the first of the samples in a row that found it in
	// this state and without having run.
	since time.Time
	mostly
	// idle is true of a thread that waits for work and has not run since that was read.
	idle bool
	// delay is how long it has waited for a CPU, in nanoseconds: what the kernel
	// counts when the thread gets one, and the wait since then.
	delay uint64
}

// mostly counts the samples since a thread was first found in D, and those in which it
// was: a disk that is throttled lets it run now and then.
type mostly struct {
	first       time.Time
	inD, looked int
}

// mostShare is the share of the samples that must find a thread in D.
const mostShare = 0.75

// next returns the counts with another sample.
func (m mostly) next(state byte, at time.Time) mostly {
	m.looked++
	if state == 'D' {
		m.inD++
	}
	switch {
	case float64(m.inD) >= mostShare*float64(m.looked) && !m.first.IsZero():
		return m
	case state == 'D':
		return mostly{first: at, inD: 1, looked: 1}
	}
	return mostly{}
}

// threadTimes are the threads of a process at a moment. Their times are kept one
// by one: a thread that ends takes its times along, and the sum would go back.
type threadTimes struct {
	id      proc.ID
	threads map[int]threadSample
	spare   map[int]threadSample // the map before that one, to be filled again
	whole   time.Time            // of the last look at the states of all threads
	// marks are the sums at the last samples, the oldest first: one is as old as
	// timesWindow, or all are younger.
	marks []timesMark
}

// timesMark are the times of all threads, ended ones too, since the first sample.
type timesMark struct {
	at                       time.Time
	run, delay, waits, blkio uint64
}

// look fills in what is said of the threads of the process id: their states,
// which of them are blocked and where, and the times per second since the look
// before.
func (t *threadTimes) look(r *proc.Reader, procfs string, id proc.ID, calm bool, v *health.Process) error {
	dir := proc.Path(procfs, id.PID, "task")
	tids, err := proc.Numbers(dir, maxThreads)
	if err != nil {
		return err
	}
	if t.id != id {
		*t = threadTimes{id: id}
	}
	ran := calm || v.At.Sub(t.whole) < everyThread // only those that have run
	if !ran {
		t.whole = v.At
	}
	threads := t.spare
	if threads == nil {
		threads = make(map[int]threadSample, len(tids))
	}
	clear(threads)
	v.Threads = map[string]int{"R": 0, "S": 0, "D": 0, "T": 0, "Z": 0, "other": 0}
	sum := timesMark{at: v.At}
	if n := len(t.marks); n > 0 {
		sum = t.marks[n-1]
		sum.at = v.At
	}
	for _, tid := range tids {
		now, err := t.sample(r, dir+"/"+strconv.Itoa(tid), tid, v.At, ran)
		if proc.Gone(err) {
			continue // it has just ended
		}
		if err != nil {
			return err
		}
		threads[tid] = now
		v.Threads[proc.ThreadState(now.state)]++
		before := t.threads[tid] // zero of a new one: all its time is since then
		sum.run += since(now.sched.Run, before.sched.Run)
		sum.delay += since(now.delay, before.delay)
		sum.waits += since(now.sched.Slices, before.sched.Slices)
		sum.blkio += since(now.blkio, before.blkio)
	}
	if len(threads) == 0 {
		return errNoProcess
	}
	blocked(r, dir, threads, v)
	t.perSecond(sum, v)
	t.threads, t.spare = threads, t.threads
	return nil
}

// perSecond works out the CPU time since the last sample, and the waits for a CPU
// since the mark that is as old as timesWindow, else since the oldest.
func (t *threadTimes) perSecond(sum timesMark, v *health.Process) {
	for len(t.marks) > 1 && (sum.at.Sub(t.marks[1].at) >= timesWindow || sum.at.Sub(t.marks[0].at) > 2*timesWindow) {
		t.marks = slices.Delete(t.marks, 0, 1)
	}
	if n := len(t.marks); n > 0 && sum.at.After(t.marks[n-1].at) {
		before, last := t.marks[0], t.marks[n-1]
		v.CPU = time.Duration(sum.run-last.run).Seconds() / sum.at.Sub(last.at).Seconds()
		v.Delay = time.Duration(sum.delay-before.delay).Seconds() / sum.at.Sub(before.at).Seconds()
		v.DelayPerRun = time.Duration((sum.delay - before.delay) / max(sum.waits-before.waits, 1))
		v.BlockIODelay = sum.blkio > before.blkio
	}
	t.marks = append(t.marks, sum)
}

// sample reads one thread; with ran only one that has run since the last look. An
// error that it is gone when it has just ended.
func (t *threadTimes) sample(r *proc.Reader, task string, tid int, at time.Time, ran bool) (threadSample, error) {
	before := t.threads[tid] // zero of a new one, of which it is not known that it has not run
	var now threadSample
	// Before the state: a thread that runs in between has run at the next look, too.
	if b, err := r.ReadRecord(task + "/schedstat"); err == nil {
		if now.sched, now.known = proc.ParseSchedstat(b); now.known {
			now.runs = now.sched.Slices
			now.known = now.runs > 0 // 0 where the kernel does not count
		}
	}
	if ran && now.known && before.known && now.sched == before.sched && before.state != 'R' {
		before.mostly = before.mostly.next(before.state, at)
		return before, nil
	}
	b, err := r.ReadRecord(task + "/stat")
	if err != nil {
		return threadSample{}, errNoProcess // ended, or not to be seen: the others say
	}
	s, err := proc.ParseStat(b)
	if err != nil {
		return threadSample{}, err
	}
	now.start, now.state, now.blkio, now.since = s.Start, s.State, s.BlockIO, at
	if !now.known && now.state == 'D' {
		if b, err := r.Read(task + "/status"); err == nil {
			now.runs, now.known = proc.ContextSwitches(b)
		}
	}
	if before.start == now.start && before.state == now.state && now.known && before.known && now.runs == before.runs && now.sched.Run == before.sched.Run {
		now.since, now.idle = before.since, before.idle
	}
	if before.start == now.start {
		now.mostly = before.mostly
	}
	now.mostly = now.mostly.next(now.state, at)
	now.delay = now.sched.Delay
	if now.state == 'R' {
		now.delay += uint64(at.Sub(now.since))
	}
	return now, nil
}

// stuckAfter is how long a sleeping thread must not have run for its wait channel to be
// read.
const stuckAfter = 5 * time.Second

// blocked reports the threads in D, and those that sleep without waiting for work,
// longest first, and where they wait.
func blocked(r *proc.Reader, dir string, threads map[int]threadSample, v *health.Process) {
	for tid, s := range threads {
		switch {
		case s.state == 'D':
			b := health.BlockedThread{TID: tid, Since: s.since}
			if s.first.Before(s.since) {
				b.MostlySince = s.first
			}
			v.Blocked = append(v.Blocked, b)
		case s.state == 'S' && !s.idle && v.At.Sub(s.since) >= stuckAfter:
			if b := asleep(r, dir, tid, s.since); b != nil {
				v.Blocked = append(v.Blocked, *b)
			} else {
				s.idle = true
				threads[tid] = s
			}
		}
	}
	slices.SortFunc(v.Blocked, func(a, b health.BlockedThread) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.TID, b.TID))
	})
	v.Blocked = v.Blocked[:min(len(v.Blocked), maxBlocked)]
	for i := range v.Blocked {
		b := &v.Blocked[i]
		where(r, dir, b)
		if b.Channel != "" {
			v.WaitChannels = append(v.WaitChannels, b.Channel)
		}
	}
	slices.Sort(v.WaitChannels)
	v.WaitChannels = slices.Compact(v.WaitChannels)
}

// asleep returns a thread that sleeps, nil where it waits for work or where that cannot
// be read.
func asleep(r *proc.Reader, dir string, tid int, since time.Time) *health.BlockedThread {
	b := &health.BlockedThread{TID: tid, Since: since, Asleep: true}
	call, inCall := where(r, dir, b)
	if proc.IdleChannel(b.Channel) || inCall && proc.IdleCall(call.Number) != "" {
		return nil
	}
	return b
}

// where reads where a thread waits in the kernel.
func where(r *proc.Reader, dir string, b *health.BlockedThread) (call proc.Syscall, inCall bool) {
	task := dir + "/" + strconv.Itoa(b.TID)
	if channel, err := r.Read(task + "/wchan"); err == nil && len(channel) > 0 && string(channel) != "0" {
		b.Channel = string(channel)
	}
	if line, err := r.Read(task + "/syscall"); err == nil {
		b.Syscall = proc.FileSyscall(line)
		call, inCall = proc.ParseSyscall(line)
	}
	return call, inCall
}

// since is how far a counter has come; 0 for one that begins again.
func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}
