package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/health"
)

// Link says what a link of a chain of waiting is, and what it does instead of
// answering.
func Link(l health.Link) string {
	out := string(l.Kind)
	if l.Name != "" {
		out += " " + Say(l.Name)
	}
	if l.PID != 0 {
		out += fmt.Sprintf(" (pid %d)", l.PID)
	}
	if l.Pod != "" {
		out += " of pod " + Say(l.Pod)
	}
	if l.RuntimeID != "" && l.RuntimeID != l.Name {
		out += " id " + Say(l.RuntimeID)
	}
	return out + ": " + LinkState(l)
}

// LinkState says what a link does instead of answering.
func LinkState(l health.Link) string {
	if l.Evidence != "" {
		return Say(l.Evidence)
	}
	return Say(string(l.State))
}

// ShowsChain reports whether there is a chain to show: the call that hangs alone is
// what the evidence names.
func ShowsChain(s *health.Snapshot) bool { return s.Culprit != nil || s.ChainEnd != "" }

// IsCulprit reports whether a link of the chain is the culprit: the last one is,
// unless the chain ends before that one.
func IsCulprit(s *health.Snapshot, link int) bool {
	return s.Culprit != nil && s.ChainEnd == "" && link == len(s.Chain)-1
}

// BesideChain returns the evidence that the links of the chain do not show.
func BesideChain(s *health.Snapshot, evidence []string) []string {
	if !ShowsChain(s) {
		return evidence
	}
	return slices.DeleteFunc(slices.Clone(evidence), func(e string) bool {
		return slices.ContainsFunc(s.Chain, func(l health.Link) bool {
			if l.Kind == health.KindContainer || l.Kind == health.KindPod {
				return strings.HasSuffix(e, " of one "+string(l.Kind)+" alone hangs too")
			}
			return l.Evidence != "" && strings.HasSuffix(e, " "+l.Evidence)
		}) || s.ChainEnd != "" && e == "no further: "+s.ChainEnd
	})
}

// CulpritLabel says what the last link of the chain is: the culprit, unless the chain
// ends before that one.
func CulpritLabel(s *health.Snapshot) string {
	if s.ChainEnd != "" {
		return "Last link"
	}
	return "Culprit"
}

// CulpritLine names the culprit, its pod and the symptom, and says what it does.
func CulpritLine(s *health.Snapshot) string {
	l := *s.Culprit
	out := Link(l)
	pod := l.Pod
	for i := len(s.Chain) - 1; i >= 0 && pod == ""; i-- {
		if k := s.Chain[i].Kind; k == health.KindContainer || k == health.KindPod {
			pod = s.Chain[i].Name
		}
	}
	if pod != "" && !strings.Contains(out, Say(pod)) {
		out += ", of " + Say(pod)
	}
	if s.Symptom != "" {
		out += "; seen as " + Say(s.Symptom)
	}
	return out
}

// Culprit names the last link of the chain and its state, shortly; the name of a
// path is left out where names is false.
func Culprit(l *health.Link, names bool) string {
	out := string(l.Kind)
	switch {
	case l.PID != 0:
		out += fmt.Sprintf(" pid %d", l.PID)
	case l.Name != "" && names:
		out += " " + Say(l.Name)
	}
	return out + " " + string(l.State)
}

// BeginsWithCall reports whether the chain begins with a call that the kubelet makes
// as well. One that begins with a process holds up no relist.
func BeginsWithCall(s *health.Snapshot) bool {
	return len(s.Chain) > 0 && s.Chain[0].Kind == health.KindCall
}

// KubeletLink stands before the first link of a chain that begins with a call.
const KubeletLink = "kubelet: its relist makes the same call"
