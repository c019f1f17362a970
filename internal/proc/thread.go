package proc

import "strconv"

const (
	maxSyscall = 1 << 10 // bytes of a /proc/PID/syscall
	maxWchan   = 1 << 10
)

// Thread is one thread at the moment of a sample.
type Thread struct {
	Process
	// Schedstat has no Slices where the kernel does not count.
	Schedstat
}

// Threads samples at most limit threads of a process. Those that end meanwhile are left out. The
// error is TooLarge where there are more, beside those that were read, and Absent where the
// process has ended.
func Threads(procfs string, pid, limit int) (out []Thread, err error) {
	dir := Path(procfs, pid, "task")
	err = eachThread(dir, limit, func(tid int) error {
		// Before the state: a thread that runs in between has run at the next sample, too.
		times := ReadSchedstat(dir + "/" + strconv.Itoa(tid))
		p, err := ReadStat(dir, tid)
		if err == nil {
			out = append(out, Thread{Process: p, Schedstat: times})
		}
		return err
	})
	return out, err
}

// ThreadStates is Threads without the times.
func ThreadStates(procfs string, pid, limit int) (out []Process, err error) {
	dir := Path(procfs, pid, "task")
	err = eachThread(dir, limit, func(tid int) error {
		p, err := ReadStat(dir, tid)
		if err == nil {
			out = append(out, p)
		}
		return err
	})
	return out, err
}

// eachThread reads the threads of a directory. The error is as that of Threads.
func eachThread(dir string, limit int, read func(tid int) error) error {
	tids, unread := Numbers(dir, limit)
	isAny := false
	for _, tid := range tids {
		isAny = read(tid) == nil || isAny
	}
	if !isAny && unread == nil {
		unread = ErrGone
	}
	return unread
}

// Place is where a thread waits in the kernel.
type Place struct {
	Channel string // the kernel function, "" where it is not known
	Call    Syscall
	Unread  error // why the system call is not known, nil where it is
}

// Place reads where a thread waits. The kernel shows a channel of "0" where that is denied, and
// the system call has the outcome.
func (t *Table) Place(pid, tid int) Place {
	dir := Path(t.ProcFS, pid, "task")
	place := Place{Channel: Channel(t.ProcFS, pid, tid)}
	line, err := t.ReadSlow(Path(dir, tid, "syscall"), maxSyscall)
	place.Call = ParseSyscall(line)
	place.Unread = err
	return place
}

// Channel returns the kernel function in which a thread waits, "" where it is not known.
func Channel(procfs string, pid, tid int) string {
	channel, _ := Read(Path(Path(procfs, pid, "task"), tid, "wchan"), maxWchan) // of one that has ended there is none
	if string(channel) == "0" {
		return ""
	}
	return string(channel)
}

// IsIdle reports whether the thread waits for work; true where nothing is known.
func (p Place) IsIdle() bool { return p.Call.IsIdle(p.Channel) }
