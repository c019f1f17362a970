package evidence

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"
)

// clockTicks is USER_HZ, the unit of the times in /proc/PID/stat: 100 on every
// platform that Go runs on, whatever the kernel's own HZ (it is what
// sysconf(_SC_CLK_TCK) returns; include/uapi/asm-generic/param.h).
const clockTicks = 100

// maxTicks is where a number of ticks no longer fits a Duration: some 290 years.
const maxTicks = uint64(math.MaxInt64 / (time.Second / clockTicks))

func ticksToDuration(ticks uint64) time.Duration {
	return time.Duration(min(ticks, maxTicks)) * (time.Second / clockTicks)
}

// procID is one process: a number alone may be another one a moment later.
type procID struct {
	pid   int
	start uint64 // clock ticks since boot
}

// procStat is what is used of /proc/PID/stat, and of a thread's stat. procfs
// parses all of it, by fmt.Fscan: too slow for every thread of a runtime every
// second.
type procStat struct {
	pid, ppid int
	comm      string
	state     byte
	threads   int
	start     uint64 // clock ticks since boot
	blkio     uint64 // clock ticks in block I/O; 0 without delay accounting
}

func (s *procStat) id() procID { return procID{s.pid, s.start} }

var errNotProcStat = errors.New("not the stat file of a process")

// What is used of the fields, counted from the state, field 3 of proc(5).
const (
	statState   = 0
	statPPID    = 1
	statThreads = 17
	statStart   = 19
	statBlkIO   = 39
)

// parseStat decodes "pid (comm) state ppid ...". The name may hold anything,
// blanks and brackets included: it ends at the last bracket.
func parseStat(b []byte) (procStat, error) {
	from, to := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if from < 2 || to < from {
		return procStat{}, errNotProcStat
	}
	var (
		s   = procStat{comm: string(b[from+1 : to])}
		err error
	)
	if s.pid, err = strconv.Atoi(string(b[:from-1])); err != nil || s.pid <= 0 || b[from-1] != ' ' {
		return procStat{}, errNotProcStat
	}
	rest := bytes.TrimRight(b[to+1:], "\n")
	for i := statState; i <= statStart; i++ {
		if len(rest) < 2 || rest[0] != ' ' {
			return procStat{}, errNotProcStat
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
				return procStat{}, errNotProcStat
			}
			s.state = field[0]
			continue
		case statPPID, statThreads, statStart:
			if n, err = strconv.ParseUint(string(field), 10, 63); err != nil {
				return procStat{}, errNotProcStat
			}
		}
		switch i {
		case statPPID:
			s.ppid = int(n)
		case statThreads:
			s.threads = int(n)
		case statStart:
			s.start = n
		}
	}
	s.blkio = blockIOTicks(rest)
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

// dead tells whether nothing of the process is left but its entry. A first
// thread that has ended while others go on, as of a killed runtime that the
// kernel holds in D, is a zombie too, and the process is not dead.
func (s *procStat) dead() bool {
	return s.state == 'X' || s.state == 'Z' && s.threads <= 1
}

// stat reads /proc/PID/stat.
func (r *procReader) stat(procfs string, pid int) (procStat, error) {
	b, err := r.read(procfs + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

// threadState is a state of /proc/PID/stat as health.Process counts it: R, S, D,
// T (stopped, or held by a tracer), Z, other.
func threadState(s byte) string {
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
