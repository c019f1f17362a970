package facts

import "time"

// VersionCheck is how Version calls end. The kubelet's node status update waits for the end of one.
type VersionCheck struct {
	// HangsSince is the start of the first of the calls in a row that got no answer; Ended is
	// when a call last ended otherwise: with an answer, or with an error at once.
	HangsSince time.Time `json:"hangs_since,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
}

// NodeStatus is the Ready condition by the model of the kubelet: see kubelet.Model.
type NodeStatus struct {
	// State is unobserved, ready, pending, not ready or unknown: pending within a window.
	State    string `json:"state,omitzero"`
	NotReady bool   `json:"not_ready"` // true when the Ready condition in the API is certainly False
	// Unknown is true where the condition is, or will be, Unknown: the node controller writes it.
	Unknown bool   `json:"unknown,omitzero"`
	Message string `json:"message,omitzero"` // of the condition as last written, "" while Ready
	// These bound when the condition turns False if nothing changes, and True again; zero for never.
	NotReadyFrom time.Time `json:"not_ready_from,omitzero"`
	NotReadyBy   time.Time `json:"not_ready_by,omitzero"`
	ReadyFrom    time.Time `json:"ready_from,omitzero"`
	ReadyBy      time.Time `json:"ready_by,omitzero"`
}

// Silent reports whether the kubelet gave no answer to the last look. One whose check fails answers.
func (k *Kubelet) Silent() bool {
	return k != nil && !k.AnsweredAt.IsZero() && k.At.After(k.AnsweredAt)
}
