package health

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

// States lists the states of a verdict.
func States() []State {
	return []State{StateStarting, StateUnknown, StateHealthy, StateDegraded, StateUnhealthy}
}

// byRank are the states from good to bad.
var byRank = []State{StateHealthy, StateStarting, StateUnknown, StateDegraded, StateUnhealthy}

// Rank returns how bad a state is, from 0; -1 for an unknown one.
func (s State) Rank() int { return slices.Index(byRank, s) }

// StateOfRank returns the state of a rank, empty for another number.
func StateOfRank(rank int) State {
	if rank < 0 || rank >= len(byRank) {
		return ""
	}
	return byRank[rank]
}

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
	State State `json:"state"`
	// Since is when State last changed.
	Since time.Time `json:"since,omitzero"`
	// Reason is the primary reason's id; empty when healthy.
	Reason string `json:"reason"`
	// Hop is the socket of the hop behind the runtime that the reason holds for, empty
	// for the runtime.
	Hop string `json:"hop,omitzero"`
	// Symptom is the reason that describes what the kubelet sees, where it is active
	// beside a primary reason that says why. Chain leads from the call that hangs to
	// the one that does not wait for anybody, Culprit is its last link; ChainEnd says
	// why it ends before that one. All are empty while no call hangs.
	Symptom  string `json:"symptom,omitzero"`
	Chain    []Link `json:"chain,omitempty"`
	ChainEnd string `json:"chain_end,omitzero"`
	Culprit  *Link  `json:"culprit,omitzero"`
	// Active are all active reasons, the primary one first.
	Active []Active `json:"reasons"`
	// KubeletMessage is the Ready condition's message, word for word, as the API
	// has it or, by NotReadyIn, will have it; empty when neither is so.
	KubeletMessage string `json:"kubelet_message"`
	// PLEGHealthy reports whether a relist has succeeded within the threshold,
	// SyncLoopAllowed whether no runtime error stands.
	PLEGHealthy     bool `json:"pleg_healthy"`
	SyncLoopAllowed bool `json:"sync_loop_allowed"`
	// Predicted is the modelled kubelet.
	Predicted `json:"kubelet"`
	// LastSeen is the start of plegd's last successful relist; zero before the
	// first. LastSeenAge and ModelledAge are their ages, for plegd and for the
	// modelled kubelet's last seen, meaningless while these are zero.
	LastSeen         time.Time     `json:"last_seen,omitzero"`
	LastSeenAge      time.Duration `json:"last_seen_age_seconds,omitzero"`
	ModelledLastSeen time.Time     `json:"modelled_last_seen,omitzero"`
	ModelledAge      time.Duration `json:"modelled_last_seen_age_seconds,omitzero"`
	// Threshold is the effective PLEG threshold.
	Threshold time.Duration `json:"threshold_seconds"`
	// NotReadyIn is the earliest time until the API shows the node NotReady if
	// nothing changes, NotReadyInLatest the latest. Both are 0 when it does, and
	// nil while nothing points that way; a healthy verdict has neither.
	NotReadyIn       *time.Duration `json:"not_ready_in_seconds,omitzero"`
	NotReadyInLatest *time.Duration `json:"not_ready_in_latest_seconds,omitzero"`
	// Next says what to do next, Steps are the steps of the primary reason with
	// this node's own values; both are empty when healthy.
	Next  string   `json:"next"`
	Steps []string `json:"steps,omitempty"`
}

// Predicted is what the modelled kubelet does now and will do.
type Predicted struct {
	// RulesOK reports whether no runtime error and no network error stands: the
	// kubelet manages pods.
	RulesOK bool `json:"rules_ok"`
	// RulesFailIn is the time until RulesOK turns false if nothing changes, 0 when
	// it is; nil while nothing points that way.
	RulesFailIn *time.Duration `json:"rules_fail_in_seconds,omitzero"`
	// NodeReady is the Ready condition as the API has it now. Only the node status
	// update writes it, some time after the rules have failed or hold again; while
	// it may be either, NodeReady stays as it was.
	NodeReady bool `json:"node_ready"`
	// ReadyIn and ReadyInLatest bound the time until the API shows Ready again: set
	// while it shows, or may show, NotReady although the rules hold.
	ReadyIn       *time.Duration `json:"ready_in_seconds,omitzero"`
	ReadyInLatest *time.Duration `json:"ready_in_latest_seconds,omitzero"`
	// Started is when the node's kubelet started, zero where its process is not
	// seen.
	Started time.Time `json:"started,omitzero"`
}

// Active is a reason that stands.
type Active struct {
	ID       string    `json:"id"`
	Severity Severity  `json:"severity"`
	Since    time.Time `json:"since,omitzero"`
	// Seen is when its evidence was last true: earlier than the verdict for a
	// reason that is kept for a moment.
	Seen time.Time `json:"seen,omitzero"`
	// Missed is how long its evidence has been missing in between since then, in gaps
	// above gapCounts: a reason that flickers is kept for longer.
	Missed time.Duration `json:"missed_seconds,omitzero"`
	// Hop is the socket of the hop behind the runtime that it holds for, empty for the
	// runtime.
	Hop string `json:"hop,omitzero"`
	// Evidence are short facts with numbers.
	Evidence []string `json:"evidence"`
}
