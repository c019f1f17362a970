package view

import "time"

// EvidenceDocument is what the node says from outside the calls. A part is null
// while its source has said nothing, or is not configured.
type EvidenceDocument struct {
	Queue       *QueueDocument       `json:"queue"`
	Listener    *ListenerDocument    `json:"listener"`
	Connections *ConnectionsDocument `json:"connections"`
	Process     *ProcessDocument     `json:"process"`
	Children    *ChildrenDocument    `json:"children"`
	Cgroup      *CgroupDocument      `json:"cgroup"`
	Node        *NodeDocument        `json:"node"`
	Kubelet     *KubeletDocument     `json:"kubelet"`
	// Docker is the Docker daemon, behind cri-dockerd.
	Docker *DockerDocument `json:"docker"`
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

// ListenerDocument is the process that a new connection to the runtime's path
// reaches: usually the one behind the held connection. PID is null for a process
// in another pid namespace. Command is its first argument, Unit its systemd unit;
// "" where not known. Seconds is how long it has listened there.
type ListenerDocument struct {
	At      time.Time `json:"at"`
	PID     *int      `json:"pid"`
	Comm    string    `json:"comm"`
	Command string    `json:"command"`
	Unit    string    `json:"unit"`
	Seconds float64   `json:"seconds"`
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

// ProcessDocument is the process behind the held connection. Command is its first
// argument, Unit its systemd unit; "" where not known. Where Alive is false it is
// gone, and the rest is what it was.
type ProcessDocument struct {
	At      time.Time  `json:"at"`
	PID     int        `json:"pid"`
	Comm    string     `json:"comm"`
	Command string     `json:"command"`
	Unit    string     `json:"unit"`
	Alive   bool       `json:"alive"`
	Start   *time.Time `json:"start"`
	// UpSeconds is its age, null when it is gone.
	UpSeconds *float64 `json:"up_seconds"`
	OpenFDs   *int     `json:"open_fds"`
	MaxFDs    *int     `json:"max_fds"`
	// Threads counts its threads by state: R, S, D, T, Z, other.
	Threads map[string]int `json:"threads"`
	// Blocked are threads in D, longest first; WaitChannels are the different
	// places where they wait.
	Blocked      []BlockedDocument `json:"blocked"`
	WaitChannels []string          `json:"wait_channels"`
	// CPU is the CPU time that it uses, CPUDelay the time for which it waits for
	// a CPU, both in seconds per second.
	CPU      float64       `json:"cpu"`
	CPUDelay float64       `json:"cpu_delay"`
	Lock     *LockDocument `json:"lock"`
	Restarts int           `json:"restarts"`
}

// BlockedDocument is a thread in D that has not run for Seconds. WaitChannel and
// Syscall are empty where they cannot be read.
type BlockedDocument struct {
	TID         int     `json:"tid"`
	Seconds     float64 `json:"seconds"`
	WaitChannel string  `json:"wait_channel"`
	Syscall     string  `json:"syscall"`
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
	// MemoryLimits are the levels of it that limit its memory, its own first.
	MemoryLimits []MemoryLimitDocument `json:"memory_limits"`
}

// MemoryLimitDocument is a level of the runtime's cgroup that limits its memory:
// High throttles, Max is the most. Events is how often these were met within the
// last seconds; OutOfMemory is true while its tasks wait for memory.
type MemoryLimitDocument struct {
	Path        string `json:"path"`
	Usage       int64  `json:"usage_bytes"`
	High        *int64 `json:"high_bytes"`
	Max         *int64 `json:"max_bytes"`
	Events      uint64 `json:"events"`
	OutOfMemory bool   `json:"out_of_memory"`
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
	// CPUIdle is the share of the CPUs' time that nobody used, 0 to 1.
	CPUIdle    *float64 `json:"cpu_idle"`
	Files      uint64   `json:"files"`
	FilesMax   uint64   `json:"files_max"`
	Threads    int      `json:"threads"`
	ThreadsMax int      `json:"threads_max"`
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

// DockerDocument is the Docker daemon behind cri-dockerd: the last fresh
// connection to its socket, and the processes behind that.
type DockerDocument struct {
	*ProbeDocument
	Socket string `json:"socket"`
	// AnsweredAt is when a /_ping was last answered, null for never.
	AnsweredAt *time.Time `json:"answered_at"`
	// Daemon is dockerd, Containerd the containerd that runs its containers; null
	// while not found.
	Daemon     *DockerProcessDocument `json:"daemon"`
	Containerd *DockerProcessDocument `json:"containerd"`
}

// DockerProcessDocument is one of these processes, with the socket that it
// listens on. DownSeconds is how long it has been stopped, frozen or gone.
type DockerProcessDocument struct {
	Socket      string           `json:"socket"`
	Queue       *QueueDocument   `json:"queue"`
	Process     *ProcessDocument `json:"process"`
	Frozen      bool             `json:"frozen"`
	DownSeconds *float64         `json:"down_seconds"`
}
