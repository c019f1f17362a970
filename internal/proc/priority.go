package proc

import (
	"bytes"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// The fields behind the name in /proc/PID/stat (proc(5)).
const (
	statNice   = 16
	statPolicy = 38
)

// Priority is how a process stands in line for a CPU.
type Priority struct {
	Nice   int  // from -20, the first in line, to 19
	IsIdle bool // it runs by SCHED_IDLE, only where nothing else would
}

// ReadPriority returns the priority of a process's first thread.
func ReadPriority(procfs string, pid int) (Priority, error) {
	b, err := ReadFile(Path(procfs, pid, "stat"))
	if err != nil {
		return Priority{}, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= statPolicy {
		return Priority{}, fmt.Errorf("%w: it has %d fields behind the name", errStat, len(fields))
	}
	nice, err := strconv.Atoi(string(fields[statNice]))
	if err != nil {
		return Priority{}, err
	}
	return Priority{Nice: nice, IsIdle: string(fields[statPolicy]) == strconv.Itoa(unix.SCHED_IDLE)}, nil
}
