package evidence

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// keptRestarts and keptStops are how many of them are remembered one by one.
	keptRestarts = 10
	keptStops    = 4
	// stopSuspected is how long after a stop the process is looked at often: it may
	// be stopped again and again, between answers.
	stopSuspected = 3 * time.Second
)

// ProcessOptions configure the source about the runtime's process.
type ProcessOptions struct {
	// ProcFS is where /proc is mounted.
	ProcFS string
	// PeerPID returns the process at the other end of the connection that the
	// daemon holds, by SO_PEERCRED; 0 when it cannot be told, 1 when systemd made
	// the socket.
	PeerPID func() int
	// ListenerInode returns the inode of the listening socket, 0 when it is not
	// known. It is used where PeerPID does not say, to find the process once: from
	// then on it is that process until it ends or PeerPID changes, wherever the
	// path leads.
	ListenerInode func() uint64
}

// Process is the source about the process behind the held connection: its
// descriptors, its threads, its start, the file lock that it waits for. It
// reads, every second:
//
//	/proc/PID/stat, task/TID/stat        name, start, threads by state
//	/proc/PID/fd (its size), limits      descriptors against their limit
//	/proc/PID/task/TID/schedstat         CPU time, and time spent waiting for it; while
//	                                     all is well the state only where this moves
//	/proc/PID/task/TID/{wchan,syscall}   where a thread in D waits
//	/proc/PID/cgroup, /proc/locks
//
// Of these only the wait channels take a privilege (CAP_SYS_PTRACE), as do the
// path of a lock and the search for the process by its listener's inode: without
// it Channel and Syscall of a blocked thread stay empty, File is a number, and the
// search is an error. The
// number of descriptors takes Linux 6.2, or that privilege; else OpenFDs is -1.
// MaxFDs is -1 where limits may not be read. CPU and Delay are 0 in the first
// sample of a process.
//
// Of the files that wait for the process's memory (cmdline, environ, smaps), which
// block on one that is wedged, it reads cmdline alone, once, in a goroutine that
// it leaves behind after 50 ms.
type Process struct {
	*Watch[health.Process]
	opts ProcessOptions
	up   func() time.Duration
	pid  atomic.Int64

	// What follows belongs to gather.
	reader proc.Reader
	namer  namer
	fs     *procfs.FS
	finder processFinder
	before threadTimes
	last   *health.Process
	lastID proc.ID
	waits  map[string]lockWaiting // by fileLock.file
}

// NewProcess returns the source about the runtime's process; it looks every 3 s, every
// second while something may be wrong, for at most 500 ms, and four times a second while
// the descriptors are used up, a thread is in D, or all threads were lately stopped. It
// has nothing to say before it has found one.
func NewProcess(opts ProcessOptions) *Process {
	p := &Process{opts: opts, up: proc.Uptime, namer: newNamer(opts.ProcFS), finder: processFinder{opts: opts}, reader: proc.Reader{Keep: keepOpen(keptThreads)}}
	p.Watch = NewWatch(Spec[health.Process]{
		Name: "process", Period: time.Second, Calm: 3 * time.Second, Timeout: 500 * time.Millisecond,
		Fast: hurried, Urgent: func(v *health.Process) bool {
			stopped := !v.StoppedAt.IsZero() && v.At.Sub(v.StoppedAt) < stopSuspected
			return v.FDsExhausted() || len(v.Blocked) > 0 || stopped
		},
		Gather: p.gather, Store: func(e *health.Evidence, v *health.Process) { e.Process = v },
	})
	return p
}

// PID is the runtime's process, 0 while it is not known or is gone. It never
// waits.
func (p *Process) PID() int { return int(p.pid.Load()) }

func (p *Process) gather(ctx context.Context) (*health.Process, error) {
	s, err := p.finder.find(ctx)
	if err == nil {
		up := p.up()
		var v *health.Process
		if v, err = p.look(s, up); err == nil {
			p.finder.seen(s, up)
			p.last, p.lastID = v, s.ID()
			p.pid.Store(int64(s.PID))
			return v, nil
		}
	}
	p.pid.Store(0)
	switch {
	case !proc.Gone(err):
		return nil, err
	case p.last == nil:
		return nil, ErrNoData
	}
	v := *p.last
	v.At, v.Alive = time.Now(), false
	p.last = &v
	return &v, nil
}

// look reads all about a process; an error that it is gone when it ends
// meanwhile.
func (p *Process) look(s proc.Stat, up time.Duration) (*health.Process, error) {
	now := time.Now()
	v := &health.Process{
		At: now, PID: s.PID, Comm: s.Comm, Alive: true, Start: proc.StartedAt(now, up, s.Start),
		OpenFDs: p.openFDs(s.PID), MaxFDs: -1,
	}
	if b, err := p.reader.Read(proc.Path(p.opts.ProcFS, s.PID, "limits")); err == nil {
		v.MaxFDs = proc.MaxFDs(b)
	}
	if err := p.before.look(&p.reader, p.opts.ProcFS, s.ID(), !p.alert.Load(), v); err != nil {
		return nil, err
	}
	if v.FDsExhausted() {
		v.ExhaustedAt = now
	}
	if v.Stopped() {
		v.StoppedAt = now
	}
	if last := p.last; last != nil {
		v.Restarts, v.RestartsTotal = last.Restarts, last.RestartsTotal
		if s.ID() != p.lastID {
			v.RestartsTotal++
			v.Restarts = append(slices.Clone(last.Restarts[max(0, len(last.Restarts)-keptRestarts+1):]), now)
		} else {
			p.carryOver(v)
		}
	}
	v.Command, v.Unit = p.namer.of(s.ID())
	v.Lock = p.lockWait(s.ID(), now)
	return v, nil
}

// carryOver takes over what lasts from the sample before of the same process.
func (p *Process) carryOver(v *health.Process) {
	last := p.last
	if v.ExhaustedAt.IsZero() {
		v.ExhaustedAt = last.ExhaustedAt
	}
	v.Stops = last.Stops
	switch {
	case !v.Stopped():
		v.StoppedAt = last.StoppedAt
	case !last.Stopped():
		v.Stops = append(slices.Clone(last.Stops[max(0, len(last.Stops)-keptStops+1):]), v.At)
	}
	// The start is worked out from two clocks: the same one each time, unless
	// the wall clock has been set meanwhile.
	if d := v.Start.Round(0).Sub(last.Start.Round(0)); d.Abs() < time.Second {
		v.Start = last.Start
	}
}

// openFDs is the number of open descriptors: the size of /proc/PID/fd, which
// needs no privilege (Linux 6.2); elsewhere they are counted, which does. -1
// where neither may be.
func (p *Process) openFDs(pid int) int {
	if p.fs == nil {
		root, err := procfs.NewFS(p.opts.ProcFS)
		if err != nil {
			return -1
		}
		p.fs = &root
	}
	proc, err := p.fs.Proc(pid)
	if err != nil {
		return -1
	}
	n, err := proc.FileDescriptorsLen()
	if err != nil {
		return -1
	}
	return n
}
