package chain

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

const (
	// maxThreads bounds the threads of a process that are read, maxWaits those whose
	// system call is.
	maxThreads = 512
	maxWaits   = 96
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
	quotas []quota
	// denied is true where something could not be read for want of a privilege.
	denied bool
}

// socketPair is a connected unix socket: own is the process's end.
type socketPair struct {
	own, peer sockdiag.Socket
}

// twoLooks returns two looks at a process, the older one first: it waits a moment
// where there is no recent one.
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
		if t, ok := w.thread(task+"/"+strconv.Itoa(tid), tid); ok {
			l.threads[tid] = t
		}
	}
	if len(l.threads) == 0 {
		return nil
	}
	l.unread, l.denied = w.sockets(ctx, s.PID)
	l.quotas = w.quotas(s.PID)
	return l
}

// thread reads a thread; ok is false when it has just ended.
func (w *Walker) thread(dir string, tid int) (t thread, ok bool) {
	b, err := w.reader.Read(dir + "/stat")
	if err != nil {
		return thread{}, false
	}
	st, err := proc.ParseStat(b)
	if err != nil {
		return thread{}, false
	}
	t = thread{tid: tid, start: st.Start, state: st.State}
	if b, err := w.reader.Read(dir + "/schedstat"); err == nil {
		t.sched, _ = proc.ParseSchedstat(b)
	}
	if b, err := w.reader.Read(dir + "/status"); err == nil {
		t.runs = proc.ParseStatus(b).Switches
	}
	return t, true
}

// still returns the threads that have not run between two looks and are in the
// same state.
func still(before, now *look) (out []thread) {
	for tid, t := range now.threads {
		b, ok := before.threads[tid]
		same := ok && b.start == t.start && b.state == t.state
		if same && b.runs == t.runs && b.sched.Run == t.sched.Run && b.sched.Slices == t.sched.Slices {
			out = append(out, t)
		}
	}
	return out
}

// all reports whether each thread of a look is in one of the states.
func (l *look) all(states string) bool {
	for _, t := range l.threads {
		if strings.IndexByte(states, t.state) < 0 {
			return false
		}
	}
	return true
}

// place is where a thread waits in the kernel.
type place struct {
	pid, tid int
	channel  string // "" where it cannot be read
	call     proc.Syscall
	inCall   bool // false where the system call is not known
	denied   bool // it may not be read
}

// place reads where a thread waits.
func (w *Walker) place(pid, tid int) place {
	p := place{pid: pid, tid: tid}
	dir := proc.Path(w.procfs, pid, "task/") + strconv.Itoa(tid)
	b, err := w.table.ReadSlow(dir+"/syscall", 256)
	if err != nil {
		p.denied = errors.Is(err, fs.ErrPermission) || errors.Is(err, bounded.ErrLate) || errors.Is(err, bounded.ErrBusy)
	} else {
		p.call, p.inCall = proc.ParseSyscall(b)
	}
	if b, err := w.reader.Read(dir + "/wchan"); err == nil && string(b) != "0" {
		p.channel = clean(string(b))
	}
	return p
}

// in reports whether a kernel function's name begins with one of the names.
func in(channel string, names ...string) bool {
	for _, name := range names {
		if strings.HasPrefix(channel, name) {
			return true
		}
	}
	return false
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

// rawFDInfo returns the fdinfo of a descriptor, nil where it cannot be read.
func (w *Walker) rawFDInfo(pid int, n uint64) []byte {
	b, err := w.reader.Read(proc.Path(w.procfs, pid, "fdinfo/") + strconv.FormatUint(n, 10))
	if err != nil {
		return nil
	}
	return b
}

// fdInfo returns the fdinfo of a descriptor, decoded.
func (w *Walker) fdInfo(pid int, n uint64) proc.FDInfo { return proc.ParseFDInfo(w.rawFDInfo(pid, n)) }
