package facts

import (
	"fmt"
	"slices"
	"time"
)

// Hop is a process that serves a socket in the CRI call path, and what the node shows of it. The runtime is the first hop;
// behind cri-dockerd, dockerd and its containerd follow. A part is nil while the node does not show it.
type Hop struct {
	Socket  string `json:"socket,omitzero"`  // the path of a hop behind the runtime
	Caution string `json:"caution,omitzero"` // what a restart of the hop does to its containers
	// Answer is the last probe of a hop behind the runtime, of which Facts has the probe.
	Answer   *HopProbe `json:"answer,omitzero"`
	Queue    *Queue    `json:"queue,omitzero"`
	Listener *Listener `json:"listener,omitzero"`
	Process  *Process  `json:"process,omitzero"`
	Cgroup   *Cgroup   `json:"cgroup,omitzero"`
}

// HopProbe is a fresh connection to a hop's socket and a request on it.
type HopProbe struct {
	Probe
	// AnsweredAt is when a request was last answered, OKSince since when every one has been.
	AnsweredAt time.Time `json:"answered_at,omitzero"`
	OKSince    time.Time `json:"ok_since,omitzero"`
}

// Name identifies a hop by its process, as the node calls it, and its socket: any program may listen there.
func (h *Hop) Name() string {
	if h.Process == nil {
		return "the process at " + h.Socket
	}
	return fmt.Sprintf("%s at %s", h.Process.Name(), h.Socket)
}

// At returns the facts with the hop at a socket in the runtime's place; f itself for "", the runtime.
func (f *Facts) At(socket string) *Facts {
	i := slices.IndexFunc(f.Evidence.Hops, func(h Hop) bool { return h.Socket == socket })
	if socket == "" || i < 0 {
		return f
	}
	h := &f.Evidence.Hops[i]
	out := *f
	out.Evidence.Hop = *h
	out.Endpoint.Path = h.Socket
	out.Dial = Dial{Up: true, PeerPID: h.Process.LivePID()}
	out.Probe = Probe{}
	if h.Answer != nil {
		out.Probe = h.Answer.Probe
	}
	return &out
}

// FailsForAll reports whether a probe failed for another reason than plegd's own permissions.
func (p *Probe) FailsForAll() bool {
	return !p.FailedSince.IsZero() && p.Cause != CausePermissionDenied
}
