package health

import "time"

// State is the verdict in one word.
type State string

// The states of a verdict.
const (
	StateStarting  State = "starting"
	StateHealthy   State = "healthy"
	StateDegraded  State = "degraded"
	StateUnhealthy State = "unhealthy"
)

// States lists the states of a verdict.
func States() []State { return []State{StateStarting, StateHealthy, StateDegraded, StateUnhealthy} }

// Severity says how bad a reason is. Info never changes the state.
type Severity string

// The severities of a reason.
const (
	SeverityCritical Severity = "critical"
	SeverityWarning  Severity = "warning"
	SeverityInfo     Severity = "info"
)

// Verdict is what plegd says of the node at one moment.
type Verdict struct {
	State State `json:"state"`
	// Reason is the primary reason's id; empty when healthy.
	Reason string `json:"reason"`
	// RunnerUp is the reason that the evidence fits nearly as well; empty when
	// there is none.
	RunnerUp string `json:"runner_up,omitempty"`
	// Active are all active reasons, the primary one first.
	Active []Active `json:"active"`
	// KubeletMessage is what the kubelet would put on the Ready condition, word
	// for word; empty when Ready.
	KubeletMessage string `json:"kubelet_message"`
	// PLEGHealthy, SyncLoopAllowed and NodeReady are the kubelet's three nested
	// verdicts.
	PLEGHealthy     bool `json:"pleg_healthy"`
	SyncLoopAllowed bool `json:"sync_loop_allowed"`
	NodeReady       bool `json:"node_ready"`
	// LastSeen is the start of plegd's last successful relist; zero before the
	// first. LastSeenAge and ModelledAge are the ages of plegd's and of the
	// modelled kubelet's last seen, meaningless while these are zero.
	LastSeen         time.Time     `json:"last_seen"`
	LastSeenAge      time.Duration `json:"last_seen_age_ns"`
	ModelledLastSeen time.Time     `json:"modelled_last_seen"`
	ModelledAge      time.Duration `json:"modelled_age_ns"`
	// Threshold is the PLEG threshold in force.
	Threshold time.Duration `json:"threshold_ns"`
	// NotReadyIn is the time until the first of the kubelet's rules trips, 0
	// when one has; nil while nothing points that way.
	NotReadyIn *time.Duration `json:"not_ready_in_ns"`
	// Since is when State last changed.
	Since time.Time `json:"since"`
	// Next says what to do next; empty when healthy.
	Next string `json:"next"`
}

// Active is a reason that stands.
type Active struct {
	ID       string    `json:"id"`
	Severity Severity  `json:"severity"`
	Since    time.Time `json:"since"`
	// Evidence are short facts with numbers.
	Evidence []string `json:"evidence"`
}
