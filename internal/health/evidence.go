package health

import "time"

// Evidence is what the node says of the runtime from outside the calls. A part
// is nil while its source has said nothing, or while what it says is no longer
// true of the process behind the socket.
type Evidence struct {
	// Sources tells of each source, by name, whether it answers.
	Sources map[string]Source `json:"sources,omitempty"`

	Queue       *Queue       `json:"queue,omitempty"`
	Connections *Connections `json:"connections,omitempty"`
	Process     *Process     `json:"process,omitempty"`
	Children    *Children    `json:"children,omitempty"`
	Cgroup      *Cgroup      `json:"cgroup,omitempty"`
	Node        *Node        `json:"node,omitempty"`
	Kubelet     *Kubelet     `json:"kubelet,omitempty"`
	Docker      *Probe       `json:"docker,omitempty"`
}

// Source is how a source of evidence is.
type Source struct {
	// Up is true when it answered last time, at At, after Duration.
	Up       bool          `json:"up"`
	At       time.Time     `json:"at"`
	Duration time.Duration `json:"duration_ns"`
	// Err says why it did not. Kept is true while what it said the time before
	// still counts.
	Err  string `json:"err,omitempty"`
	Kept bool   `json:"kept,omitempty"`
}

// Queue is the accept queue of the runtime's listener, by sock_diag.
type Queue struct {
	At time.Time `json:"at"`
	// Listening is false when no listening socket is bound to the path; the
	// numbers are 0 then.
	Listening bool `json:"listening"`
	// Inode is the listener's.
	Inode uint64 `json:"inode,omitempty"`
	// Length is the number of connections not yet accepted, Limit the most that
	// fit (one more does).
	Length int `json:"length"`
	Limit  int `json:"limit"`
	// WaitingSince is since when Length has been above 0 in every sample and has
	// not fallen; zero when it was 0 in the last.
	WaitingSince time.Time `json:"waiting_since"`
	// FellAt is when Length was last lower than the sample before: connections
	// leave the queue only by being accepted. Zero for never.
	FellAt time.Time `json:"fell_at,omitzero"`
}

// Connections are the accepted connections of the runtime's socket, by
// sock_diag.
type Connections struct {
	At time.Time `json:"at"`
	// Accepted is their number.
	Accepted int `json:"accepted"`
	// Unread counts those with bytes that the runtime has yet to read,
	// UnreadBytes these bytes, UnreadSince since when there have been any in
	// every sample.
	Unread      int       `json:"unread,omitempty"`
	UnreadBytes int       `json:"unread_bytes,omitempty"`
	UnreadSince time.Time `json:"unread_since"`
	// Stuck are the clients that do not read what the runtime has sent them: it
	// has unsent bytes, they have unread ones, and neither moves.
	Stuck []StuckClient `json:"stuck,omitempty"`
}

// StuckClient is a client of the runtime that does not read.
type StuckClient struct {
	// PID is the process that holds the client's end, 0 when it cannot be
	// told; Comm its name, State its first thread's state.
	PID   int    `json:"pid,omitempty"`
	Comm  string `json:"comm,omitempty"`
	State string `json:"state,omitempty"`
	// UnsentBytes wait at the runtime's end, UnreadBytes at the client's.
	UnsentBytes int `json:"unsent_bytes"`
	UnreadBytes int `json:"unread_bytes"`
	// Since is when neither number has moved since.
	Since time.Time `json:"since"`
}

// Process is the process behind the runtime's socket.
type Process struct {
	At   time.Time `json:"at"`
	PID  int       `json:"pid"`
	Comm string    `json:"comm"`
	// Alive is false when the process that was there last is gone; the rest is
	// what it was then.
	Alive bool `json:"alive"`
	// Start is when it was started.
	Start time.Time `json:"start"`
	// OpenFDs against MaxFDs, the soft limit (/proc/PID/limits); -1 where it
	// may not be read. OpenFDs can exceed the limit by an inherited descriptor.
	OpenFDs int `json:"open_fds"`
	MaxFDs  int `json:"max_fds"`
	// ExhaustedAt is when they were last seen to be used up; zero for never.
	ExhaustedAt time.Time `json:"exhausted_at,omitzero"`
	// Threads counts the threads by state: R, S, D, T, Z, other.
	Threads map[string]int `json:"threads,omitempty"`
	// BlockedSince is since when at least one thread has been in D in every
	// sample; WaitChannels are where these wait, where that may be read.
	BlockedSince time.Time `json:"blocked_since"`
	WaitChannels []string  `json:"wait_channels,omitempty"`
	// CPU is the CPU time used, Delay the time spent runnable and waiting for a
	// CPU (schedstat, all threads), both per second since the last sample.
	CPU   float64 `json:"cpu"`
	Delay float64 `json:"delay"`
	// Lock is a file lock that it waits for, nil when it waits for none.
	Lock *LockWait `json:"lock,omitempty"`
	// Restarts are the moments at which another process was found behind the
	// socket, the last few; RestartsTotal counts them all.
	Restarts      []time.Time `json:"restarts,omitempty"`
	RestartsTotal int         `json:"restarts_total"`
}

// FDsExhausted tells whether the process has used up its descriptors.
func (p *Process) FDsExhausted() bool {
	return p.Alive && p.OpenFDs >= 0 && p.MaxFDs > 0 && p.OpenFDs >= p.MaxFDs
}

// LockWait is a file lock that a process waits for (/proc/locks).
type LockWait struct {
	// HolderPID has it; HolderComm is its name.
	HolderPID  int    `json:"holder_pid"`
	HolderComm string `json:"holder_comm,omitempty"`
	// File is device:inode, or the path where it can be told.
	File  string    `json:"file"`
	Since time.Time `json:"since"`
}

// Children are the processes that the runtime leaves its work to.
type Children struct {
	At time.Time `json:"at"`
	// Shims is the number of shims and conmons.
	Shims int `json:"shims"`
	// Stuck are the shims and conmons that are stopped, frozen or in D,
	// longest first, a few.
	Stuck []Child `json:"stuck,omitempty"`
	// Old are helpers (runc, crun, CNI plugins) that have run for unusually
	// long, longest first, a few.
	Old []Child `json:"old,omitempty"`
}

// Child is one process of the runtime's.
type Child struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	// State is T (stopped), D (uninterruptible), F (frozen cgroup), or any
	// other state of /proc/PID/stat.
	State string `json:"state"`
	// Since is since when it has been in that state; for Old, its start.
	Since time.Time `json:"since"`
	// Sandbox is the id of the sandbox that it serves, where its arguments name
	// one.
	Sandbox string `json:"sandbox,omitempty"`
}

// Cgroup is the runtime's own cgroup.
type Cgroup struct {
	At   time.Time `json:"at"`
	Path string    `json:"path"`
	// Frozen is true when it or one above it is frozen.
	Frozen bool `json:"frozen"`
	// Throttled is the time per second, over the last sample, that it was kept
	// from running by its CPU quota; ThrottledPeriods the share of periods, 0
	// to 1. ThrottledTotal is the time in all.
	Throttled        float64       `json:"throttled"`
	ThrottledPeriods float64       `json:"throttled_periods"`
	ThrottledTotal   time.Duration `json:"throttled_total_ns"`
	// PIDs against PIDsMax, the nearest limit at it or above; PIDsMax is 0 when
	// there is none. Memory likewise, in bytes.
	PIDs      int   `json:"pids"`
	PIDsMax   int   `json:"pids_max"`
	Memory    int64 `json:"memory"`
	MemoryMax int64 `json:"memory_max"`
}

// Node is the node as a whole.
type Node struct {
	At time.Time `json:"at"`
	// Pressure is the share of time, in per cent over the last 10 s, in which
	// some (or all: full) tasks waited (/proc/pressure); -1 where there is none.
	CPUSome    float64 `json:"cpu_some"`
	MemorySome float64 `json:"memory_some"`
	MemoryFull float64 `json:"memory_full"`
	IOSome     float64 `json:"io_some"`
	IOFull     float64 `json:"io_full"`
	// Files against FilesMax (/proc/sys/fs/file-nr).
	Files    uint64 `json:"files"`
	FilesMax uint64 `json:"files_max"`
	// Threads against ThreadsMax: the smaller of pid_max and threads-max.
	Threads    int `json:"threads"`
	ThreadsMax int `json:"threads_max"`
}

// Kubelet is what the kubelet says of itself.
type Kubelet struct {
	At time.Time `json:"at"`
	// Seen is true once its healthz has ever answered.
	Seen bool `json:"seen"`
	// OK is true when healthz answered 200. Refused is true when nobody listens.
	OK      bool `json:"ok"`
	Refused bool `json:"refused,omitempty"`
	// Detail is the failing checks, or the error.
	Detail string `json:"detail,omitempty"`
	// FailedSince is since when it has not been OK, zero while it is.
	FailedSince time.Time `json:"failed_since"`
	// LastSeen is kubelet_pleg_last_seen_seconds, zero where not configured.
	LastSeen time.Time `json:"last_seen"`
}
