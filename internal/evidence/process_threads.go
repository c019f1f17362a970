package evidence

import (
	"slices"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// maxThreads bounds how many threads of the runtime are looked at.
	maxThreads = 2048
	// askedChannels is for how many threads in D it is asked where they wait,
	// keptChannels how many different places are named.
	askedChannels = 16
	keptChannels  = 3
)

// threadTimes are the times that each thread of a process had run, and waited
// for a CPU, at a moment. They are kept one by one: a thread that ends takes
// its times along, and the sum would go back.
type threadTimes struct {
	id    procID
	at    time.Time
	times map[int]schedstat
	spare map[int]schedstat // the map before that one, to be filled again
}

// look fills in what is said of the threads of the process id: their states,
// where those in D wait, and the times per second since the look before.
func (t *threadTimes) look(r *procReader, procfs string, id procID, v *health.Process) error {
	dir := pidPath(procfs, id.pid, "task")
	tids, err := numbers(dir, maxThreads)
	if err != nil {
		return err
	}
	if t.id != id {
		*t = threadTimes{id: id}
	}
	times := t.spare
	if times == nil {
		times = make(map[int]schedstat, len(tids))
	}
	clear(times)
	v.Threads = map[string]int{"R": 0, "S": 0, "D": 0, "T": 0, "Z": 0, "other": 0}
	var run, delay uint64
	looked := 0
	for _, tid := range tids {
		task := dir + "/" + strconv.Itoa(tid)
		b, err := r.read(task + "/stat")
		if err != nil {
			continue // it has just ended
		}
		s, err := parseStat(b)
		if err != nil {
			return err
		}
		looked++
		v.Threads[threadState(s.state)]++
		if s.state == 'D' && v.Threads["D"] <= askedChannels {
			if b, err := r.read(task + "/wchan"); err == nil && len(b) > 0 && string(b) != "0" {
				v.WaitChannels = append(v.WaitChannels, string(b))
			}
		}
		if b, err := r.read(task + "/schedstat"); err == nil {
			if now, ok := parseSchedstat(b); ok {
				times[tid] = now
				before := t.times[tid] // zero of a new one: all its time is since then
				run += since(now.run, before.run)
				delay += since(now.delay, before.delay)
			}
		}
	}
	if looked == 0 {
		return errNoProcess
	}
	slices.Sort(v.WaitChannels)
	v.WaitChannels = slices.Compact(v.WaitChannels)
	v.WaitChannels = v.WaitChannels[:min(len(v.WaitChannels), keptChannels)]
	if !t.at.IsZero() && v.At.After(t.at) {
		seconds := v.At.Sub(t.at).Seconds()
		v.CPU = time.Duration(run).Seconds() / seconds
		v.Delay = time.Duration(delay).Seconds() / seconds
	}
	t.at, t.times, t.spare = v.At, times, t.times
	return nil
}

// since is how far a counter has come; 0 for one that begins again.
func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}
