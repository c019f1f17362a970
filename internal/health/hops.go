package health

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// hopFailsFor is how long a hop must refuse connections, or leave them unanswered, while the
// runtime's calls do not fail: dockerd starts its own containerd again within that time.
const hopFailsFor = 3 * time.Second

// callsFail reports whether calls to the runtime fail or hang.
func (w *view) callsFail() bool {
	return w.lists == listsHang || w.f.Relist.Failures > 0 || w.f.Status.LastErr != nil
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
func (w *view) unsettled(h facts.Hop) bool {
	a := h.Answer
	switch {
	case a == nil, a.Cause == facts.CausePermissionDenied:
		return false
	case a.OK:
		failed := w.f.Calls[opStatus].LastFailed
		before := w.f.Status.LastErr != nil && failed.After(a.At) && w.age(failed) < facts.HangAfter
		return before || w.age(a.At) > facts.HangAfter || w.age(a.OKSince) < facts.HangAfter
	case a.Stage == facts.StageConnect:
		return !a.AnsweredAt.IsZero()
	}
	return true
}
