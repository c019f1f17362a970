package facts

import "time"

// KernelLog is what the kernel has logged lately that may explain a fault: of the processes that calls pass through and
// the kubelet, of tasks that hang, and of disks. It is evidence of a reason that matches without it.
type KernelLog struct {
	At       time.Time       `json:"at,omitzero"`
	Messages []KernelMessage `json:"messages,omitempty"` // by their last time, a few
	HasMore  bool            `json:"has_more,omitzero"`  // records are left to be read
}

// KernelMessage is a message of the kernel's.
type KernelMessage struct {
	At    time.Time `json:"at,omitzero"` // the last time
	Kind  LogKind   `json:"kind"`
	Text  string    `json:"text"`
	Count int       `json:"count,omitzero"`
	// PID is the process, TID its thread that hangs. Socket is where a killed hop behind the runtime has served.
	PID    int    `json:"pid,omitzero"`
	TID    int    `json:"tid,omitzero"`
	Socket string `json:"socket,omitzero"`
	Device string `json:"device,omitzero"` // as the kernel names it
	Cgroup string `json:"cgroup,omitzero"` // whose memory limit a process was killed for, "" for none or if unknown
}

// LogKind is what a message is about.
type LogKind string

// The kinds of messages.
const (
	LogKill        LogKind = "oom_kill"         // of a hop
	LogKubeletKill LogKind = "kubelet_oom_kill" // of the kubelet
	LogHung        LogKind = "hung_task"        // a task in D for kernel.hung_task_timeout_secs
	LogDisk        LogKind = "disk_error"       // of a block device, or of a file system on it
	LogLimit       LogKind = "oom_limit"        // why the next process is killed; never a fact of its own
)
