package cri

import (
	"time"

	"github.com/plegd/plegd/internal/health"
)

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

// Sandbox is what a relist needs of one entry of ListPodSandbox. It is
// immutable: while nothing about the entry changes, successive lists hold the
// same pointer.
type Sandbox struct {
	ID string
	// PodUID, Name and Namespace come from the entry's metadata. All are empty when
	// HasMetadata is false.
	PodUID, Name, Namespace string
	HasMetadata             bool
	// Ready tells SANDBOX_READY from everything else.
	Ready bool
	// CreatedAt is in nanoseconds since the epoch.
	CreatedAt int64
}

// Container is what a relist needs of one entry of ListContainers. It is
// immutable: while nothing about the entry changes, successive lists hold the
// same pointer.
type Container struct {
	ID        string
	SandboxID string
	// Name comes from the entry's metadata; HasMetadata is false where there is none.
	Name        string
	HasMetadata bool
	// HasImage reports whether the entry names an image; the kubelet leaves out
	// an entry that does not (kuberuntime/helpers.go, toKubeContainer).
	HasImage bool
	State    State
	// PodUID, PodName and PodNamespace come from the labels that the kubelet
	// sets (io.kubernetes.pod.uid, .name, .namespace); empty where it has not.
	PodUID, PodName, PodNamespace string
	// CreatedAt is in nanoseconds since the epoch.
	CreatedAt int64
}

// Status is a Status answer. A condition that it does not hold is nil.
type Status struct {
	RuntimeReady, NetworkReady *health.Condition
}

// Version is a Version answer.
type Version struct {
	RuntimeName, RuntimeVersion, RuntimeAPIVersion string
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
