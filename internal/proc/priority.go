package proc

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The fields behind the name in /proc/PID/stat (proc(5)).
const (
	statUser        = 11 // its own time, and that of the children that it has reaped
	statKernel      = 12
	statChildUser   = 13
	statChildKernel = 14
	statNice        = 16
	statPolicy      = 38
)

// CPUTime returns for how long a process and the children that it has reaped have had a CPU.
func CPUTime(procfs string, pid int) (time.Duration, error) {
	fields, err := statFields(procfs, pid)
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, n := range []int{statUser, statKernel, statChildUser, statChildKernel} {
		ticks, err := parseUint(fields[n], 63)
		if err != nil {
			return 0, err
		}
		sum += ticks
	}
	return TicksToDuration(sum), nil
}

// statFields returns the fields behind the name, at least those up to the policy.
func statFields(procfs string, pid int) ([][]byte, error) {
	b, err := ReadFile(Path(procfs, pid, "stat"))
	if err != nil {
		return nil, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= statPolicy {
		return nil, fmt.Errorf("%w: it has %d fields behind the name", errStat, len(fields))
	}
	return fields, nil
}

// Priority is how a process stands in line for a CPU.
type Priority struct {
	Nice   int  // from -20, the first in line, to 19
	IsIdle bool // it runs by SCHED_IDLE, only where nothing else would
}

// ReadPriority returns the priority of a process's first thread.
func ReadPriority(procfs string, pid int) (Priority, error) {
	fields, err := statFields(procfs, pid)
	if err != nil {
		return Priority{}, err
	}
	nice, err := strconv.Atoi(string(fields[statNice]))
	if err != nil {
		return Priority{}, err
	}
	return Priority{Nice: nice, IsIdle: string(fields[statPolicy]) == strconv.Itoa(unix.SCHED_IDLE)}, nil
}
