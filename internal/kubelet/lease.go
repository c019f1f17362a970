package kubelet

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// The node controller (pkg/controller/nodelifecycle/node_lifecycle_controller.go, tryUpdateNodeHealth) looks every
// nodeMonitorPeriod for a renewed lease, and sets the Ready condition to Unknown nodeMonitorGrace after the last one.
// The node cannot see its settings: these are the defaults since 1.32.
const (
	// leasePeriod is the longest time between two renewals (nodeLeaseDurationSeconds, 40 s, by 4, plus 4 %).
	leasePeriod       = 10400 * time.Millisecond
	nodeMonitorPeriod = 5 * time.Second
	nodeMonitorGrace  = 50 * time.Second
	// PauseNoticed is the shortest pause of the node after which the node controller may have written Unknown.
	PauseNoticed = nodeMonitorGrace - leasePeriod - writerSlack
	// cacheBackoff is the longest time from the end of such a loss until the kubelet lists its own Node again. While its
	// cache shows the Node Ready it writes nothing (kubelet_node_status.go, tryUpdateNodeStatus; client-go/tools/cache,
	// reflector.go: the back-off is 30 s at most, and as much again by chance).
	cacheBackoff = time.Minute
)

// silentMessage is the message of a condition that the node controller has written.
const silentMessage = "Kubelet stopped posting node status."

// graceWindow bounds when the node controller writes Unknown, for a kubelet that renewed its lease last between the two.
func graceWindow(answered, silent time.Time) window {
	return window{
		earliest: answered.Add(PauseNoticed),
		latest:   silent.Add(nodeMonitorGrace + nodeMonitorPeriod + writerSlack),
	}
}

// silentSince returns the first moment at which the kubelet is known to renew no lease, zero while it may, and the last
// at which it may have.
func (m *moment) silentSince() (silent, answered time.Time) {
	if k := m.f.Evidence.Kubelet; k.Silent() {
		return k.At, k.AnsweredAt
	}
	first := m.APILost.First
	switch {
	case first.IsZero():
		return first, first
	case m.APILost.LastOK.IsZero(): // the loss is older than plegd
		return first, first.Add(-PauseNoticed)
	}
	return first, facts.Later(m.APILost.LastOK, first.Add(-leasePeriod)) // it renewed its lease once in that time
}

// APILoss is when the kubelet's requests to its API server began to get no answer; zero while they do.
type APILoss struct {
	First  time.Time // the first one without an answer
	LastOK time.Time // the last one with an answer, zero if unknown
}

// public returns the name of a state in the verdict.
func (s State) public() string {
	switch s {
	case Unobserved:
		return "unobserved"
	case Falling, Unsettled, Silent:
		return "pending"
	case Ready, NotReady, Unknown:
		return string(s)
	}
	return ""
}

// WokeLate returns the end of a pause in which the node controller may have written Unknown, zero for none.
func WokeLate(f *facts.Facts) time.Time {
	if f.Paused < PauseNoticed {
		return time.Time{}
	}
	return f.Woke
}

// UnknownUntil returns by when the kubelet's first update after such a pause has ended, zero for none.
func UnknownUntil(f *facts.Facts) time.Time {
	_, longest := f.Config.StatusPeriod()
	return facts.Plus(WokeLate(f), longest+writerSlack)
}
