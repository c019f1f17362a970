package health

import "time"

// LinkKind is what a link of a chain of waiting is.
type LinkKind string

// The kinds of links.
const (
	KindCall      LinkKind = "call"
	KindContainer LinkKind = "container"
	KindPod       LinkKind = "pod"
	KindRuntime   LinkKind = "runtime"
	KindShim      LinkKind = "shim"
	KindHelper    LinkKind = "helper"
	KindProcess   LinkKind = "process"
	KindClient    LinkKind = "client"
	KindMount     LinkKind = "mount"
	KindDevice    LinkKind = "device"
	KindCgroup    LinkKind = "cgroup"
	KindNode      LinkKind = "node"
	KindKernel    LinkKind = "kernel"
	KindKubelet   LinkKind = "kubelet"
)

// CulpritKinds lists the kinds that the last link of a chain may have.
func CulpritKinds() []LinkKind {
	return []LinkKind{KindContainer, KindPod, KindRuntime, KindShim, KindHelper, KindProcess, KindMount, KindDevice,
		KindCgroup, KindKernel}
}

// LinkState is what a link does instead of answering.
type LinkState string

// The states of a link.
const (
	// LinkUnanswered is a call, or what stands for one, that is not answered.
	LinkUnanswered LinkState = "unanswered"
	// LinkStopped is a process stopped by a signal, LinkTraced one that a tracer
	// holds, LinkFrozen one in a frozen cgroup.
	LinkStopped LinkState = "stopped"
	LinkTraced  LinkState = "traced"
	LinkFrozen  LinkState = "frozen"
	// LinkBlocked waits in the kernel for a file system or a device.
	LinkBlocked LinkState = "blocked"
	// LinkLocked waits for a file lock.
	LinkLocked LinkState = "locked"
	// LinkChild waits for a child to end.
	LinkChild LinkState = "child"
	// LinkPeer waits for the other end of a socket or pipe.
	LinkPeer LinkState = "peer"
	// LinkMemory is held by a memory limit, LinkThrottled by a CPU quota;
	// LinkStarved is runnable and gets no CPU.
	LinkMemory    LinkState = "memory"
	LinkThrottled LinkState = "throttled"
	LinkStarved   LinkState = "starved"
	// LinkUnread sleeps while bytes wait on its socket, LinkAsleep sleeps and waits for
	// nothing visible outside the process.
	LinkUnread LinkState = "unread"
	LinkAsleep LinkState = "asleep"
	// LinkEnded has ended and is not reaped by its parent.
	LinkEnded LinkState = "ended"
	// LinkRunning uses the CPU.
	LinkRunning LinkState = "running"
	// LinkLoop waits for a process that stands earlier in the chain.
	LinkLoop LinkState = "loop"
	// LinkUnknown is a process for which the kernel shows no resource that it waits for.
	LinkUnknown LinkState = "unknown"
)

// Link is one step of a chain of waiting. Name may be that of a container, a pod
// or a path; Evidence holds paths and commands: both stay on the node.
type Link struct {
	Kind LinkKind `json:"kind"`
	Name string   `json:"name"`
	PID  int      `json:"pid,omitzero"`
	// RuntimeID is the runtime's id of a container, a pod or a shim's sandbox, as crictl
	// takes it.
	RuntimeID string `json:"id,omitzero"`
	// Pod is the namespace and name of the pod that a shim serves; it stays on the node.
	Pod string `json:"pod,omitzero"`
	// Since is when the link was first seen in this state, or when a call or a
	// helper began.
	Since time.Time `json:"since,omitzero"`
	State LinkState `json:"state"`
	// Evidence is one short fact with numbers.
	Evidence string `json:"evidence"`
	// Fingerprint identifies a mount or device without its name: see ID.
	Fingerprint string `json:"fingerprint,omitzero"`
}

// MaxLinks is the most links that a chain has.
const MaxLinks = 8

// Chain leads from a call that hangs, or from the process that the primary reason is
// about, to the one that does not wait for anybody: each link waits for the next one.
type Chain struct {
	At    time.Time `json:"at,omitzero"`
	Links []Link    `json:"links"`
	// Unknown says why the chain ends before the culprit; empty when its last link
	// is the culprit.
	Unknown string `json:"unknown,omitzero"`
}

// Culprit returns the last link; nil where the chain names nobody but the call.
func (c *Chain) Culprit() *Link {
	if c == nil || len(c.Links) == 0 {
		return nil
	}
	if last := &c.Links[len(c.Links)-1]; last.Kind != KindCall {
		return last
	}
	return nil
}

// Link returns the first link of a kind, nil where there is none.
func (c *Chain) Link(kind LinkKind) *Link {
	if c == nil {
		return nil
	}
	for i := range c.Links {
		if c.Links[i].Kind == kind {
			return &c.Links[i]
		}
	}
	return nil
}
