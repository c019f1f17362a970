package facts

import (
	"cmp"
	"fmt"
	"time"
)

// Process is the process behind the held connection; before the first the one that listens at the path.
type Process struct {
	At      time.Time `json:"at,omitzero"`
	PID     int       `json:"pid"`
	Comm    string    `json:"comm"`
	Command string    `json:"command,omitzero"` // first argument, "" where it cannot be read
	Unit    string    `json:"unit,omitzero"`    // systemd's, "" for none
	Program string    `json:"program,omitzero"` // containerd, crio or dockerd where it has proved to be one
	Alive   bool      `json:"alive"`            // false when it has exited; the other fields then hold its last sample
	Start   time.Time `json:"start,omitzero"`
	// StartTicks is Start in clock ticks since boot: with the pid it identifies the process. 0: unknown.
	StartTicks uint64 `json:"start_ticks,omitzero"`
	// OpenFDs against MaxFDs, the soft limit (/proc/PID/limits); -1 where it may not be read.
	OpenFDs     int            `json:"open_fds"`
	MaxFDs      int            `json:"max_fds"`
	HardFDs     int            `json:"hard_fds,omitzero"`      // the hard limit, 0 if unknown
	FileSizeMax int            `json:"file_size_max,omitzero"` // RLIMIT_FSIZE, in bytes; 0 for no limit, or if unknown
	LargestFile int            `json:"largest_file,omitzero"`  // that it has open for writing, where there is that limit
	ExhaustedAt time.Time      `json:"exhausted_at,omitzero"`  // when they were last used up
	Threads     map[string]int `json:"threads,omitzero"`       // by state: R, S, D, T, Z, other; of the first 2,048
	ThreadCount int            `json:"thread_count,omitzero"`  // all of them, 0 if unknown
	// TracerPID is the process that traces it, by a sample every 5 s, Tracer that one's comm; 0 and "" for none.
	TracerPID int    `json:"tracer_pid,omitzero"`
	Tracer    string `json:"tracer,omitzero"`
	// Blocked are threads in D, or asleep without waiting for work, longest first, a few.
	Blocked []BlockedThread `json:"blocked,omitempty"`
	// CPU is the CPU time used, per second since the last sample. Delay is the time spent
	// runnable and waiting for a CPU, per second over the last two samples (schedstat, all
	// threads), DelayPerRun the mean of each wait: on a busy node these are many and brief.
	CPU         float64       `json:"cpu"`
	Delay       float64       `json:"delay"`
	DelayPerRun time.Duration `json:"delay_per_run_seconds,omitzero"`
	// StoppedAt is when all threads were last found stopped (T), Stops the last few begins of that.
	StoppedAt time.Time   `json:"stopped_at,omitzero"`
	Stops     []time.Time `json:"stops,omitempty"`
	Lock      *LockWait   `json:"lock,omitzero"` // nil when it waits for none
	// Restarts are the last few times at which another process was found, RestartsTotal counts all.
	Restarts      []time.Time `json:"restarts,omitempty"`
	RestartsTotal int         `json:"restarts_total"`
	// Preparing is, of one that has ended, a command that runs in its cgroup since and before the next one, as ExecStartPre
	// of its unit; nil for none.
	Preparing *Child `json:"preparing,omitzero"`
}

// BlockedThread is a thread in D, or asleep in a wait channel that is not idle, as for a pipe that nobody reads.
type BlockedThread struct {
	TID   int       `json:"tid"`
	Since time.Time `json:"since,omitzero"` // when it was first seen so; it has not run since
	// MostlySince is since when it has been in D in most samples, having run in between; or zero.
	MostlySince time.Time `json:"mostly_since,omitzero"`
	Asleep      bool      `json:"asleep,omitzero"` // in S, and not in D
	// Channel is the kernel function in which it waits (/proc/PID/wchan), "" where that
	// cannot be read; Syscall its system call, "" for none or one that plegd does not know.
	Channel string `json:"channel,omitzero"`
	Syscall string `json:"syscall,omitzero"`
}

// FDsExhausted reports whether the process has used up its descriptors.
func (p *Process) FDsExhausted() bool {
	return p.Alive && p.OpenFDs >= 0 && p.MaxFDs > 0 && p.OpenFDs >= p.MaxFDs
}

// Stopped reports whether every thread of the process is stopped.
func (p *Process) Stopped() bool {
	n := Total(p.Threads)
	return p.Alive && n > 0 && p.Threads["T"] == n
}

// LockWait is a file lock that a process waits for (/proc/locks). HolderPID is the process that took it, HolderComm its name,
// "" where it has ended or does not have the lock any more.
type LockWait struct {
	HolderPID  int       `json:"holder_pid"`
	HolderComm string    `json:"holder_comm,omitzero"`
	File       string    `json:"file"` // device:inode, or the path where it is known
	Since      time.Time `json:"since,omitzero"`
}

// Holder returns the process that has the lock, 0 where it is not known.
func (l *LockWait) Holder() int {
	if l == nil || l.HolderComm == "" {
		return 0
	}
	return l.HolderPID
}

// LivePID returns the pid of a process that runs, 0 for none.
func (p *Process) LivePID() int {
	if p == nil || !p.Alive {
		return 0
	}
	return p.PID
}

// Name identifies the process by pid, command and unit.
func (p *Process) Name() string { return ProcessName(p.PID, p.Comm, p.Command, p.Unit) }

// ProcessName identifies a process by pid, command (comm where that is empty) and systemd unit.
func ProcessName(pid int, comm, command, unit string) string {
	name := cmp.Or(command, comm)
	if unit != "" {
		name += ", " + unit
	}
	return fmt.Sprintf("pid %d (%s)", pid, name)
}

// ShortName names the process by its comm.
func (p *Process) ShortName() string { return ProcessName(p.PID, p.Comm, "", "") }
