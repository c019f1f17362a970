package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	// keptRestarts and keptStops bound the number of stored restarts and stops.
	keptRestarts = 10
	keptStops    = 4
	// stopSuspected is how long after a stop the process is sampled at each tick: it may
	// be stopped and continued in turn.
	stopSuspected = 3 * time.Second
	// maxCommand bounds the command that is shown, in bytes.
	maxCommand = 100
)

// Process samples the process of a socket: descriptors, threads, start, and the file
// lock that it waits for.
//
// It needs no privilege but for wait channels, system calls, the path of a lock and the
// search by inode (CAP_SYS_PTRACE), and before Linux 6.2 the number of descriptors. What
// cannot be read is empty, or -1.
type Process struct {
	*Watch[health.Process]
	hop *hop
	up  func() time.Duration
	pid atomic.Int64

	// The following fields belong to gather.
	finder  processFinder
	threads threadTimes
	last    *health.Process
	lastID  node.ID
	locks   bounded.Since[string] // by file
}

// newProcess returns the source of a hop's process. It has nothing to report before it
// has found one.
func newProcess(h *hop) *Process {
	p := &Process{hop: h, up: node.Uptime, finder: processFinder{hop: h}}
	p.Watch = NewWatch(Spec[health.Process]{
		Name: h.prefix + "process", Every: 1, Calm: 2, Timeout: 500 * time.Millisecond, Gather: p.gather,
		Again: func(v *health.Process) bool {
			stopped := !v.StoppedAt.IsZero() && v.At.Sub(v.StoppedAt) < stopSuspected
			return v.FDsExhausted() || len(v.Blocked) > 0 || stopped
		},
		Store: func(e *health.Evidence, v *health.Process) { e.Process = v },
	})
	return p
}

// PID returns the process, 0 while it is not known or has ended.
func (p *Process) PID() int { return int(p.pid.Load()) }

func (p *Process) gather(ctx context.Context) (*health.Process, error) {
	s, err := p.finder.find(ctx)
	if err == nil {
		up := p.up()
		var v *health.Process
		if v, err = p.read(s, up); err == nil {
			p.finder.seen(s, up)
			p.last, p.lastID = v, s.ID()
			p.pid.Store(int64(s.PID))
			return v, nil
		}
	}
	p.pid.Store(0)
	switch {
	case !node.Gone(err):
		return nil, err
	case p.last == nil:
		return nil, ErrNoData
	}
	v := *p.last
	v.At, v.Alive = time.Now(), false
	p.last = &v
	return &v, nil
}

// read returns a sample of a process; an error that it is gone where it ends meanwhile.
func (p *Process) read(s node.Process, up time.Duration) (*health.Process, error) {
	now := time.Now()
	v := &health.Process{
		At: now, PID: s.PID, Comm: s.Comm, Alive: true, Start: node.StartedAt(now, up, s.Start), StartTicks: s.Start,
	}
	v.OpenFDs, v.MaxFDs = descriptors(p.hop.procfs, s.PID)
	if err := p.threads.sample(p.hop.procfs, s.ID(), v); err != nil {
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
			p.locks.Clear()
			v.RestartsTotal++
			v.Restarts = append(slices.Clone(last.Restarts[max(0, len(last.Restarts)-keptRestarts+1):]), now)
		} else {
			p.carryOver(v)
		}
	}
	if v.Command == "" && v.Unit == "" {
		v.Command, v.Unit = nameOf(p.hop.table, p.hop.procfs, s.ID())
	}
	v.Lock = p.lock(s.PID, v.Start, now)
	return v, nil
}

// carryOver copies what lasts from the sample before of the same process.
func (p *Process) carryOver(v *health.Process) {
	last := p.last
	if v.ExhaustedAt.IsZero() {
		v.ExhaustedAt = last.ExhaustedAt
	}
	v.Stops, v.Command, v.Unit = last.Stops, last.Command, last.Unit
	switch {
	case !v.Stopped():
		v.StoppedAt = last.StoppedAt
	case !last.Stopped():
		v.Stops = append(slices.Clone(last.Stops[max(0, len(last.Stops)-keptStops+1):]), v.At)
	}
	// The start is computed from two clocks; it changes only where the wall clock was set.
	if d := v.Start.Round(0).Sub(last.Start.Round(0)); d.Abs() < time.Second {
		v.Start = last.Start
	}
}

// descriptors returns the number of open descriptors, by the size of /proc/PID/fd (Linux
// 6.2) or by counting them, and the soft limit; -1 where it may not be read.
func descriptors(root string, pid int) (open, most int) {
	open, most = -1, -1
	fs, err := procfs.NewFS(root)
	if err != nil {
		return open, most
	}
	p, err := fs.Proc(pid)
	if err != nil {
		return open, most
	}
	if n, err := p.FileDescriptorsLen(); err == nil {
		open = n
	}
	if l, err := p.Limits(); err == nil {
		most = int(min(l.OpenFiles, math.MaxInt)) //nolint:gosec // not above it
	}
	return open, most
}

// nameOf returns the first word of a process's arguments and its systemd unit, each ""
// where it cannot be read. The other arguments may hold a secret.
func nameOf(table *node.Table, procfs string, id node.ID) (command, unit string) {
	if args := table.Args(id); len(args) > 0 {
		command, _, _ = strings.Cut(args[0], " ")
		command = strings.ToValidUTF8(command[:min(len(command), maxCommand)], "?")
	}
	if b, err := node.ReadFile(node.Path(procfs, id.PID, "cgroup")); err == nil {
		unit = unitOf(node.ParseCgroups(b).Main())
	}
	return command, unit
}

// unitOf returns the service of a cgroup, "" for none. A scope is not returned: the name
// of a container's scope holds the container's id.
func unitOf(cgroup string) string {
	for dir := cgroup; dir != "/" && dir != "." && dir != ""; dir = path.Dir(dir) {
		if name := path.Base(dir); strings.HasSuffix(name, ".service") {
			return name
		}
	}
	return ""
}

const (
	// searchInterval is the time between two searches of all processes; for
	// successorGrace after a process went, its successor is looked for at each sample.
	searchInterval = 5 * time.Second
	successorGrace = 30 * time.Second
)

// processFinder settles which process is the one of a socket.
type processFinder struct {
	hop *hop

	named   node.Process // the process that held named
	known   node.Process // the process that was settled last
	peerPID int          // the value of held when it was
	cgroup  string       // its /proc/PID/cgroup
	seenAt  time.Time
	seenUp  time.Duration // the same moment, since boot
}

// seen stores that s was there and is the process; up is the time since boot.
func (f *processFinder) seen(s node.Process, up time.Duration) {
	if s.ID() != f.known.ID() {
		f.cgroup = f.cgroupOf(s.PID)
	}
	f.known, f.seenAt, f.seenUp, f.peerPID = s, time.Now(), up, f.hop.held()
}

func (f *processFinder) cgroupOf(pid int) string {
	b, _ := node.ReadFile(node.Path(f.hop.procfs, pid, "cgroup")) // "" of one that has ended
	return string(b)
}

// find returns the process: the one that SO_PEERCRED named; else, as where systemd made
// the socket, the one that was found for the same connection; else the one that has the
// listener open; else the one that was there last; else its successor, which does not
// listen yet. The error is that it is gone, or why it cannot be found.
func (f *processFinder) find(ctx context.Context) (node.Process, error) {
	pid := f.hop.held()
	if pid > 1 {
		s, err := f.hop.table.Alive(pid)
		// The number may be given to another process: that counts only with the same name.
		if reused := f.named.PID == pid && f.named.Start != s.Start && f.named.Comm != s.Comm; err == nil && !reused {
			f.named = s
			return s, nil
		}
		if _, first := node.ReadStat(f.hop.procfs, 1); errors.Is(err, fs.ErrPermission) || first != nil {
			return node.Process{}, fmt.Errorf("look at pid %d, which listens at the runtime's socket: "+
				"%s does not show it to plegd (hidepid, ProtectProc, or another pid namespace)", pid, f.hop.procfs)
		}
	}
	known, err := f.hop.table.Alive(f.known.PID)
	alive := err == nil && known.ID() == f.known.ID()
	if alive && pid <= 1 && pid == f.peerPID {
		return known, nil // the listener may be another process's; the connection is not
	}
	err = node.ErrGone
	if inode := f.hop.inode(); inode != 0 {
		var holder node.Process
		if holder, err = f.hop.table.Holder(ctx, uint32(inode)); err == nil { //nolint:gosec // of a socket: 32 bits
			return holder, nil
		}
	}
	switch {
	case alive:
		return known, nil
	case f.known.PID != 0:
		return f.successor(ctx)
	}
	return node.Process{}, err
}

// successor returns the process that was started in the place of the one that was there
// last: of its name, in its cgroup, since it was last seen; of several the newest, but not
// a child that it has forked and that has yet to execute another program. So a runtime is
// found that starts before it listens.
func (f *processFinder) successor(ctx context.Context) (best node.Process, err error) {
	maxAge := time.Duration(0)
	if time.Since(f.seenAt) > successorGrace {
		maxAge = searchInterval
	}
	all, err := f.hop.table.Processes(ctx, maxAge)
	if err != nil {
		return node.Process{}, err
	}
	follows := func(s node.Process) bool {
		return s.Comm == f.known.Comm && node.TicksToDuration(s.Start+1) >= f.seenUp
	}
	for _, s := range all.ByPID {
		newest := s.Start >= best.Start && follows(s) && !follows(all.ByPID[s.PPID])
		if newest && f.cgroup != "" && f.cgroupOf(s.PID) == f.cgroup {
			best = s
		}
	}
	if best.PID == 0 {
		return node.Process{}, node.ErrGone
	}
	return best, nil
}
