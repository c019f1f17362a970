package proc

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxProcFile bounds one file of /proc or of a cgroup, in bytes.
const maxProcFile = 1 << 20

// Path returns the path of a file of a process.
func Path(procfs string, pid int, name string) string {
	return procfs + "/" + strconv.Itoa(pid) + "/" + name
}

// readRecord reads a file of /proc that is one record into b, by one read(2).
func readRecord(path string, b []byte) ([]byte, error) {
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return nil, failed(path, err)
	}
	defer func() { _ = unix.Close(fd) }() // only read from
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil, failed(path, err)
	}
	return b[:n], nil
}

// ReadFile reads a file of /proc or of a cgroup.
func ReadFile(path ...string) ([]byte, error) {
	return Read(filepath.Join(path...), maxProcFile)
}

// Gone reports whether an error says that a process, or its file, is gone.
func Gone(err error) bool { return OutcomeOf(err) == Absent }

// value returns the rest after "name:" on a line of its own, as in /proc/PID/status.
func value(b []byte, name string) string {
	_, rest, _ := strings.Cut("\n"+string(b), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// number is value for a number of a base, from 0; otherwise is returned where there is none.
func number(b []byte, name string, base, otherwise int) int {
	if n, err := strconv.ParseInt(value(b, name), base, 32); err == nil && n >= 0 {
		return int(n)
	}
	return otherwise
}

// Uptime is the time since boot, in the clock of the start times of /proc/PID/stat.
func Uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // fails on no kernel that Go runs on
	return time.Duration(t.Nano())
}

// StartedAt converts a start time of /proc/PID/stat: now is the wall clock's, up the time
// since boot. It goes by the age, so the result keeps now's monotonic reading, and a
// process that was started before the clock was set right is as old as it is.
func StartedAt(now time.Time, up time.Duration, ticks uint64) time.Time {
	return now.Add(-max(0, up-TicksToDuration(ticks)))
}

// ClockTicks is USER_HZ, the unit of the times in /proc/PID/stat: 100 on every platform
// that Go runs on, for any HZ of the kernel (include/uapi/asm-generic/param.h).
const ClockTicks = 100

// TicksToDuration converts clock ticks.
func TicksToDuration(ticks uint64) time.Duration {
	const tick = time.Second / ClockTicks
	return time.Duration(min(ticks, uint64(math.MaxInt64/tick))) * tick
}

// ID is one process: a number alone may be another one a moment later.
type ID struct {
	PID   int
	Start uint64 // clock ticks since boot
}

// Process holds the fields of /proc/PID/stat that plegd needs, of a process or of a thread.
// procfs parses all of it by fmt.Fscan: too slow for every process and thread every second.
type Process struct {
	PID, PPID int
	Comm      string
	State     byte
	Threads   int
	Start     uint64 // clock ticks since boot
	Exiting   bool   // it has begun to end (PF_EXITING)
}

// ID returns the identity of the process.
func (p Process) ID() ID { return ID{p.PID, p.Start} }

// Fields of /proc/PID/stat, counted from the state, field 3 of proc(5).
const (
	statState   = 0
	statPPID    = 1
	statFlags   = 6
	statThreads = 17
	statStart   = 19
)

// exiting is PF_EXITING of linux/sched.h.
const exiting = 0x4

var blank = []byte(" ")

var errStat = errors.New("not the whole stat file of a process")

// ParseStat decodes "pid (comm) state ppid ...". The name may hold anything, blanks and
// brackets included: it ends at the last bracket.
func ParseStat(b []byte) (Process, error) {
	opening := bytes.IndexByte(b, '(')
	closing := bytes.LastIndexByte(b, ')')
	if opening < 2 || closing < opening {
		return Process{}, errStat
	}
	pid, err := parseUint(b[:opening-1], 31)
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: int(pid), Comm: string(b[opening+1 : closing])} //nolint:gosec // 31 bits
	if err := p.parseFields(b[closing+1:]); err != nil {
		return Process{}, err
	}
	return p, nil
}

// parseFields decodes the fields behind the name, of which a blank is before each. It makes no list of them, and b stays
// on the caller's stack: it is called for each process and thread.
func (p *Process) parseFields(b []byte) error {
	_, rest, found := bytes.Cut(b, blank)
	for n := 0; n <= statStart; n++ {
		if !found {
			return errStat
		}
		var field []byte
		field, rest, found = bytes.Cut(rest, blank)
		if err := p.setField(n, field); err != nil {
			return err
		}
	}
	return nil
}

// setField sets what one field of /proc/PID/stat shows.
func (p *Process) setField(n int, field []byte) error {
	var value uint64
	var err error
	switch n {
	case statState:
		if len(field) != 1 {
			return errStat
		}
		p.State = field[0]
	case statPPID:
		value, err = parseUint(field, 31)
		p.PPID = int(value) //nolint:gosec // 31 bits
	case statFlags:
		value, _ = parseUint(field, 64) // without them it has not begun to end
		p.Exiting = value&exiting != 0
	case statThreads:
		value, err = parseUint(field, 31)
		p.Threads = int(value) //nolint:gosec // 31 bits
	case statStart:
		p.Start, err = parseUint(field, 64)
	}
	return err
}

func parseUint(b []byte, bits int) (uint64, error) { return strconv.ParseUint(string(b), 10, bits) }

// ReadStat reads /proc/PID/stat.
func ReadStat(procfs string, pid int) (Process, error) {
	b, err := readRecord(Path(procfs, pid, "stat"), make([]byte, 1<<10)) // about 350 bytes
	if err != nil {
		return Process{}, err
	}
	return ParseStat(b)
}

// Dead reports whether only the entry of the process is left. A main thread that has
// exited while other threads run, as in a killed runtime that the kernel holds in D, is
// a zombie too, and the process is not dead.
func (p Process) Dead() bool { return p.State == 'X' || p.State == 'Z' && p.Threads <= 1 }

// ThreadState is a state of /proc/PID/stat as facts.Process counts it: R, S, D,
// T (stopped, or held by a tracer), Z, other.
func ThreadState(s byte) string {
	switch s {
	case 'R', 'S', 'D', 'T', 'Z':
		return string(s)
	case 't':
		return "T"
	case 'I': // an idle thread of the kernel's
		return "S"
	}
	return "other"
}

// TracerPID returns the process that traces one, by its /proc/PID/status, 0 for none.
func TracerPID(procfs string, pid int) (int, error) {
	b, err := ReadFile(Path(procfs, pid, "status"))
	return number(b, "TracerPid", 10, 0), err
}

// ThreadGroup returns the process of a thread, 0 if it has ended.
func ThreadGroup(procfs string, tid int) int {
	b, err := ReadFile(Path(procfs, tid, "status"))
	if err != nil {
		return 0
	}
	return number(b, "Tgid", 10, 0)
}

// KillPending reports whether a process has a SIGKILL that it has not come to.
func KillPending(procfs string, pid int) (bool, error) {
	b, err := ReadFile(Path(procfs, pid, "status"))
	const kill = 1 << (unix.SIGKILL - 1)
	for _, name := range []string{"SigPnd", "ShdPnd"} {
		pending, invalid := strconv.ParseUint(value(b, name), 16, 64)
		if invalid == nil && pending&kill != 0 {
			return true, err
		}
	}
	return false, err
}

// Schedstat is a /proc/PID/schedstat, or a thread's: nanoseconds on a CPU,
// nanoseconds runnable without one, and how often it was put on one.
type Schedstat struct{ Run, Delay, Slices uint64 }

// ReadSchedstat reads the schedstat of a process or thread, by its directory: all zero where
// the kernel does not count.
func ReadSchedstat(dir string) Schedstat {
	b, _ := readRecord(dir+"/schedstat", make([]byte, 128)) // three numbers of 64 bits
	var numbers [3]uint64
	n := 0
	for field := range bytes.FieldsSeq(b) {
		value, err := parseUint(field, 64)
		if err != nil || n == len(numbers) {
			return Schedstat{}
		}
		numbers[n] = value
		n++
	}
	if n < len(numbers) {
		return Schedstat{}
	}
	return Schedstat{Run: numbers[0], Delay: numbers[1], Slices: numbers[2]}
}
