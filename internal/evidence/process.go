package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	keptRestarts  = 10
	keptStops     = 4
	stopSuspected = 3 * time.Second // how long after a stop another one is likely
	// searchInterval is the age of the process table that a search accepts; for
	// successorGrace after a process went, its successor is looked for at each sample.
	searchInterval = 5 * time.Second
	successorGrace = 30 * time.Second
	tracerInterval = 5 * time.Second // between two reads of who traces it
	startTakes     = 5 * time.Minute // at most: a snapshotter's database is opened after the socket
)

// Process samples the process of a socket.
//
// It needs no privilege but for wait channels, system calls, the path of a lock and the
// search by inode (CAP_SYS_PTRACE), and before Linux 6.2 the number of descriptors. What
// cannot be read is empty, or -1.
type Process struct {
	*Watch[facts.Process]
	hop *hop
	up  func() time.Duration

	// The following fields belong to gather.
	last     *facts.Process // of no process before the first sample
	seenUp   time.Duration  // the time since boot when it was taken
	cgroup   string         // its /proc/PID/cgroup
	lockFile string         // of last.Lock as /proc/locks has it
	threads  threads
	traced   time.Time // when it was last read who traces it
}

func newProcess(h *hop) *Process {
	p := &Process{hop: h, up: proc.Uptime, last: &facts.Process{}}
	p.Watch = NewWatch(Spec[facts.Process]{
		Name: h.prefix + "process", Every: 1, Calm: 2, Timeout: 500 * time.Millisecond, Gather: p.gather,
		Again: func(v *facts.Process) bool {
			stopped := !v.StoppedAt.IsZero() && v.At.Sub(v.StoppedAt) < stopSuspected
			return v.FDsExhausted() || len(v.Blocked) > 0 || stopped
		},
		Store: func(e *facts.Evidence, v *facts.Process) { e.Process = v },
	})
	return p
}

// PID returns the process, 0 while it is not known or has ended.
func (p *Process) PID() int {
	if v := p.Value(); v != nil && v.Alive {
		return v.PID
	}
	return 0
}

func (p *Process) gather(ctx context.Context) (*facts.Process, error) {
	s, err := p.find(ctx)
	if err == nil {
		err = p.read(s, p.up())
	}
	switch {
	case proc.Gone(err) && p.last.PID == 0:
		return nil, ErrNoData
	case proc.Gone(err):
		gone := *p.last
		gone.At, gone.Alive = time.Now(), false
		p.last = &gone
	case err != nil:
		return nil, err
	}
	return p.last, nil
}

// read takes a sample of a process.
func (p *Process) read(s proc.Process, up time.Duration) error {
	now, last := time.Now(), p.last
	v := &facts.Process{
		At: now, PID: s.PID, Comm: s.Comm, Alive: true, Start: proc.StartedAt(now, up, s.Start), StartTicks: s.Start,
		Restarts: last.Restarts, RestartsTotal: last.RestartsTotal,
	}
	readDescriptors(p.hop.procfs, v)
	v.ThreadCount = threadCount(p.hop.procfs, s.PID)
	if err := p.threads.sample(p.hop.procfs, s.ID(), v); err != nil {
		return err
	}
	switch {
	case s.ID() == proc.ID{PID: last.PID, Start: last.StartTicks}:
		v.ExhaustedAt, v.StoppedAt, v.Stops = last.ExhaustedAt, last.StoppedAt, last.Stops
		v.Command, v.Unit = last.Command, last.Unit
		if v.Stopped() && !last.Stopped() {
			v.Stops = append(slices.Clone(last.Stops[max(0, len(last.Stops)-keptStops+1):]), now)
		}
		// The start is computed from two clocks; it changes only where the wall clock was set.
		if d := v.Start.Round(0).Sub(last.Start.Round(0)); d.Abs() < time.Second {
			v.Start = last.Start
		}
	case last.PID != 0:
		v.RestartsTotal++
		v.Restarts = append(slices.Clone(last.Restarts[max(0, len(last.Restarts)-keptRestarts+1):]), now)
		fallthrough
	default:
		p.cgroup, p.lockFile = p.hop.cgroupOf(s.PID), ""
	}
	if v.Command == "" { // of a new one, or not read in time
		v.Command, v.Unit = p.hop.nameOf(s.ID())
	}
	p.readTracer(v)
	if v.FDsExhausted() {
		v.ExhaustedAt = now
	}
	if v.Stopped() {
		v.StoppedAt = now
	}
	v.Lock = p.lock(v)
	p.last, p.seenUp = v, up
	return nil
}

// readTracer sets who traces the process, as it was read within the last tracerInterval.
func (p *Process) readTracer(v *facts.Process) {
	if v.PID == p.last.PID && v.At.Sub(p.traced) < tracerInterval {
		v.TracerPID = p.last.TracerPID
		v.Tracer = p.last.Tracer
		return
	}
	p.traced = v.At
	v.TracerPID = proc.TracerPID(p.hop.procfs, v.PID)
	if v.TracerPID == 0 {
		return
	}
	tracer, err := proc.ReadStat(p.hop.procfs, v.TracerPID)
	if err == nil {
		v.Tracer = tracer.Comm
	}
}

// readDescriptors sets the number of open descriptors, by the size of /proc/PID/fd (Linux 6.2) or
// by counting them, and their limits; -1 and a hard limit of 0 where these may not be read.
func readDescriptors(root string, v *facts.Process) {
	v.OpenFDs = -1
	v.MaxFDs = -1
	fs, err := procfs.NewFS(root)
	if err != nil {
		return
	}
	p, err := fs.Proc(v.PID)
	if err != nil {
		return
	}
	if n, err := p.FileDescriptorsLen(); err == nil {
		v.OpenFDs = n
	}
	if l, err := p.Limits(); err == nil {
		v.MaxFDs = int(min(l.OpenFiles, math.MaxInt)) //nolint:gosec // not above it
	}
	v.HardFDs = hardLimit(root, v.PID)
}

// threadCount returns the number of a process's threads, by the links of /proc/PID/task: one a thread, and two of every
// directory. 0 where it is not readable.
func threadCount(root string, pid int) int {
	var st unix.Stat_t
	if err := unix.Stat(proc.Path(root, pid, "task"), &st); err != nil {
		return 0
	}
	return max(0, int(st.Nlink)-2) //nolint:gosec // a pid's range
}

// hardLimit returns the hard limit of a process's open files, 0 where it is not readable.
func hardLimit(root string, pid int) int {
	b, err := proc.ReadFile(proc.Path(root, pid, "limits"))
	if err != nil {
		return 0
	}
	_, limits, _ := strings.Cut(string(b), "Max open files")
	fields := strings.Fields(limits)
	if len(fields) < 2 {
		return 0
	}
	hard, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return hard
}

// find returns the process: the one at the other end of the held connection; else the one
// that was there last; else the one that listened when a fresh connection was made; else, as
// where systemd made the socket, the one that has the listener open; else the successor of the
// last one, which does not listen yet. The error is that it is gone, or why it cannot be found.
func (p *Process) find(ctx context.Context) (proc.Process, error) {
	h := p.hop
	held, fresh := h.peers()
	for _, pid := range []int{held, p.last.PID, fresh} {
		if pid <= 1 {
			continue
		}
		s, err := h.table.Alive(pid)
		// The number may be given to another process: that counts only with the same name.
		if reused := p.last.PID == pid && p.last.StartTicks != s.Start && p.last.Comm != s.Comm; err == nil && !reused {
			return s, nil
		}
		if _, first := proc.ReadStat(h.procfs, 1); errors.Is(err, fs.ErrPermission) || first != nil {
			return proc.Process{}, fmt.Errorf("look at pid %d, which listens at the runtime's socket: "+
				"%s does not show it to plegd (hidepid, ProtectProc, or another pid namespace)", pid, h.procfs)
		}
	}
	err := proc.ErrGone
	if q := h.queue(); q != nil && q.Inode != 0 {
		var holder proc.Process
		if holder, err = h.table.Holder(ctx, uint32(q.Inode)); err == nil { //nolint:gosec // of a socket: 32 bits
			return holder, nil
		}
	}
	if p.last.PID != 0 {
		return p.successor(ctx)
	}
	return proc.Process{}, err
}

// successor returns the process that was started in the place of the last one: of its name, in
// its cgroup, since it was last seen; of several the newest, but not a child that it has forked
// and that has yet to execute another program.
func (p *Process) successor(ctx context.Context) (best proc.Process, err error) {
	maxAge := time.Duration(0)
	if p.up()-p.seenUp > successorGrace {
		maxAge = searchInterval
	}
	all, err := p.hop.table.Processes(ctx, maxAge)
	if err != nil {
		return proc.Process{}, err
	}
	follows := func(s proc.Process) bool {
		return s.Comm == p.last.Comm && proc.TicksToDuration(s.Start+1) >= p.seenUp
	}
	for _, s := range all.ByPID {
		newest := s.Start >= best.Start && follows(s) && !follows(all.ByPID[s.PPID])
		if newest && p.cgroup != "" && p.hop.cgroupOf(s.PID) == p.cgroup {
			best = s
		}
	}
	if best.PID == 0 {
		err = proc.ErrGone
	}
	return best, err
}

// lock returns a file lock that the process of a sample waits for; nil for none. bbolt, in
// which containerd keeps meta.db, polls, so /proc/locks shows no waiter: a process that starts
// waits for a database that it has open and another process has locked.
func (p *Process) lock(v *facts.Process) *facts.LockWait {
	b, _ := proc.ReadFile(p.hop.procfs, "locks") // what cannot be read shows none
	locks, q := proc.ParseLocks(b), p.hop.queue()
	waits := slices.DeleteFunc(slices.Clone(locks), func(l proc.Lock) bool { return !l.WaitsFor(v.PID) })
	starts := v.At.Sub(v.Start) < startTakes || q == nil || q.Inode == 0 || p.lockFile != ""
	if len(waits) == 0 && starts {
		open := p.openFiles(v.PID, ".db")
		for _, l := range locks {
			if !l.Waiting && l.PID > 0 && l.PID != v.PID && open[l.File] != "" {
				waits = append(waits, proc.Lock{File: l.File, Holder: l.PID})
			}
		}
	}
	if len(waits) == 0 {
		p.lockFile = ""
		return nil
	}
	i := slices.IndexFunc(waits, func(l proc.Lock) bool { return l.File == p.lockFile })
	l := waits[max(0, i)]
	out := &facts.LockWait{HolderPID: l.Holder, File: cmp.Or(p.openFiles(v.PID, "")[l.File], l.File), Since: v.At}
	if i >= 0 {
		out.Since = p.last.Lock.Since
	}
	if s, err := p.hop.table.Alive(l.Holder); err == nil {
		out.HolderComm = s.Comm
	}
	p.lockFile = l.File
	return out
}

// openFiles returns the paths of files with a suffix that the process has open, by
// major:minor:inode as /proc/locks has them (fdinfo, Linux 5.14): an inode alone may be
// that of another file system. It asks the file system nothing: that may be what hangs.
func (p *Process) openFiles(pid int, suffix string) map[string]string {
	mounts, _ := proc.ReadFile(proc.Path(p.hop.procfs, pid, "mountinfo")) // of nothing there is none
	devices, out := map[int]string{}, map[string]string{}
	for _, m := range proc.ParseMounts(mounts) {
		var major, minor int
		if _, err := fmt.Sscanf(m.Device, "%d:%d", &major, &minor); err == nil {
			devices[m.ID] = fmt.Sprintf("%02x:%02x", major, minor)
		}
	}
	_ = proc.EachFD(p.hop.procfs, pid, func(fd int, to string) bool { // what cannot be read is left out
		if strings.HasPrefix(to, "/") && strings.HasSuffix(to, suffix) {
			if info := proc.ReadFDInfo(p.hop.procfs, pid, fd); info.Inode != "" && devices[info.MountID] != "" {
				out[devices[info.MountID]+":"+info.Inode] = to
			}
		}
		return true
	})
	return out
}
