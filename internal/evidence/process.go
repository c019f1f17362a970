package evidence

import (
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

const (
	keptRestarts  = 10
	keptStops     = 4
	stopSuspected = 3 * time.Second // how long after a stop another one is likely
	// searchInterval is the age of the process table that a search accepts.
	searchInterval = 5 * time.Second
	tracerInterval = 5 * time.Second // between two reads of who traces it, while nobody does
	// startSlack is the precision of a start time that is compared with another clock.
	startSlack = 100 * time.Millisecond
)

// Process samples the process of a socket.
//
// It needs no privilege but for wait channels, system calls, the path of a lock and the
// search by inode (CAP_SYS_PTRACE), and before Linux 6.2 the number of descriptors. What
// cannot be read is empty, or -1.
type Process struct {
	*Watch[facts.Process]
	up func() time.Duration

	// The following fields belong to gather.
	predecessor                // of the process that follows the last one
	last        *facts.Process // of no process before the first sample
	proven      bool           // last.Program is what its identity proves
	lockFile    string         // of last.Lock as /proc/locks has it
	// successors are the processes that follow the last one, nil while it lives. invocation is that of
	// its unit, early is true once a start was counted by another invocation before its process was seen.
	successors *successors
	invocation string
	early      bool
	// databases are those that the process had open at databasesRead, by their names in /proc/locks.
	databases     map[string]string
	databasesRead time.Time
	threads       threads
	traced        time.Time   // when it was last read who traces it
	unread        proc.Unread // by this sample
}

func newProcess(h *hop) *Process {
	p := &Process{
		predecessor: predecessor{hop: h},
		up:          proc.Uptime,
		last:        &facts.Process{},
		threads:     threads{table: h.table},
		unread:      proc.Unread{},
	}
	p.Watch = NewWatch(Spec[facts.Process]{
		Name:     h.prefix + "process",
		Every:    1,
		Calm:     8,
		Shifts:   true,
		Timeout:  500 * time.Millisecond,
		Gather:   p.gather,
		Unread:   p.unread.Drain,
		Resample: changesSoon,
		Store:    func(e *facts.Evidence, v *facts.Process) { e.Process = v },
	})
	return p
}

// changesSoon reports whether the process is to be sampled at each tick.
func changesSoon(v *facts.Process) bool {
	stoppedLately := !v.StoppedAt.IsZero() && v.At.Sub(v.StoppedAt) < stopSuspected
	return v.FDsExhausted() || len(v.Blocked) > 0 || v.Lock != nil || stoppedLately
}

// PID returns the process, 0 while it is not known or has ended.
func (p *Process) PID() int { return p.sampled().PID }

// sampled returns the identity and name of the process, as of the last sample.
func (p *Process) sampled() proc.Process {
	v := p.Value()
	if v == nil || !v.Alive {
		return proc.Process{}
	}
	return proc.Process{PID: v.PID, Comm: v.Comm, Start: v.StartTicks}
}

func (p *Process) gather(ctx context.Context) (*facts.Process, error) {
	s, err := p.find(ctx)
	p.countMissed(s)
	if err == nil {
		err = p.read(ctx, s)
		if proc.Gone(err) && !p.isLast(s) {
			p.countShortLife(s)
		}
	}
	switch {
	case proc.Gone(err) && p.last.PID == 0:
		return nil, ErrNoData
	case proc.Gone(err):
		gone := *p.last
		gone.At = time.Now()
		gone.Alive = false
		gone.Preparing = p.preparing(ctx, gone.At)
		p.last = &gone
	case err != nil:
		return nil, err
	}
	return p.last, nil
}

// read takes a sample of a process.
func (p *Process) read(ctx context.Context, s proc.Process) error {
	up := p.up()
	moment := time.Now()
	v := &facts.Process{
		At:            moment,
		PID:           s.PID,
		Comm:          s.Comm,
		Alive:         true,
		Start:         proc.StartedAt(moment, up, s.Start),
		StartTicks:    s.Start,
		Restarts:      p.last.Restarts,
		RestartsTotal: p.last.RestartsTotal,
	}
	p.readDescriptors(v)
	v.ThreadCount = p.threadCount(s.PID)
	if err := p.threads.sample(s.ID(), v, p.unread); err != nil {
		return err
	}
	isNew := !p.isLast(s)
	if isNew {
		p.countStart(v)
	} else {
		p.keepHistory(v)
	}
	if v.Command == "" { // of a new one, or not read in time
		v.Command, v.Unit = p.hop.nameOf(s.ID())
	}
	if isNew {
		p.invocation = p.hop.invocationOf(v.Unit)
	}
	if !p.proven || v.Comm != p.last.Comm { // of a new one, or of one that runs another program by now
		v.Program, p.proven = p.program(ctx, s.PID)
	}
	p.readTracer(v)
	if v.FDsExhausted() {
		v.ExhaustedAt = moment
	}
	if v.Stopped() {
		v.StoppedAt = moment
	}
	v.Lock = p.lockWait(ctx, v)
	p.last = v
	p.seenUp = up
	return nil
}

// readTracer sets who traces the process. That nobody does may have been read within the last tracerInterval.
func (p *Process) readTracer(v *facts.Process) {
	if v.PID == p.last.PID && p.last.TracerPID == 0 && v.At.Sub(p.traced) < tracerInterval {
		return
	}
	p.traced = v.At
	pid, err := proc.TracerPID(p.hop.procfs, v.PID)
	p.unread.Add("tracer", err)
	v.TracerPID = pid
	if pid == 0 {
		return
	}
	tracer, err := proc.ReadStat(p.hop.procfs, v.TracerPID)
	if err == nil {
		v.Tracer = tracer.Comm
	}
}

// program returns which runtime a process has proved to be, "" for none; ok is false where its identity
// could not be read.
func (p *Process) program(ctx context.Context, pid int) (program string, ok bool) {
	id, err := p.hop.table.Identify(ctx, pid)
	if err != nil {
		return "", false
	}
	program, answer := family.Runtime(id)
	return program, answer.Err == nil || errors.Is(answer.Err, proc.Denied)
}

// isLast reports whether a process is that of the last sample.
func (p *Process) isLast(s proc.Process) bool {
	return s.PID == p.last.PID && s.Start == p.last.StartTicks
}

// keepHistory continues the last sample of the same process.
func (p *Process) keepHistory(v *facts.Process) {
	last := p.last
	v.ExhaustedAt = last.ExhaustedAt
	v.StoppedAt = last.StoppedAt
	v.Stops = last.Stops
	v.Command = last.Command
	v.Unit = last.Unit
	v.Program = last.Program
	if v.Stopped() && !last.Stopped() {
		v.Stops = appendTime(last.Stops, v.At, keptStops)
	}
	// The start is computed from two clocks; it changes only where the wall clock was set.
	drift := v.Start.Round(0).Sub(last.Start.Round(0))
	if drift.Abs() < time.Second {
		v.Start = last.Start
	}
}

// countStart counts the start of another process, unless it is the first.
func (p *Process) countStart(v *facts.Process) {
	p.successors.end()
	p.successors = nil
	p.place = p.hop.placeOf(v.PID)
	p.args = p.hop.table.Args(idOf(v))
	p.lockFile = ""
	p.proven = false
	if p.last.PID != 0 {
		p.addStart(v, v.At)
	}
}

// countMissed counts the starts since the last sample of processes that have ended by now: those that
// were found, else one where systemd has started the unit. current is the process of this sample, zero
// for none.
func (p *Process) countMissed(current proc.Process) {
	if p.last.PID == 0 || p.isLast(current) {
		return
	}
	missed := p.successors.take()
	for _, s := range missed {
		if !p.isLast(s) { // it was counted when it could not be read
			p.countShortLife(s)
		}
	}
	invocation := p.hop.invocationOf(p.last.Unit) // "" while it has none, between two starts
	if current.PID != 0 || invocation == "" {
		return // a new one counts the start of its own invocation
	}
	if len(missed) == 0 && p.invocation != "" && p.invocation != invocation {
		gone := *p.last
		p.early = false
		p.addStart(&gone, time.Now())
		p.early = true
		p.last = &gone
	}
	p.invocation = invocation
}

// countShortLife counts the start of a process that ended before it could be read.
func (p *Process) countShortLife(s proc.Process) {
	next := *p.last
	next.PID = s.PID
	next.StartTicks = s.Start
	next.Start = proc.StartedAt(time.Now(), p.up(), s.Start)
	p.addStart(&next, next.Start)
	p.last = &next
	p.seenUp = p.up()
}

// addStart adds a start to those that are known, unless it was counted early.
func (p *Process) addStart(v *facts.Process, at time.Time) {
	if p.early {
		p.early = false
		return
	}
	v.RestartsTotal++
	v.Restarts = appendTime(v.Restarts, at, keptRestarts)
}

// appendTime appends to a copy of the last times, of which it keeps some.
func appendTime(times []time.Time, at time.Time, kept int) []time.Time {
	return append(slices.Clone(times[max(0, len(times)-kept+1):]), at)
}

// readDescriptors sets the number of open descriptors and its limits; -1, and a hard limit of 0,
// where these may not be read.
func (p *Process) readDescriptors(v *facts.Process) {
	v.OpenFDs = -1
	v.MaxFDs = -1
	open, err := proc.CountFDs(p.hop.procfs, v.PID)
	p.unread.Add("descriptors", err)
	if err == nil {
		v.OpenFDs = open
	}
	limits, err := proc.ReadLimits(p.hop.procfs, v.PID)
	p.unread.Add("limits", err)
	if err != nil {
		return
	}
	v.MaxFDs = limits.Files
	v.HardFDs = limits.HardFiles
	if limits.FileSize != math.MaxInt {
		v.FileSizeMax = max(limits.FileSize, 1) // 0 is a limit, too
		v.LargestFile = p.largestFile(v.PID)
	}
}

// largestFile returns the size of the largest file that a process has open for writing, in bytes.
func (p *Process) largestFile(pid int) (size int) {
	err := proc.EachFD(p.hop.procfs, pid, func(fd int, target string) bool {
		if !path.IsAbs(target) || proc.ReadFDInfo(p.hop.procfs, pid, fd).ReadOnly() {
			return true
		}
		st, err := proc.StatFD(p.hop.procfs, pid, fd)
		if err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			size = max(size, int(st.Size))
		}
		return true
	})
	p.unread.Add("descriptors", err)
	return size
}

// threadCount returns the number of a process's threads, by the links of /proc/PID/task: one a thread, and two of every
// directory. 0 where it is not readable.
func (p *Process) threadCount(pid int) int {
	var st unix.Stat_t
	err := unix.Stat(proc.Path(p.hop.procfs, pid, "task"), &st)
	p.unread.Add("number of threads", err)
	return max(0, int(st.Nlink)-2) //nolint:gosec // a pid's range
}
