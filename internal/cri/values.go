package cri

import (
	"fmt"
	"time"
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
	switch s {
	case StateCreated:
		return "created"
	case StateRunning:
		return "running"
	case StateExited:
		return "exited"
	default:
		return "unknown"
	}
}

// Sandbox is what a relist needs of one entry of ListPodSandbox. It is
// immutable: while nothing about the entry changes, successive lists hold the
// same pointer.
type Sandbox struct {
	ID string
	// PodUID, Name and Namespace come from the entry's metadata, as does
	// Attempt. All are zero when HasMetadata is false.
	PodUID, Name, Namespace string
	Attempt                 uint32
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
	// Name and Attempt come from the entry's metadata; HasMetadata is false
	// where there is none.
	Name        string
	Attempt     uint32
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

// SandboxStatus is what plegd keeps of a PodSandboxStatus answer.
type SandboxStatus struct {
	ID        string
	Ready     bool
	IPs       []string
	CreatedAt int64
}

// ContainerStatus is what plegd keeps of a ContainerStatus answer. Times are in
// nanoseconds since the epoch, 0 where the runtime sets none.
type ContainerStatus struct {
	ID, Name                         string
	State                            State
	ExitCode                         int32
	Reason                           string
	CreatedAt, StartedAt, FinishedAt int64
}

// Condition is one runtime condition of a Status answer.
type Condition struct {
	Type, Reason, Message string
	Status                bool
}

// Status is what plegd keeps of a Status answer. A condition that the answer
// does not hold is nil.
type Status struct {
	RuntimeReady, NetworkReady *Condition
	// Info is the verbose part, nil unless it was asked for.
	Info map[string]string
}

// Version is a Version answer.
type Version struct {
	RuntimeName, RuntimeVersion, RuntimeAPIVersion string
}

// Operation is the name of a call as the kubelet's metrics name it
// (kubelet_runtime_operations_total{operation_type}).
type Operation string

// The operations that plegd calls. All of them only read.
const (
	OpVersion          Operation = "version"
	OpStatus           Operation = "status"
	OpListPodSandbox   Operation = "list_podsandbox"
	OpListContainers   Operation = "list_containers"
	OpPodSandboxStatus Operation = "podsandbox_status"
	OpContainerStatus  Operation = "container_status"
)

// Operations lists every operation that plegd calls.
func Operations() []Operation {
	return []Operation{OpVersion, OpStatus, OpListPodSandbox, OpListContainers, OpPodSandboxStatus, OpContainerStatus}
}

// Code is the outcome of a call: the name of its gRPC status code.
type Code string

// The codes that tell faults apart. Every other gRPC code keeps its own name.
const (
	CodeOK                Code = "OK"
	CodeUnavailable       Code = "Unavailable"
	CodeDeadlineExceeded  Code = "DeadlineExceeded"
	CodeResourceExhausted Code = "ResourceExhausted"
	CodeUnimplemented     Code = "Unimplemented"
	CodeUnknown           Code = "Unknown"
	CodeNotFound          Code = "NotFound"
	CodeCanceled          Code = "Canceled"
)

// Call is one finished call.
type Call struct {
	Operation Operation
	Start     time.Time
	Duration  time.Duration
	// Bytes is the size of the answer on the wire, without framing. For a list
	// refused for its size it is the size that the refusal names.
	Bytes int
	Code  Code
}

// Error is a failed call.
type Error struct {
	Operation Operation
	Code      Code
	Message   string
	// Bytes and Limit are set when a message was refused for its size: how
	// large it was and how large it might have been. ByServer tells whose limit
	// it was.
	Bytes, Limit int
	ByServer     bool
	// Undecodable is set when an answer came and is no message of runtime.v1.
	Undecodable bool
	// TooMany is set if a list held more than MaxEntries entries.
	TooMany bool
}

// Error says what was tried and what came of it.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Operation, e.Code, e.Message)
}
