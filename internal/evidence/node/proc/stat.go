package proc

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Uptime is the time since boot, in the clock of the start times of
// /proc/PID/stat.
func Uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0 // never on a kernel that Go runs on
	}
	return time.Duration(t.Nano())
}

// StartedAt converts a start time of /proc/PID/stat: now is the wall clock's,
// up the time since boot. The age, and not btime of /proc/stat, is what counts:
// so the result keeps now's monotonic reading, and a process that was started
// before the clock was set right is as old as it is.
func StartedAt(now time.Time, up time.Duration, ticks uint64) time.Time {
	return now.Add(-max(0, up-TicksToDuration(ticks)))
}

// ClockTicks is USER_HZ, the unit of the times in /proc/PID/stat: 100 on every
// platform that Go runs on, whatever the kernel's own HZ (it is what
// sysconf(_SC_CLK_TCK) returns; include/uapi/asm-generic/param.h).
const ClockTicks = 100

// maxTicks is where a number of ticks no longer fits a Duration: some 290 years.
const maxTicks = uint64(math.MaxInt64 / (time.Second / ClockTicks))

// TicksToDuration converts clock ticks.
func TicksToDuration(ticks uint64) time.Duration {
	return time.Duration(min(ticks, maxTicks)) * (time.Second / ClockTicks)
}

// ID is one process: a number alone may be another one a moment later.
type ID struct {
	PID   int
	Start uint64 // clock ticks since boot
}

// Stat is what is used of /proc/PID/stat, and of a thread's stat. procfs
// parses all of it, by fmt.Fscan: too slow for every thread of a runtime every
// second.
type Stat struct {
	PID, PPID int
	Comm      string
	State     byte
	Threads   int
	Start     uint64 // clock ticks since boot
	BlockIO   uint64 // clock ticks in block I/O; 0 without delay accounting
}

// ID returns the identity of the process.
func (s *Stat) ID() ID { return ID{s.PID, s.Start} }

var errNotProcStat = errors.New("not the stat file of a process")

// What is used of the fields, counted from the state, field 3 of proc(5).
const (
	statState   = 0
	statPPID    = 1
	statThreads = 17
	statStart   = 19
	statBlkIO   = 39
)

// ParseStat decodes "pid (comm) state ppid ...". The name may hold anything,
// blanks and brackets included: it ends at the last bracket.
func ParseStat(b []byte) (Stat, error) {
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 2 || to < from {
		return Stat{}, errNotProcStat
	}
	var (
		s   = Stat{Comm: string(b[from+1 : to])}
		err error
	)
	if s.PID, err = strconv.Atoi(string(b[:from-1])); err != nil || s.PID <= 0 || b[from-1] != ' ' {
		return Stat{}, errNotProcStat
	}
	rest := bytes.TrimRight(b[to+1:], "\n")
	for i := statState; i <= statStart; i++ {
		if len(rest) < 2 || rest[0] != ' ' {
			return Stat{}, errNotProcStat
		}
		field := rest[1:]
		if end := bytes.IndexByte(field, ' '); end >= 0 {
			field = field[:end]
		}
		rest = rest[1+len(field):]
		var n uint64
		switch i {
		case statState:
			if len(field) != 1 || field[0] < 'A' || field[0] > 'z' { // a letter (proc(5))
				return Stat{}, errNotProcStat
			}
			s.State = field[0]
			continue
		case statPPID, statThreads, statStart:
			if n, err = strconv.ParseUint(string(field), 10, 63); err != nil {
				return Stat{}, errNotProcStat
			}
		}
		switch i {
		case statPPID:
			s.PPID = int(n)
		case statThreads:
			s.Threads = int(n)
		case statStart:
			s.Start = n
		}
	}
	s.BlockIO = blockIOTicks(rest)
	return s, nil
}

// blockIOTicks returns delayacct_blkio_ticks of the fields that follow the start
// time in a stat file; 0 where there is none.
func blockIOTicks(rest []byte) uint64 {
	for range statBlkIO - statStart - 1 {
		i := bytes.IndexByte(rest[min(1, len(rest)):], ' ')
		if i < 0 {
			return 0
		}
		rest = rest[1+i:]
	}
	field, _, _ := bytes.Cut(bytes.TrimPrefix(rest, []byte(" ")), []byte(" "))
	n, err := strconv.ParseUint(string(field), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Dead reports whether nothing of the process is left but its entry. A first
// thread that has ended while others go on, as of a killed runtime that the
// kernel holds in D, is a zombie too, and the process is not dead.
func (s *Stat) Dead() bool {
	return s.State == 'X' || s.State == 'Z' && s.Threads <= 1
}

// Stat reads /proc/PID/stat.
func (r *Reader) Stat(procfs string, pid int) (Stat, error) {
	b, err := r.ReadRecord(procfs + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(b)
}

// ThreadState is a state of /proc/PID/stat as health.Process counts it: R, S, D,
// T (stopped, or held by a tracer), Z, other.
func ThreadState(s byte) string {
	switch s {
	case 'R':
		return "R"
	case 'S', 'I': // I: an idle thread of the kernel's
		return "S"
	case 'D':
		return "D"
	case 'T', 't':
		return "T"
	case 'Z':
		return "Z"
	default:
		return "other"
	}
}

// ReadStat reads /proc/PID/stat of a process that is looked at now and then.
func ReadStat(procfs string, pid int) (Stat, error) {
	var r Reader
	return r.Stat(procfs, pid)
}
