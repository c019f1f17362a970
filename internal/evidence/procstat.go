package evidence

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTicks is USER_HZ, the unit of the times in /proc/PID/stat. It is 100 on
// every platform that Go runs on (include/asm-generic/param.h).
const clockTicks = 100

// maxProcFile bounds what is read of one file of /proc or of a cgroup.
const maxProcFile = 1 << 20

// readProc reads a file of /proc or of a cgroup, at most maxProcFile bytes of it.
func readProc(path ...string) ([]byte, error) {
	return readFile(filepath.Join(path...), maxProcFile)
}

// procStat is what is used of /proc/PID/stat, or of a thread's.
type procStat struct {
	pid, ppid int
	comm      string
	state     byte
	start     uint64 // clock ticks since boot
}

var errStat = errors.New("this is no line of /proc/PID/stat")

// parseStat parses a stat line. A name may hold anything, spaces and
// parentheses included: it ends at the last ")".
func parseStat(line []byte) (procStat, error) {
	open, end := bytes.IndexByte(line, '('), bytes.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return procStat{}, errStat
	}
	fields := strings.Fields(string(line[end+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return procStat{}, errStat
	}
	s := procStat{comm: string(line[open+1 : end]), state: fields[0][0]}
	var errs [3]error
	s.pid, errs[0] = strconv.Atoi(strings.TrimSpace(string(line[:open])))
	s.ppid, errs[1] = strconv.Atoi(fields[1])
	s.start, errs[2] = strconv.ParseUint(fields[19], 10, 64) // field 22 of proc(5)
	if errors.Join(errs[:]...) != nil || s.pid <= 0 || s.ppid < 0 {
		return procStat{}, errStat
	}
	return s, nil
}

func readStat(path ...string) (procStat, error) {
	b, err := readProc(append(path, "stat")...)
	if err != nil {
		return procStat{}, err
	}
	return parseStat(b)
}

// bootTime reads when the node was booted (btime of /proc/stat).
func bootTime(procfs string) (time.Time, error) {
	b, err := readProc(procfs, "stat")
	if err != nil {
		return time.Time{}, err
	}
	for line := range bytes.Lines(b) {
		if rest, ok := bytes.CutPrefix(line, []byte("btime ")); ok {
			s, err := strconv.ParseInt(strings.TrimSpace(string(rest)), 10, 64)
			if err != nil {
				return time.Time{}, fmt.Errorf("read btime of %s/stat: %w", procfs, err)
			}
			return time.Unix(s, 0), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s/stat holds no btime", procfs)
}

// gone tells whether an error says that a process is no more: its files are not
// there, or, when it ended after they were opened, say nothing.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// pids lists the processes, at most limit of them.
func pids(procfs string, limit int) ([]int, error) {
	return numbers(procfs, limit)
}

// numbers lists the entries of a directory that are numbers, at most limit.
func numbers(dir string, limit int) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	var out []int
	for len(out) < limit {
		names, err := d.Readdirnames(256)
		for _, name := range names {
			if n, err := strconv.Atoi(name); err == nil && n > 0 && len(out) < limit {
				out = append(out, n)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
