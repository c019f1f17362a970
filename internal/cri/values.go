package cri

import "time"

// State is a container's state, with the numbers of runtime.v1's ContainerState.
type State uint8

// The container states of runtime.v1 (api.proto, enum ContainerState).
const (
	StateCreated State = 0
	StateRunning State = 1
	StateExited  State = 2
	StateUnknown State = 3
)

// NumStates is the number of container states.
const NumStates = 4

// String returns the state as the kubelet's running_containers metric names it.
func (s State) String() string {
	return []string{"created", "running", "exited", "unknown"}[min(s, StateUnknown)]
}

// Entry is what a relist needs of a sandbox or a container in a list. It is immutable:
// while nothing about it changes, successive lists hold the same pointer.
type Entry struct {
	Sandbox bool
	// ID is its own id, SandboxID that of its sandbox: a sandbox has the same twice.
	ID, SandboxID string
	// Name is a container's, from its metadata.
	Name string
	// PodUID, PodName and PodNamespace come from a sandbox's metadata, and from the labels
	// that the kubelet sets on a container; empty where they are missing.
	PodUID, PodName, PodNamespace string
	// Ignored reports whether the kubelet leaves the entry out: it has no id, no metadata,
	// or is a container without an image (kuberuntime/helpers.go, toKubeContainer).
	Ignored bool
	// State of a sandbox is running while it is READY, and else exited, as the kubelet has it.
	State State
	// CreatedAt is in nanoseconds since the epoch, zero where the runtime does not say it: containerd 1.6 gives the year 1
	// for a sandbox whose network could not be made.
	CreatedAt int64
}

// Age returns how old the entry is at a moment, and whether the runtime says it.
func (e *Entry) Age(moment time.Time) (age time.Duration, isKnown bool) {
	return moment.Sub(time.Unix(0, e.CreatedAt)), e.CreatedAt > 0
}

// Pod returns the namespace and name of its pod, "" where that has none.
func (e *Entry) Pod() string {
	if e.PodName == "" {
		return ""
	}
	return e.PodNamespace + "/" + e.PodName
}

// Operation is the call that asks for the entry alone.
func (e *Entry) Operation() string {
	if e.Sandbox {
		return OpPodSandboxStatus
	}
	return OpContainerStatus
}

// The operations that plegd calls, as the kubelet's metrics name them
// (kubelet_runtime_operations_total{operation_type}). All of them only read.
const (
	OpVersion          = "version"
	OpStatus           = "status"
	OpListPodSandbox   = "list_podsandbox"
	OpListContainers   = "list_containers"
	OpPodSandboxStatus = "podsandbox_status"
	OpContainerStatus  = "container_status"
)

// Operations lists every operation that plegd calls.
func Operations() []string {
	return []string{OpVersion, OpStatus, OpListPodSandbox, OpListContainers, OpPodSandboxStatus, OpContainerStatus}
}

// The gRPC codes that tell faults apart, by name. Other codes keep their names.
const (
	CodeOK                = "OK"
	CodeUnavailable       = "Unavailable"
	CodeDeadlineExceeded  = "DeadlineExceeded"
	CodeResourceExhausted = "ResourceExhausted"
	CodeUnimplemented     = "Unimplemented"
	CodeUnknown           = "Unknown"
	CodeNotFound          = "NotFound"
	CodeCanceled          = "Canceled"
)

// Call is one finished call.
type Call struct {
	Operation string
	Start     time.Time
	Duration  time.Duration
	// Bytes is the size of the answer on the wire, without framing. For a list
	// refused for its size it is the size that the refusal names.
	Bytes int
	// Code is the gRPC code's name.
	Code string
}
