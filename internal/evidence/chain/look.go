package chain

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

const (
	// maxThreads bounds the threads of a process that are looked at, maxWaits those
	// whose system call is read.
	maxThreads = 512
	maxWaits   = 96
	// maxFDs bounds the descriptors of a process that are looked at.
	maxFDs = 4096
)

// thread is a thread at the moment of a look.
type thread struct {
	tid   int
	start uint64
	state byte
	// runs is how often it was put on or left a CPU, sched its times.
	runs  uint64
	sched proc.Schedstat
}

// look is a process at a moment.
type look struct {
	at      time.Time
	stat    proc.Stat
	tracer  int
	threads map[int]thread
	// unread are the bytes that wait at the other end of each of its connected unix
	// sockets, by the inode of its own end.
	unread map[uint32]socketPair
	// levels are the counters of its cgroups' CPU quotas, by directory.
	levels map[string]uint64
	// denied says what could not be read for want of a privilege.
	denied bool
}

// socketPair is a connected unix socket: own is the process's end.
type socketPair struct {
	own, peer sockdiag.Socket
}

// twoLooks returns two looks at a process, the older one first: it waits a moment
// where it has not been looked at lately.
func (w *Walker) twoLooks(ctx context.Context, s proc.Stat) (before, now *look, ok bool) {
	before = w.looks[s.ID()]
	if before == nil || time.Since(before.at) > usableLook {
		before = w.look(ctx, s)
		if before == nil {
			return nil, nil, false
		}
	}
	if d := betweenLooks - time.Since(before.at); d > 0 && !sleep(ctx, d) {
		return nil, nil, false
	}
	s, err := w.reader.Stat(w.procfs, s.PID)
	if err != nil || s.Start != before.stat.Start {
		return nil, nil, false
	}
	if now = w.look(ctx, s); now == nil {
		return nil, nil, false
	}
	w.looks[s.ID()] = now
	return before, now, true
}

// look reads the threads of a process, nil when it has ended.
func (w *Walker) look(ctx context.Context, s proc.Stat) *look {
	l := &look{at: time.Now(), stat: s, threads: map[int]thread{}}
	if b, err := w.reader.Read(proc.Path(w.procfs, s.PID, "status")); err == nil {
		l.tracer = proc.ParseStatus(b).TracerPID
	}
	task := proc.Path(w.procfs, s.PID, "task")
	tids, err := proc.Numbers(task, maxThreads)
	if err != nil {
		return nil
	}
	for _, tid := range tids {
		if ctx.Err() != nil {
			return nil
		}
		dir := task + "/" + strconv.Itoa(tid)
		b, err := w.reader.Read(dir + "/stat")
		if err != nil {
			continue // it has just ended
		}
		st, err := proc.ParseStat(b)
		if err != nil {
			continue
		}
		t := thread{tid: tid, start: st.Start, state: st.State}
		if b, err := w.reader.Read(dir + "/schedstat"); err == nil {
			t.sched, _ = proc.ParseSchedstat(b)
		}
		if b, err := w.reader.Read(dir + "/status"); err == nil {
			t.runs = proc.ParseStatus(b).Switches
		}
		l.threads[tid] = t
	}
	if len(l.threads) == 0 {
		return nil
	}
	l.unread, l.denied = w.sockets(ctx, s.PID)
	l.levels = w.quotas(s.PID)
	return l
}

// still returns the threads that have not run between two looks and are in the
// same state.
func still(before, now *look) (out []thread) {
	for tid, t := range now.threads {
		b, ok := before.threads[tid]
		if ok && b.start == t.start && b.state == t.state && b.runs == t.runs && b.sched.Run == t.sched.Run && b.sched.Slices == t.sched.Slices {
			out = append(out, t)
		}
	}
	return out
}

// all reports whether each thread of a look is in one of the states.
func (l *look) all(states string) bool {
	for _, t := range l.threads {
		found := false
		for i := range len(states) {
			found = found || states[i] == t.state
		}
		if !found {
			return false
		}
	}
	return true
}

// syscall returns the system call in which a thread waits. denied is true where it
// may not be read.
func (w *Walker) syscall(pid, tid int) (s proc.Syscall, ok, denied bool) {
	b, err := w.left.Read(proc.Path(w.procfs, pid, "task/")+strconv.Itoa(tid)+"/syscall", 0, 256, readLimit)
	if err != nil {
		return proc.Syscall{}, false, errors.Is(err, fs.ErrPermission) || errors.Is(err, proc.ErrLeftBehind)
	}
	s, ok = proc.ParseSyscall(b)
	return s, ok, false
}

// channel returns the kernel function in which a thread waits, "" where it cannot
// be read.
func (w *Walker) channel(pid, tid int) string {
	b, err := w.reader.Read(proc.Path(w.procfs, pid, "task/") + strconv.Itoa(tid) + "/wchan")
	if err != nil || string(b) == "0" {
		return ""
	}
	return clean(string(b))
}

// link returns where a link below procfs leads, "" where it may not be read.
func (w *Walker) link(name string) string {
	to, err := os.Readlink(filepath.Join(w.procfs, name))
	if err != nil {
		return ""
	}
	return to
}

// fd returns where a descriptor of a process leads.
func (w *Walker) fd(pid int, n uint64) string {
	if n > 1<<20 {
		return ""
	}
	return w.link(strconv.Itoa(pid) + "/fd/" + strconv.FormatUint(n, 10))
}

// fdInfo returns what is known of a descriptor.
func (w *Walker) fdInfo(pid int, n uint64) proc.FDInfo {
	b, err := w.reader.Read(proc.Path(w.procfs, pid, "fdinfo/") + strconv.FormatUint(n, 10))
	if err != nil {
		return proc.FDInfo{FuseConnection: -1}
	}
	return proc.ParseFDInfo(b)
}
