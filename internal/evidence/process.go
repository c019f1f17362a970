package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/health"
)

const (
	// maxThreads bounds how many threads of the runtime are looked at.
	maxThreads = 2048
	// maxProcesses bounds every search through /proc.
	maxProcesses = 32768
	// keptRestarts is how many restarts are remembered one by one.
	keptRestarts = 10
	// keptChannels is how many wait channels are named.
	keptChannels = 3
	// searchEvery is the least time between two searches through /proc for the
	// runtime's process.
	searchEvery = 5 * time.Second
)

// ProcessOptions configure the source about the runtime's process.
type ProcessOptions struct {
	// ProcFS is where /proc is mounted.
	ProcFS string
	// PeerPID returns who listens at the socket, as SO_PEERCRED told; 0 when it
	// cannot be told, 1 when systemd made the socket.
	PeerPID func() int
	// ListenerInode returns the inode of the listening socket, 0 when it is not
	// known; used where PeerPID does not say.
	ListenerInode func() uint64
}

// Process is the source about the process behind the runtime's socket: its file
// descriptors, its threads, its start. It reads /proc/PID/{stat,limits,
// schedstat,task} and the size of /proc/PID/fd, none of which needs a
// privilege, and no file that waits for the process's memory (cmdline, smaps):
// these block on one that is wedged.
type Process struct {
	*Watch[health.Process]
	opts ProcessOptions
	pid  atomic.Int64

	// What follows belongs to gather.
	boot     time.Time
	known    procStat // the process that was there last
	cgroup   string   // what /proc/PID/cgroup said of it
	last     *health.Process
	aliveAt  time.Time
	before   threadTimes
	searched time.Time
}

// threadTimes are the CPU times of all threads at one moment.
type threadTimes struct {
	at         time.Time
	pid        int
	start      uint64
	run, delay time.Duration
}

// NewProcess returns the source; it looks every second.
func NewProcess(opts ProcessOptions) *Process {
	p := &Process{opts: opts}
	p.Watch = NewWatch("process", Timing{Period: time.Second, Timeout: 500 * time.Millisecond}, p.gather)
	return p
}

// PID is the runtime's process, 0 while it is not known or is gone.
func (p *Process) PID() int { return int(p.pid.Load()) }

func (p *Process) gather(ctx context.Context) (*health.Process, error) {
	if p.boot.IsZero() {
		boot, err := bootTime(p.opts.ProcFS)
		if err != nil {
			return nil, err
		}
		p.boot = boot
	}
	pid, err := p.find(ctx)
	if err != nil {
		return nil, err
	}
	stat, err := readStat(p.opts.ProcFS, strconv.Itoa(pid))
	if pid == 0 || err != nil || stat.state == 'Z' || stat.state == 'X' {
		return p.gone()
	}
	v, err := p.look(stat)
	if gone(err) { // it has ended between two reads
		return p.gone()
	}
	if err != nil {
		return nil, err
	}
	p.pid.Store(int64(pid))
	if p.known.pid != stat.pid || p.known.start != stat.start {
		b, _ := readProc(p.opts.ProcFS, strconv.Itoa(pid), "cgroup")
		p.cgroup = string(b)
	}
	p.known, p.last, p.aliveAt = stat, v, v.At
	return v, nil
}

// gone is what is said while there is no process: what there was, not alive.
func (p *Process) gone() (*health.Process, error) {
	p.pid.Store(0)
	if p.last == nil {
		return nil, ErrNoData
	}
	v := *p.last
	v.At, v.Alive = time.Now(), false
	p.last = &v
	return &v, nil
}

// find returns the pid of the runtime, 0 when it is gone.
func (p *Process) find(ctx context.Context) (int, error) {
	pid := p.opts.PeerPID()
	if pid > 1 && p.exists(pid) {
		return pid, nil
	}
	// The process that was known, as long as it is the same one.
	if p.known.pid > 1 {
		if s, err := readStat(p.opts.ProcFS, strconv.Itoa(p.known.pid)); err == nil && s.start == p.known.start && s.state != 'Z' {
			return p.known.pid, nil
		}
	}
	every := time.Duration(0)
	if p.known.pid == 0 {
		every = searchEvery
	}
	if time.Since(p.searched) < every {
		return 0, nil
	}
	if inode := p.opts.ListenerInode(); inode != 0 && pid <= 1 {
		p.searched = time.Now()
		holder, err := holderOf(ctx, p.opts.ProcFS, inode)
		if holder > 1 || err != nil && p.known.pid == 0 {
			return holder, err
		}
		// Of a process that was known it is certain that it is gone, whoever
		// has the listener now.
	}
	if p.known.comm == "" {
		return 0, nil
	}
	return p.successor(ctx)
}

func (p *Process) exists(pid int) bool {
	s, err := readStat(p.opts.ProcFS, strconv.Itoa(pid))
	return err == nil && s.state != 'Z' && s.state != 'X'
}

// successor returns the newest process with the name of the one that was there
// last and is gone, in the same cgroup and started since it was last seen: the
// runtime being started again, before it listens.
func (p *Process) successor(ctx context.Context) (int, error) {
	all, err := pids(p.opts.ProcFS, maxProcesses)
	if err != nil {
		return 0, err
	}
	newest := procStat{}
	seen := p.seenUntil()
	for _, pid := range all {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		s, err := readStat(p.opts.ProcFS, strconv.Itoa(pid))
		if err == nil && s.comm == p.known.comm && s.state != 'Z' && s.start >= seen && s.start > newest.start {
			if b, err := readProc(p.opts.ProcFS, strconv.Itoa(pid), "cgroup"); err == nil && string(b) == p.cgroup {
				newest = s
			}
		}
	}
	return newest.pid, nil
}

// seenUntil is when the known process was last seen alive, in clock ticks since
// boot.
func (p *Process) seenUntil() uint64 {
	if p.aliveAt.IsZero() {
		return p.known.start
	}
	alive := p.aliveAt.Sub(p.boot) - 2*time.Second // the boot's moment is rounded
	return max(p.known.start, uint64(max(0, alive)/(time.Second/clockTicks)))
}

// look reads all about a process.
func (p *Process) look(stat procStat) (*health.Process, error) {
	dir := filepath.Join(p.opts.ProcFS, strconv.Itoa(stat.pid))
	now := time.Now()
	v := &health.Process{
		At: now, PID: stat.pid, Comm: stat.comm, Alive: true,
		Start:   p.boot.Add(time.Duration(stat.start) * time.Second / clockTicks),
		OpenFDs: openFDs(dir), MaxFDs: -1, Threads: map[string]int{"R": 0, "S": 0, "D": 0, "T": 0, "Z": 0, "other": 0},
	}
	if b, err := readProc(dir, "limits"); err == nil {
		v.MaxFDs = maxFDs(b)
	}
	times := threadTimes{at: now, pid: stat.pid, start: stat.start}
	var blocked []string
	tids, err := numbers(filepath.Join(dir, "task"), maxThreads)
	if err != nil {
		return nil, err
	}
	for _, tid := range tids {
		task := filepath.Join(dir, "task", strconv.Itoa(tid))
		s, err := readStat(task)
		if err != nil {
			continue // it has just ended
		}
		v.Threads[threadState(s.state)]++
		if s.state == 'D' && len(blocked) < maxThreads {
			if b, err := readProc(task, "wchan"); err == nil && len(b) > 0 && string(b) != "0" {
				blocked = append(blocked, string(b))
			}
		}
		if b, err := readProc(task, "schedstat"); err == nil {
			run, delay := parseSchedstat(b)
			times.run += run
			times.delay += delay
		}
	}
	slices.Sort(blocked)
	v.WaitChannels = slices.Compact(blocked)
	v.WaitChannels = v.WaitChannels[:min(len(v.WaitChannels), keptChannels)]
	if b := p.before; b.pid == stat.pid && b.start == stat.start && now.After(b.at) {
		seconds := now.Sub(b.at).Seconds()
		v.CPU = math.Max(0, (times.run-b.run).Seconds()/seconds) // a thread that ended takes its time along
		v.Delay = math.Max(0, (times.delay-b.delay).Seconds()/seconds)
	}
	p.before = times
	p.carryOver(v, stat)
	v.Lock = p.lockWait(v)
	return v, nil
}

// carryOver takes over what lasts from one sample to the next.
func (p *Process) carryOver(v *health.Process, stat procStat) {
	last := p.last
	if v.Threads["D"] > 0 {
		v.BlockedSince = v.At
	}
	if last == nil {
		return
	}
	v.Restarts, v.RestartsTotal = last.Restarts, last.RestartsTotal
	if p.known.pid != stat.pid || p.known.start != stat.start {
		v.RestartsTotal++
		v.Restarts = append(slices.Clone(last.Restarts[max(0, len(last.Restarts)-keptRestarts+1):]), v.At)
		return
	}
	if v.Threads["D"] > 0 && !last.BlockedSince.IsZero() {
		v.BlockedSince = last.BlockedSince
	}
}

func threadState(s byte) string {
	switch s {
	case 'R', 'S', 'D', 'T', 'Z':
		return string(s)
	case 'I': // an idle kernel thread
		return "S"
	case 't': // stopped by a tracer
		return "T"
	default:
		return "other"
	}
}

// openFDs is the number of open descriptors: the size of /proc/PID/fd, which
// needs no privilege (kernel 6.2 and newer); elsewhere they are counted, which
// does. -1 when it may not be read.
func openFDs(dir string) int {
	info, err := os.Stat(filepath.Join(dir, "fd"))
	if err != nil {
		return -1
	}
	if n := info.Size(); n > 0 {
		return int(n)
	}
	d, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return -1
	}
	defer func() { _ = d.Close() }()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return -1
	}
	return len(names)
}

// maxFDs is the soft limit of "Max open files" in /proc/PID/limits; -1 when it
// cannot be read, MaxInt for unlimited.
func maxFDs(limits []byte) int {
	for line := range bytes.Lines(limits) {
		rest, ok := bytes.CutPrefix(line, []byte("Max open files"))
		if !ok {
			continue
		}
		fields := strings.Fields(string(rest))
		if len(fields) == 0 {
			return -1
		}
		if fields[0] == "unlimited" {
			return math.MaxInt
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil || n < 0 {
			return -1
		}
		return n
	}
	return -1
}

// parseSchedstat returns the time on a CPU and the time runnable without one of
// a /proc/PID/schedstat; zero for what it cannot read.
func parseSchedstat(b []byte) (run, delay time.Duration) {
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, 0
	}
	r, err1 := strconv.ParseInt(fields[0], 10, 64)
	d, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err1 != nil || err2 != nil || r < 0 || d < 0 {
		return 0, 0
	}
	return time.Duration(r), time.Duration(d)
}

// holderOf returns a process that has the socket of an inode open, 0 when none
// that may be looked at has. To look into another process's descriptors takes
// CAP_SYS_PTRACE.
func holderOf(ctx context.Context, procfs string, inode uint64) (int, error) {
	all, err := pids(procfs, maxProcesses)
	if err != nil {
		return 0, err
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	denied := false
	for _, pid := range all {
		if pid == 1 || ctx.Err() != nil {
			continue
		}
		dir := filepath.Join(procfs, strconv.Itoa(pid), "fd")
		fds, err := numbers(dir, maxProcesses)
		if err != nil {
			denied = denied || errors.Is(err, os.ErrPermission)
			continue
		}
		for _, fd := range append(fds, 0) {
			if target, err := os.Readlink(filepath.Join(dir, strconv.Itoa(fd))); err == nil && target == want {
				return pid, nil
			}
		}
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if denied {
		return 0, errors.New("find the process behind the runtime's socket: the descriptors of other processes may not be read (it takes CAP_SYS_PTRACE)")
	}
	return 0, nil
}
