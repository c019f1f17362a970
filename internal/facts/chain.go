package facts

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

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
	KindMount     LinkKind = "mount"
	KindCgroup    LinkKind = "cgroup"
	KindFile      LinkKind = "file"
	KindKernel    LinkKind = "kernel"
	KindNode      LinkKind = "node" // a server elsewhere, by its address
)

// LinkState is what a link does instead of answering.
type LinkState string

// The states of a link.
const (
	LinkUnanswered LinkState = "unanswered" // a call or its equivalent
	LinkStopped    LinkState = "stopped"    // by a signal
	LinkTraced     LinkState = "traced"     // held by a tracer
	LinkFrozen     LinkState = "frozen"     // in a frozen cgroup
	LinkBlocked    LinkState = "blocked"    // waits in the kernel for a file system or a device
	LinkLocked     LinkState = "locked"     // waits for a file lock
	LinkChild      LinkState = "child"      // waits for a child to end
	LinkPeer       LinkState = "peer"       // waits for the other end of a socket or pipe
	LinkMemory     LinkState = "memory"     // held by a memory limit
	LinkThrottled  LinkState = "throttled"  // held by a CPU quota
	LinkStarved    LinkState = "starved"    // runnable, and gets no CPU
	LinkUnread     LinkState = "unread"     // sleeps while bytes wait on its socket
	LinkAsleep     LinkState = "asleep"     // sleeps, and waits for nothing visible outside the process
	LinkEnded      LinkState = "ended"      // not reaped by its parent; of a mount: its server
	LinkRunning    LinkState = "running"    // uses the CPU
	LinkBusy       LinkState = "busy"       // cannot remove a path that is in use, or is what uses it
	LinkUnlisted   LinkState = "unlisted"   // a shim whose pod the runtime no longer lists, or a part of it that it still does
	LinkFailing    LinkState = "failing"    // fails at once what it is asked for
	LinkLoop       LinkState = "loop"       // waits for a process that stands earlier in the chain
	LinkUnknown    LinkState = "unknown"    // the kernel shows no resource that it waits for
)

// StandsStill reports whether a link does nothing until somebody else does something.
func (s LinkState) StandsStill() bool {
	return slices.Contains([]LinkState{LinkStopped, LinkTraced, LinkFrozen, LinkBlocked, LinkLocked, LinkMemory}, s)
}

// Link is one step of a chain of waiting. Name may be a container's, a pod's or a path: it stays on the node.
type Link struct {
	Kind LinkKind `json:"kind"`
	Name string   `json:"name"`
	PID  int      `json:"pid,omitzero"`
	// RuntimeID is a container's, a pod's or a shim's sandbox's id, Pod the namespace and name that a shim serves.
	RuntimeID string `json:"id,omitzero"`
	Pod       string `json:"pod,omitzero"`
	// Since is when the link was first seen in this state, or when a call or a helper began.
	Since       time.Time `json:"since,omitzero"`
	State       LinkState `json:"state"`
	Evidence    string    `json:"evidence"`             // one short fact with numbers
	Fingerprint string    `json:"fingerprint,omitzero"` // of a mount or device: see ID
}

// MaxLinks is the most links that a chain has.
const MaxLinks = 8

// Chain leads from a call that hangs, or from the process that the primary reason is
// about, to the one that does not wait for anybody: each link waits for the next one.
type Chain struct {
	At      time.Time `json:"at,omitzero"`
	Links   []Link    `json:"links"`
	Unknown string    `json:"unknown,omitzero"` // why it ends before the culprit, empty where it does not
}

// Finding is what an unfinished obligation towards the runtime, its shims or a hop behind it leads
// to: bytes that nobody reads, a pipe that somebody else keeps open, a killed process that does not end.
type Finding struct {
	// Reason is the id of the reason that it proves.
	Reason string `json:"reason"`
	// Since is when the obligation was first seen, or when the process began that keeps it.
	Since time.Time `json:"since,omitzero"`
	// Chain begins with the process that waits, and ends with the culprit.
	Chain Chain `json:"chain"`
	// Call is the call of plegd's that it has held up, "" for none.
	Call string `json:"call,omitzero"`
}

// Culprit returns the last link; nil where the chain names nobody but the call.
func (c *Chain) Culprit() *Link {
	if c == nil || len(c.Links) == 0 || c.Links[len(c.Links)-1].Kind == KindCall {
		return nil
	}
	return &c.Links[len(c.Links)-1]
}

// Link returns the first link of a kind, nil where there is none.
func (c *Chain) Link(kind LinkKind) *Link {
	if c == nil {
		return nil
	}
	if i := slices.IndexFunc(c.Links, func(l Link) bool { return l.Kind == kind }); i >= 0 {
		return &c.Links[i]
	}
	return nil
}

// ID returns a fingerprint of the link without names of pods, containers, hosts or paths:
// links of different nodes with the same cause have the same one. Empty for none.
func (l *Link) ID() string {
	switch l.Kind {
	case KindRuntime, KindShim, KindHelper, KindProcess:
		return FingerprintWord(l.Name)
	case KindCgroup:
		// The slice below the root, as in /kubepods.slice/kubepods-pod123.slice.
		slice, _, _ := strings.Cut(strings.TrimPrefix(l.Name, "/"), "/")
		return FingerprintWord(slice)
	default:
		return l.Fingerprint
	}
}

// FingerprintWord returns at most 40 characters of s, with those that are unusual in a label replaced.
func FingerprintWord(s string) string {
	const usual = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune(usual, r) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), 40)]
}

// First returns the link that a chain begins with, an empty one for none.
func (c *Chain) First() *Link {
	if c == nil || len(c.Links) == 0 {
		return &Link{}
	}
	return &c.Links[0]
}

// IsList reports whether a link is a list.
func (l *Link) IsList() bool { return l.Kind == KindCall && strings.HasPrefix(l.Name, "list_") }

// IsInspection reports whether a link is a call for the status of a pod or container.
func (l *Link) IsInspection() bool { return l.Kind == KindCall && strings.HasSuffix(l.Name, "_status") }

// IsSame reports whether two links are of the same thing.
func (l *Link) IsSame(m *Link) bool { return l.Kind == m.Kind && l.Name == m.Name && l.PID == m.PID }

// Who names the process of a link.
func (l *Link) Who() string { return fmt.Sprintf("pid %d (%s)", l.PID, l.Name) }
