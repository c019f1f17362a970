package facts

import (
	"slices"
	"time"
)

// State is the verdict in one word.
type State string

// The states of a verdict.
const (
	StateStarting  State = "starting"
	StateHealthy   State = "healthy"
	StateDegraded  State = "degraded"
	StateUnhealthy State = "unhealthy"
	// StateUnknown is that of a node of which only plegd cannot see the runtime.
	StateUnknown State = "unknown"
)

// States lists the states of a verdict from good to bad.
func States() []State {
	return []State{StateHealthy, StateStarting, StateUnknown, StateDegraded, StateUnhealthy}
}

// Rank returns how bad a state is, from 0; -1 for an unknown one.
func (s State) Rank() int { return slices.Index(States(), s) }

// Severity says how bad a reason is. Info never changes the state.
type Severity string

// The severities of a reason.
const (
	SeverityCritical Severity = "critical"
	SeverityWarning  Severity = "warning"
	SeverityInfo     Severity = "info"
)

// Verdict is plegd's assessment of the node at one moment.
type Verdict struct {
	State  State     `json:"state"`
	Since  time.Time `json:"since,omitzero"` // when State last changed
	Reason string    `json:"reason"`         // the primary reason's id; empty when healthy
	Hop    string    `json:"hop,omitzero"`   // the socket of the hop that the reason holds for, empty for the runtime
	// Symptom is the reason for what the kubelet sees, beside a primary reason that says why.
	Symptom   string   `json:"symptom,omitzero"`
	WaitChain          // of the primary reason
	Active    []Active `json:"reasons"` // the primary one first
	// KubeletMessage is the Ready condition's message, as the API has it or by NotReadyIn will have it.
	KubeletMessage  string `json:"kubelet_message"`
	PLEGHealthy     bool   `json:"pleg_healthy"`      // a relist has succeeded within the threshold
	SyncLoopAllowed bool   `json:"sync_loop_allowed"` // no runtime error stands
	Predicted       `json:"kubelet"`
	// The start of the last successful relist, plegd's and the modelled kubelet's; zero before it.
	LastSeen         time.Time     `json:"last_seen,omitzero"`
	LastSeenAge      time.Duration `json:"last_seen_age_seconds,omitzero"`
	ModelledLastSeen time.Time     `json:"modelled_last_seen,omitzero"`
	ModelledAge      time.Duration `json:"modelled_last_seen_age_seconds,omitzero"`
	Threshold        time.Duration `json:"threshold_seconds"` // of PLEG
	// These bound the time until the API shows NotReady: 0 when it does, nil if no failure is predicted.
	NotReadyIn       *time.Duration `json:"not_ready_in_seconds,omitzero"`
	NotReadyInLatest *time.Duration `json:"not_ready_in_latest_seconds,omitzero"`
	// Next and Steps are the primary reason's with this node's own values.
	Next  string   `json:"next"`
	Steps []string `json:"steps,omitempty"`
}

// Predicted is what the modelled kubelet does now and will do.
type Predicted struct {
	// RulesOK reports whether no runtime or network error stands. With a network error alone the kubelet manages pods,
	// and reports NotReady.
	RulesOK bool `json:"rules_ok"`
	// RulesFailIn is the time until that ends if nothing changes; nil if no failure is predicted.
	RulesFailIn *time.Duration `json:"rules_fail_in_seconds,omitzero"`
	// NodeReady is false while the API certainly shows NotReady or Unknown; ReadyIn is set while it may.
	NodeReady bool `json:"node_ready"`
	// These bound the time until the API shows Ready again, where it may not although the rules hold.
	ReadyIn       *time.Duration `json:"ready_in_seconds,omitzero"`
	ReadyInLatest *time.Duration `json:"ready_in_latest_seconds,omitzero"`
	// Started is when the node's kubelet started, zero where its process is not seen.
	Started time.Time `json:"started,omitzero"`
}

// Active is an active reason.
type Active struct {
	ID       string    `json:"id"`
	Severity Severity  `json:"severity"`
	Since    time.Time `json:"since,omitzero"`
	Seen     time.Time `json:"seen,omitzero"` // when its evidence was last true
	Held     bool      `json:"held,omitzero"` // its evidence was missing in this judgement
	// Missed is how long its evidence has been missing in between: one that flickers is kept for longer.
	Missed   time.Duration `json:"missed_seconds,omitzero"`
	Hop      string        `json:"hop,omitzero"` // as of Verdict
	Evidence []string      `json:"evidence"`     // short facts with numbers
	// Cause is what plegd knows of the cause of a reason that is a fault of its own beside the primary one, nil for nothing.
	Cause *ActiveCause `json:"cause,omitzero"`
}

// ActiveCause is the cause of an active reason, and its next step.
type ActiveCause struct {
	WaitChain

	Next string `json:"next,omitzero"`
}

// WaitChain is the chain of waiting of a reason.
type WaitChain struct {
	Chain    []Link `json:"chain,omitempty"`    // from the call that hangs, or the process that the reason is about
	ChainEnd string `json:"chain_end,omitzero"` // why it ends before the culprit
	Culprit  *Link  `json:"culprit,omitzero"`   // its last link, nil where the chain names only the call
}

// ActiveReason returns an active reason, nil if it is not active.
func (v *Verdict) ActiveReason(id string) *Active {
	if v == nil {
		return nil
	}
	if i := slices.IndexFunc(v.Active, func(a Active) bool { return a.ID == id }); i >= 0 {
		return &v.Active[i]
	}
	return nil
}

// Layer is where a reason lies: of equally severe reasons the lowest layer is the one to repair.
type Layer int
