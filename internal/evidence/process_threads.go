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
	// delay is how long it has waited for a CPU, in nanoseconds: what the kernel
	// counts when the thread gets one, and the wait since then.
	delay uint64
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
		now.since = before.since
	}
	now.delay = now.sched.Delay
	if now.state == 'R' {
		now.delay += uint64(at.Sub(now.since))
	}
	return now, nil
}

// blocked reports the threads in D, longest first, and where they wait.
func blocked(r *proc.Reader, dir string, threads map[int]threadSample, v *health.Process) {
	for tid, s := range threads {
		if s.state == 'D' {
			v.Blocked = append(v.Blocked, health.BlockedThread{TID: tid, Since: s.since})
		}
	}
	slices.SortFunc(v.Blocked, func(a, b health.BlockedThread) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.TID, b.TID))
	})
	v.Blocked = v.Blocked[:min(len(v.Blocked), maxBlocked)]
	for i := range v.Blocked {
		b := &v.Blocked[i]
		task := dir + "/" + strconv.Itoa(b.TID)
		if channel, err := r.Read(task + "/wchan"); err == nil && len(channel) > 0 && string(channel) != "0" {
			b.Channel = string(channel)
			v.WaitChannels = append(v.WaitChannels, b.Channel)
		}
		if line, err := r.Read(task + "/syscall"); err == nil {
			b.Syscall = proc.FileSyscall(line)
		}
	}
	slices.Sort(v.WaitChannels)
	v.WaitChannels = slices.Compact(v.WaitChannels)
}

// since is how far a counter has come; 0 for one that begins again.
func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}
