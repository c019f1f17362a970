package exporter

import "time"

// EvidenceDocument is what the node says from outside the calls. A part is null
// while its source has said nothing, or is not configured.
type EvidenceDocument struct {
	Queue       *QueueDocument       `json:"queue"`
	Connections *ConnectionsDocument `json:"connections"`
	Process     *ProcessDocument     `json:"process"`
	Children    *ChildrenDocument    `json:"children"`
	Cgroup      *CgroupDocument      `json:"cgroup"`
	Node        *NodeDocument        `json:"node"`
	Kubelet     *KubeletDocument     `json:"kubelet"`
	// Docker is the fresh dial of the Docker socket, behind cri-dockerd.
	Docker *ProbeDocument `json:"docker"`
	// Sources tells of each source, by name, whether it answers.
	Sources map[string]SourceDocument `json:"sources"`
}

// SourceDocument is how a source of evidence is. At is when it was last asked,
// Seconds how long that took, Error why it did not answer.
type SourceDocument struct {
	Up      bool      `json:"up"`
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	Error   string    `json:"error"`
}

// QueueDocument is the accept queue of the runtime's listener. Length and Limit
// are null while nobody listens.
type QueueDocument struct {
	At        time.Time `json:"at"`
	Listening bool      `json:"listening"`
	Length    *int      `json:"length"`
	Limit     *int      `json:"limit"`
	// WaitingSeconds is how long the queue has not been empty.
	WaitingSeconds *float64 `json:"waiting_seconds"`
}

// ConnectionsDocument are the accepted connections of the runtime's socket.
type ConnectionsDocument struct {
	At       time.Time `json:"at"`
	Accepted int       `json:"accepted"`
	// Unread counts those with bytes that the runtime has yet to read;
	// UnreadSeconds is how long there have been any.
	Unread        int      `json:"unread"`
	UnreadBytes   int      `json:"unread_bytes"`
	UnreadSeconds *float64 `json:"unread_seconds"`
	// Stuck are the clients that do not read what the runtime has sent them.
	Stuck []StuckClientDocument `json:"stuck"`
}

// StuckClientDocument is a client of the runtime that does not read. PID is null
// when it cannot be told.
type StuckClientDocument struct {
	PID         *int    `json:"pid"`
	Comm        string  `json:"comm"`
	State       string  `json:"state"`
	UnsentBytes int     `json:"unsent_bytes"`
	UnreadBytes int     `json:"unread_bytes"`
	Seconds     float64 `json:"seconds"`
}

// ProcessDocument is the process behind the runtime's socket. Where Alive is
// false it is gone, and the rest is what it was.
type ProcessDocument struct {
	At    time.Time  `json:"at"`
	PID   int        `json:"pid"`
	Comm  string     `json:"comm"`
	Alive bool       `json:"alive"`
	Start *time.Time `json:"start"`
	// UpSeconds is its age, null when it is gone.
	UpSeconds *float64 `json:"up_seconds"`
	OpenFDs   *int     `json:"open_fds"`
	MaxFDs    *int     `json:"max_fds"`
	// Threads counts its threads by state: R, S, D, T, Z, other.
	Threads map[string]int `json:"threads"`
	// BlockedSeconds is how long some have been in D, WaitChannels where.
	BlockedSeconds *float64 `json:"blocked_seconds"`
	WaitChannels   []string `json:"wait_channels"`
	// CPU is the CPU time that it uses, CPUDelay the time for which it waits for
	// a CPU, both in seconds per second.
	CPU      float64       `json:"cpu"`
	CPUDelay float64       `json:"cpu_delay"`
	Lock     *LockDocument `json:"lock"`
	Restarts int           `json:"restarts"`
}

// LockDocument is a file lock that the process waits for.
type LockDocument struct {
	HolderPID  int     `json:"holder_pid"`
	HolderComm string  `json:"holder_comm"`
	File       string  `json:"file"`
	Seconds    float64 `json:"seconds"`
}

// ChildrenDocument are the processes that the runtime leaves its work to: Stuck
// are stopped, frozen or in D, Old have run for unusually long.
type ChildrenDocument struct {
	At    time.Time       `json:"at"`
	Shims int             `json:"shims"`
	Stuck []ChildDocument `json:"stuck"`
	Old   []ChildDocument `json:"old"`
}

// ChildDocument is one of them. Seconds is how long it has been in its state,
// or has run. Sandbox is the sandbox that it serves; null when that is not known
// or may not be shown.
type ChildDocument struct {
	PID     int     `json:"pid"`
	Comm    string  `json:"comm"`
	State   string  `json:"state"`
	Seconds float64 `json:"seconds"`
	Sandbox *string `json:"sandbox"`
}

// CgroupDocument is the runtime's cgroup. A limit that is not set is null.
type CgroupDocument struct {
	At     time.Time `json:"at"`
	Path   string    `json:"path"`
	Frozen bool      `json:"frozen"`
	// Throttled is the time for which its quota kept it from running, in seconds
	// per second, ThrottledPeriods the share of periods, ThrottledTotal all of
	// it.
	Throttled        float64 `json:"throttled"`
	ThrottledPeriods float64 `json:"throttled_periods"`
	ThrottledTotal   float64 `json:"throttled_total_seconds"`
	PIDs             int     `json:"pids"`
	PIDsMax          *int    `json:"pids_max"`
	Memory           int64   `json:"memory_bytes"`
	MemoryMax        *int64  `json:"memory_max_bytes"`
}

// NodeDocument is the node as a whole. Pressure is the share of time, in per
// cent over the last 10 s, in which some or all tasks waited; null where the
// kernel does not tell.
type NodeDocument struct {
	At         time.Time `json:"at"`
	CPUSome    *float64  `json:"cpu_some_percent"`
	MemorySome *float64  `json:"memory_some_percent"`
	MemoryFull *float64  `json:"memory_full_percent"`
	IOSome     *float64  `json:"io_some_percent"`
	IOFull     *float64  `json:"io_full_percent"`
	Files      uint64    `json:"files"`
	FilesMax   uint64    `json:"files_max"`
	Threads    int       `json:"threads"`
	ThreadsMax int       `json:"threads_max"`
}

// KubeletDocument is what the kubelet says of itself.
type KubeletDocument struct {
	At time.Time `json:"at"`
	// OK is true when its healthz is good; Refused when nobody listens there.
	OK      bool `json:"ok"`
	Refused bool `json:"refused"`
	// Detail names the failing checks, or says what could not be read.
	Detail string `json:"detail"`
	// FailedSeconds is how long it has not been OK.
	FailedSeconds *float64 `json:"failed_seconds"`
	// LastSeen is its own last seen, LastSeenAge the age of that.
	LastSeen    *time.Time `json:"last_seen"`
	LastSeenAge *float64   `json:"last_seen_age_seconds"`
}
