package facts

import (
	"cmp"
	"time"
)

// Evidence is the node's view of the runtime, from outside the calls. A part is nil until its
// source has a sample, and while that sample does not apply to the process behind the socket.
type Evidence struct {
	Sources        map[string]Source `json:"sources,omitempty"` // by name
	Hop                              // the runtime
	Hops           []Hop             `json:"hops,omitempty"` // the processes behind it that calls pass through
	Children       *Children         `json:"children,omitzero"`
	Storage        *Storage          `json:"storage,omitzero"`
	SandboxImage   *SandboxImage     `json:"sandbox_image,omitzero"`
	Node           *Node             `json:"node,omitzero"`
	KernelLog      *KernelLog        `json:"kernel_log,omitzero"`
	Kubelet        *Kubelet          `json:"kubelet,omitzero"`
	KubeletProcess *KubeletProcess   `json:"kubelet_process,omitzero"`
	KubeletAPI     *KubeletAPI       `json:"kubelet_api,omitzero"`
	KubeletUnit    string            `json:"kubelet_unit,omitzero"` // the systemd service that runs or last ran it, without ".service"
	Chain          *Chain            `json:"chain,omitzero"`        // nil while no call hangs
	Findings       []Finding         `json:"findings,omitempty"`    // those of the ledger the oldest first
	// Second is the chain of a reason beside the primary one, from the process that it is about; nil for none.
	Second *Finding `json:"second,omitzero"`
}

// Source is the state of a source of evidence.
type Source struct {
	Up       bool          `json:"up"` // it answered last time, at At, after Duration
	At       time.Time     `json:"at,omitzero"`
	Duration time.Duration `json:"duration_seconds"`
	Err      string        `json:"error,omitzero"` // why the read failed
	Kept     bool          `json:"kept,omitzero"`  // the previous sample is still valid
	// Unread are the parts that it could not read, with the outcome: "denied", "larger than
	// 50000 lines", "no answer in time". It answers without them.
	Unread map[string]string `json:"unread,omitempty"`
}

// Queue is the accept queue of the runtime's listener, by sock_diag.
type Queue struct {
	At time.Time `json:"at,omitzero"`
	// Listening is false when no listening socket is bound to the path; the numbers are 0 then.
	Listening      bool      `json:"listening"`
	Inode          uint64    `json:"inode,omitzero"`           // the listener's
	ListeningSince time.Time `json:"listening_since,omitzero"` // when a sample first showed this listener
	Length         int       `json:"length"`                   // connections not yet accepted
	Limit          int       `json:"limit"`                    // backlog; the kernel queues one more
	// WaitingSince is since when Length has been above 0 in every sample and has not fallen.
	WaitingSince time.Time `json:"waiting_since,omitzero"`
	// FellAt is when Length last fell: connections leave the queue only by being accepted.
	FellAt time.Time `json:"fell_at,omitzero"`
}

// Listener is the process that a new connection to the path reaches: usually the held connection's.
type Listener struct {
	At    time.Time `json:"at,omitzero"`
	Inode uint64    `json:"inode,omitzero"` // the socket's, 0 where sock_diag does not answer
	PID   int       `json:"pid"`            // 0 for a process in another pid namespace
	Comm  string    `json:"comm,omitzero"`
	// Command is its first argument, Unit its systemd unit; "" where these are not known.
	Command string    `json:"command,omitzero"`
	Unit    string    `json:"unit,omitzero"`
	Since   time.Time `json:"since,omitzero"` // when it was first found at the path
	// OtherMounts is true where the path exists for that process, and not in plegd's own mounts.
	OtherMounts bool `json:"other_mounts,omitzero"`
}

// Name says which process listens at the path.
func (l *Listener) Name() string {
	if l.PID == 0 {
		return "a process in another pid namespace"
	}
	return ProcessName(l.PID, l.Comm, l.Command, l.Unit)
}

// Children are the processes that the runtime leaves its work to.
type Children struct {
	At    time.Time `json:"at,omitzero"`
	Shims int       `json:"shims"` // conmons too
	// Stuck are the shims and conmons that are stopped, frozen or in D, longest first, a few.
	Stuck []Child `json:"stuck,omitempty"`
	// Old are helpers (runc, crun, CNI plugins) that have run for long, longest first, a few.
	Old []Child `json:"old,omitempty"`
}

// Child is one process of the runtime's.
type Child struct {
	PID  int    `json:"pid"`
	Comm string `json:"comm"`
	// State is T (stopped), D (uninterruptible), S (a thread sleeps without waiting for work), F (frozen) or another.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"` // begin of that state; for Old, its start
	// Sandbox is the id that its arguments name; PodUID is that pod's, where the last lists have it.
	Sandbox string `json:"sandbox,omitzero"`
	PodUID  string `json:"pod_uid,omitzero"`
}

// Cgroup is the runtime's own cgroup.
type Cgroup struct {
	At       time.Time `json:"at,omitzero"`
	Path     string    `json:"path"`
	Frozen   bool      `json:"frozen"`             // it or one above it is frozen
	FrozenAt time.Time `json:"frozen_at,omitzero"` // when it was last seen so
	// Throttled is the time per second, over the last sample, that its CPU quota took,
	// ThrottledPeriods the share of periods, 0 to 1, ThrottledAt when that was last seen.
	Throttled        float64       `json:"throttled"`
	ThrottledPeriods float64       `json:"throttled_periods"`
	ThrottledTotal   time.Duration `json:"throttled_total_seconds"`
	ThrottledAt      time.Time     `json:"throttled_at,omitzero"`
	ThrottledPath    string        `json:"throttled_path,omitzero"` // the level whose quota takes most
	// ThrottledSince is since when the quota has taken at least a tenth of the time in each sample, zero for not now.
	ThrottledSince time.Time       `json:"throttled_since,omitzero"`
	PIDs           int             `json:"pids"`
	PIDsMax        int             `json:"pids_max"`                // the nearest limit at it or above, 0 for none
	PIDsRefused    bool            `json:"pids_refused,omitzero"`   // a new task was refused for that limit within a minute
	MemoryLimits   []MemoryLimit   `json:"memory_limits,omitempty"` // the levels that limit its memory, its own first
	Pressure       *CgroupPressure `json:"pressure,omitzero"`       // nil where the kernel has none
}

// MemoryLimit is one level of the runtime's cgroup that limits its memory.
type MemoryLimit struct {
	Path  string `json:"path"`
	Usage int64  `json:"usage_bytes"`
	High  int64  `json:"high_bytes,omitzero"` // memory.high, above which its tasks slow down, 0 for no limit
	Max   int64  `json:"max_bytes,omitzero"`  // memory.max or memory.limit_in_bytes, 0 for no limit
	// How often these were met within the last samples (memory.events.local, memory.failcnt),
	// and how many evicted pages were read again per second.
	HighEvents uint64  `json:"high_events,omitzero"`
	MaxEvents  uint64  `json:"max_events,omitzero"`
	Refaults   float64 `json:"refaults,omitzero"`
	// OOM is true while its tasks wait for memory (memory.oom_control of v1), OOMKills counts those killed lately.
	OOM      bool   `json:"oom,omitzero"`
	OOMKills uint64 `json:"oom_kills,omitzero"`
	// OOMKilledAt is when the last of them was.
	OOMKilledAt time.Time `json:"oom_killed_at,omitzero"`
}

// CgroupPressure is the share of the last 10 s, in per cent, in which tasks of a cgroup waited; -1 if unknown.
type CgroupPressure struct {
	CPUSome    float64 `json:"cpu_some_percent"`
	MemoryFull float64 `json:"memory_full_percent"`
	IOSome     float64 `json:"io_some_percent"`
}

// OwnPressure returns the cgroup's own pressure, -1 where the kernel has none.
func (c *Cgroup) OwnPressure() CgroupPressure {
	return *cmp.Or(c.Pressure, &CgroupPressure{CPUSome: -1, MemoryFull: -1, IOSome: -1})
}

// Storage are the file systems on which the runtime, or dockerd behind cri-dockerd, keeps its data.
type Storage struct {
	At          time.Time    `json:"at,omitzero"`
	FileSystems []FileSystem `json:"file_systems,omitempty"`
	// Mounts is how many mounts the runtime's mount namespace has, MountsMax how many it may have (fs.mount-max); 0 if
	// unknown. At the limit mount fails with ENOSPC.
	Mounts    int `json:"mounts,omitzero"`
	MountsMax int `json:"mounts_max,omitzero"`
}

// FileSystem is one of them.
type FileSystem struct {
	Directory string `json:"directory"` // the runtime's, as it sees it
	Use       string `json:"use"`       // root for data that survive a reboot, else state
	Device    string `json:"device,omitzero"`
	Type      string `json:"type,omitzero"`
	// What root can still write and make; Bytes and Inodes are 0 for one without that limit.
	Bytes      int64 `json:"bytes"`
	FreeBytes  int64 `json:"free_bytes"`
	Inodes     int64 `json:"inodes"`
	FreeInodes int64 `json:"free_inodes"`
	ReadOnly   bool  `json:"read_only,omitzero"`
	// Option is the mount option for that where statfs(2) does not show it: "emergency_ro" after an error (Linux
	// 6.15), "shutdown" of a file system that the kernel has shut down.
	Option string `json:"option,omitzero"`
	// Lost is true where no path leads to the database that the process has open there: its file system was unmounted
	// or hidden, or the directory moved or removed.
	Lost bool `json:"lost,omitzero"`
	// Disks are the block devices that carry it, as the kernel names them: its own, and those below.
	Disks []string `json:"disks,omitempty"`
}

// SandboxImage is the image from which the runtime makes each pod's sandbox.
type SandboxImage struct {
	At   time.Time `json:"at,omitzero"` // when the runtime last answered whether it has it
	Name string    `json:"name"`
	// AbsentSince is since when each answer was that it has not, zero where it has.
	AbsentSince time.Time `json:"absent_since,omitzero"`
}

// Node is the node as a whole.
type Node struct {
	At time.Time `json:"at,omitzero"`
	// The share of the last 10 s, in per cent, in which some or all (full) tasks waited; -1 where there is none.
	CPUSome    float64 `json:"cpu_some_percent"`
	MemoryFull float64 `json:"memory_full_percent"`
	IOFull     float64 `json:"io_full_percent"`
	// CPUIdle is the unused share of the CPUs' time since the last sample (I/O wait too), -1 in the first.
	CPUIdle    float64 `json:"cpu_idle"`
	Files      uint64  `json:"files"` // /proc/sys/fs/file-nr
	FilesMax   uint64  `json:"files_max"`
	Threads    int     `json:"threads"`
	ThreadsMax int     `json:"threads_max"` // the smaller of pid_max and threads-max
	// InotifyMax is fs.inotify.max_user_instances while root has used up its instances, else 0.
	InotifyMax int `json:"inotify_max,omitzero"`
}

// Kubelet is the kubelet's report about itself.
type Kubelet struct {
	At          time.Time `json:"at,omitzero"`
	Seen        bool      `json:"seen"`                  // its healthz has ever answered
	OK          bool      `json:"ok"`                    // healthz answered 200
	Refused     bool      `json:"refused,omitzero"`      // nobody listens
	AnsweredAt  time.Time `json:"answered_at,omitzero"`  // the last healthz answer, with any status
	Detail      string    `json:"detail,omitzero"`       // the failing checks, or the error
	FailedSince time.Time `json:"failed_since,omitzero"` // zero while it is OK
	// By its metrics, where configured. Status, Sandboxes, Containers, Stops and Removals are its calls status,
	// run_podsandbox, create_container, stop_podsandbox and remove_podsandbox that have failed since one last succeeded, nil for none;
	// SlowCallAt is when its calls that start, stop or remove pods were last seen to take seconds, zero for never.
	// NoStartSince is since when there are such pods, and no call run_podsandbox has ended; zero while there are none.
	// WaitingPods is how many pods that are to run have no sandbox that does, EndingPods how many it ends.
	LastSeen     time.Time   `json:"last_seen,omitzero"` // kubelet_pleg_last_seen_seconds
	Status       *StartCalls `json:"status,omitzero"`
	Sandboxes    *StartCalls `json:"sandboxes,omitzero"`
	Containers   *StartCalls `json:"containers,omitzero"`
	Stops        *StartCalls `json:"stops,omitzero"`
	Removals     *StartCalls `json:"removals,omitzero"`
	SlowCallAt   time.Time   `json:"slow_call_at,omitzero"`
	WaitingPods  *int        `json:"waiting_pods,omitzero"`
	NoStartSince time.Time   `json:"no_start_since,omitzero"`
	EndingPods   int         `json:"ending_pods,omitzero"`
	Version      string      `json:"version,omitzero"` // as in "v1.35.4"
	API          APICalls    `json:"api,omitzero"`
}

// APICalls is how the kubelet's requests to its API server end, by its metrics.
type APICalls struct {
	// OKAt is when one was last seen to succeed, zero for never.
	OKAt time.Time `json:"ok_at,omitzero"`
	// Refused is how all others have ended since RefusedSince: 401, 403, or <error> for no answer.
	Refused      string    `json:"refused,omitzero"`
	RefusedSince time.Time `json:"refused_since,omitzero"`
}

// StartCalls are calls in a row that failed.
type StartCalls struct {
	Errors    int           `json:"errors"`
	Since     time.Time     `json:"since,omitzero"`      // when the first of them was seen
	LastError time.Time     `json:"last_error,omitzero"` // when the last was
	Longest   time.Duration `json:"longest_seconds"`     // what the longest took, as the mean of those seen at once
}

// The names of the settings of KubeletProcess.From.
const (
	SettingEndpoint         = "containerRuntimeEndpoint"
	SettingNodeStatusPeriod = "nodeStatusUpdateFrequency"
	SettingRequestTimeout   = "runtimeRequestTimeout"
	SettingHealthzPort      = "healthzPort"
	SettingEventedPLEG      = "featureGates.EventedPLEG"
	SettingOnDemandRelist   = "featureGates.PLEGOnDemandRelist"
)

// KubeletProcess is the kubelet's process and its settings, as far as the model depends on them.
type KubeletProcess struct {
	PID        int       `json:"pid"`
	Started    time.Time `json:"started,omitzero"`
	StartTicks uint64    `json:"start_ticks,omitzero"` // since boot, 0 if unknown
	Unit       string    `json:"unit,omitzero"`        // systemd's, "" for none or an unknown one
	// The settings are 0 where it uses the default.
	Endpoint         string        `json:"endpoint,omitzero"` // of the runtime
	NodeStatusPeriod time.Duration `json:"node_status_period_seconds,omitzero"`
	RequestTimeout   time.Duration `json:"request_timeout_seconds,omitzero"`
	EventedPLEG      bool          `json:"evented_pleg,omitzero"`
	OnDemandRelist   *bool         `json:"on_demand_relist,omitzero"` // nil for the default, which is on since 1.36
	HealthzPort      *int          `json:"healthz_port,omitzero"`     // nil for the default; 0 for none
	// Standalone is true where it has no API server: no --kubeconfig.
	Standalone bool `json:"standalone,omitzero"`
	// From says where each setting was made, by its name; Problem what could not be read.
	From    map[string]string `json:"from,omitzero"`
	Problem string            `json:"problem,omitzero"`
}

// KubeletAPI is the kubelet's way to its API server.
type KubeletAPI struct {
	At     time.Time `json:"at,omitzero"`
	Server string    `json:"server,omitzero"` // host and port by its kubeconfig, "" while unknown
	// Connections are established, Connecting have had no answer yet.
	Connections int `json:"connections"`
	Connecting  int `json:"connecting,omitzero"`
	// UnackedBytes is the most that a connection has sent, or is to send, without an
	// acknowledgement, Retransmits how often that was sent again in a row.
	UnackedBytes uint32 `json:"unacked_bytes,omitzero"`
	Retransmits  int    `json:"retransmits,omitzero"`
	// AckedAt is when the server last acknowledged a request, LostSince since when no connection
	// works, zero while one does; Unproven is true while one that is new may.
	AckedAt   time.Time `json:"acked_at,omitzero"`
	LostSince time.Time `json:"lost_since,omitzero"`
	Unproven  bool      `json:"unproven,omitzero"`
	// Certificate is the file of the kubelet's client certificate, "" where it is a part of the
	// kubeconfig; CertificateNotAfter is when it expires, zero if unknown.
	Certificate         string    `json:"certificate,omitzero"`
	CertificateNotAfter time.Time `json:"certificate_not_after,omitzero"`
	Problem             string    `json:"problem,omitzero"` // what could not be read
}

// HealthzOff reports whether the kubelet serves no healthz.
func (k *KubeletProcess) HealthzOff() bool { return k.HealthzPort != nil && *k.HealthzPort == 0 }
