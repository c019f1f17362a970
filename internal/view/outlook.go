package view

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// countdown prints the time left in whole seconds, rounded up: 0 is over.
func countdown(d time.Duration) string {
	if s := math.Ceil(d.Seconds()); s > 0 && s < 60 {
		return fmt.Sprintf("%.0fs", s)
	}
	return facts.Seconds((d + time.Second - 1).Truncate(time.Second))
}

// outlook is the prediction: whether the kubelet manages pods, and what the API
// shows for how long.
func outlook(s *facts.Snapshot) string {
	switch {
	case s.State == facts.StateUnknown:
		return "none: plegd cannot see the runtime, others may"
	case s.State == facts.StateStarting && !s.RulesOK && s.NotReadyIn == nil:
		return "none yet: no relist has succeeded"
	}
	out := managing(s)
	if p := s.Facts.Evidence.KubeletProcess; p != nil && p.Standalone {
		out += "; it has no API server"
	} else {
		out += "; " + apiShows(s)
	}
	if n := s.Facts.NodeStatus; n != nil && n.Unknown {
		out += "; the kubelet writes no status"
	}
	if s.RulesFailIn != nil && *s.RulesFailIn > 0 || s.NotReadyIn != nil && *s.NotReadyIn > 0 {
		out += ", if nothing changes"
	}
	return out
}

// Message is what the kubelet writes into the node's status, and whether it has. A forecast is
// marked as such.
func Message(s *facts.Snapshot) string {
	switch {
	case s.KubeletMessage == "" || !s.NodeReady:
		return s.KubeletMessage
	case s.RulesFailIn != nil && *s.RulesFailIn <= 0:
		return "with the next status update: " + s.KubeletMessage
	}
	return "will be: " + s.KubeletMessage
}

func managing(s *facts.Snapshot) string {
	switch {
	case s.RulesFailIn == nil:
		return "managing pods"
	case *s.RulesFailIn > 0:
		return "managing pods for another " + countdown(*s.RulesFailIn)
	case s.SyncLoopAllowed:
		return "the pod network is down"
	default:
		return "not managing pods"
	}
}

func apiShows(s *facts.Snapshot) string {
	switch {
	case s.NodeReady && s.ReadyIn != nil:
		return "the API may show NotReady until the next status update, " + window(s.ReadyIn, s.ReadyInLatest)
	case s.NodeReady && s.NotReadyIn == nil:
		return "the API shows Ready"
	case s.NodeReady && *s.NotReadyIn <= 0 && s.NotReadyInLatest != nil:
		return "the API may still show Ready, for " + countdown(*s.NotReadyInLatest) + " at most"
	case s.NodeReady:
		return "the API still shows Ready for " + strings.TrimPrefix(window(s.NotReadyIn, s.NotReadyInLatest), "in ")
	case s.ReadyIn != nil:
		return "the API shows NotReady until the next status update, " + window(s.ReadyIn, s.ReadyInLatest)
	default:
		return "the API shows NotReady"
	}
}

// window says when something happens: in 76s to 86s, within 8s.
func window(earliest, latest *time.Duration) string {
	switch {
	case latest == nil || countdown(*earliest) == countdown(*latest):
		return "in " + countdown(*earliest)
	case *earliest <= 0:
		return "within " + countdown(*latest)
	default:
		return "in " + countdown(*earliest) + " to " + countdown(*latest)
	}
}

// pastOutlook is the prediction of a moment that is over.
func pastOutlook(s *facts.Snapshot) string {
	if s.State == facts.StateUnknown || s.State == facts.StateStarting && !s.RulesOK {
		return "nothing was predicted"
	}
	managed := managedThen(s)
	switch {
	case !s.NodeReady:
		return managed + "; the API showed NotReady"
	case s.NotReadyIn != nil:
		return managed + "; NotReady was predicted " + window(s.NotReadyIn, s.NotReadyInLatest)
	case s.ReadyIn != nil:
		return managed + "; the API may have shown NotReady until the next status update"
	}
	return managed + "; the API showed Ready"
}

// managedThen is whether the kubelet managed pods at a moment that is over.
func managedThen(s *facts.Snapshot) string {
	switch {
	case s.RulesFailIn == nil:
		return "the kubelet managed pods"
	case *s.RulesFailIn > 0:
		return "the kubelet managed pods and had " + countdown(*s.RulesFailIn) + " left"
	case s.SyncLoopAllowed:
		return "the pod network was down"
	}
	return "the kubelet managed no pods"
}
