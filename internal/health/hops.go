package health

import (
	"fmt"
	"slices"
	"time"
)

// Hop is a process that serves a socket on a call's way, and what the node shows of it. The runtime is the first hop;
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

// hopFailsFor is how long a hop must refuse connections, or leave them unanswered, while the
// runtime's calls do not fail: dockerd starts its own containerd again within that time.
const hopFailsFor = 3 * time.Second

// name identifies a hop by its process, as the node calls it, and its socket: any program may listen there.
func (h *Hop) name() string {
	if h.Process == nil {
		return "the process at " + h.Socket
	}
	return fmt.Sprintf("%s at %s", h.Process.name(), h.Socket)
}

// At returns the facts with the hop at a socket in the runtime's place; f itself for "", the runtime.
func (f *Facts) At(socket string) *Facts {
	i := slices.IndexFunc(f.Evidence.Hops, func(h Hop) bool { return h.Socket == socket })
	if socket == "" || i < 0 {
		return f
	}
	out, h := *f, &f.Evidence.Hops[i]
	out.Evidence.Hop, out.Endpoint.Path = *h, h.Socket
	out.Dial, out.Probe = Dial{Up: true, PeerPID: h.Process.pid()}, Probe{}
	if h.Answer != nil {
		out.Probe = h.Answer.Probe
	}
	return &out
}

// callsFail reports whether calls to the runtime fail or hang.
func (w *view) callsFail() bool {
	return w.lists == listsHang || w.f.Relist.Failures > 0 || w.f.Status.LastErr != nil
}

// failsForAll reports whether a probe failed for another reason than plegd's own permissions.
func (p *Probe) failsForAll() bool {
	return !p.FailedSince.IsZero() && p.Cause != CausePermissionDenied
}

// waitsForHops reports whether a reason of the runtime must wait for the answer of the hops behind it: while a hop
// does not answer, and until a later call is answered, a call that hangs or fails is no evidence against the runtime.
func (w *view) waitsForHops(id string) bool {
	if s := &w.f.Status; id == RuntimeNotReady && s.Answered && !s.RuntimeReady.Good() {
		return false // the runtime says so itself
	}
	return slices.Contains(symptoms, id) && slices.ContainsFunc(w.f.Evidence.Hops, w.unsettled)
}

// unsettled reports whether a hop does not answer, has just answered again, or was probed before the last call failed.
func (w *view) unsettled(h Hop) bool {
	a := h.Answer
	switch {
	case a == nil, a.Cause == CausePermissionDenied:
		return false
	case a.OK:
		failed := w.f.Calls[opStatus].LastFailed
		before := w.f.Status.LastErr != nil && failed.After(a.At) && w.age(failed) < HangAfter
		return before || w.age(a.At) > HangAfter || w.age(a.OKSince) < HangAfter
	case a.Stage == StageConnect:
		return !a.AnsweredAt.IsZero()
	}
	return true
}
