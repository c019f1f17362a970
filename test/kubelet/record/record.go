// Package record is what one scenario of the comparison with a real kubelet recorded, and the comparison itself. It
// starts nothing and reads no clock, so a recording can be judged again from its file.
package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plegd/plegd/test/results"
)

// Recording is one run of one scenario.
type Recording struct {
	Scenario string `json:"scenario"`
	// Place is the scenario's place in the table.
	Place int `json:"place"`
	// Runtime is what the kubelet and plegd talked to, Kubelet the kubelet's version.
	Runtime string    `json:"runtime"`
	Kubelet string    `json:"kubelet"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Run     int       `json:"run"`
	// LoopSilent is true where the kubelet's sync loop cannot be compared: it is blocked in a call of its own,
	// belongs to a kubelet that has just started, or works on (a network that is not ready does not stop it).
	LoopSilent bool `json:"loop_silent,omitempty"`
	// StatusRule is true where the answers to Status decide.
	StatusRule bool `json:"status_rule,omitempty"`
	// WantReady is true where plegd must know that the node stays Ready: no countdown
	// may be shown from 10 s after the fault on.
	WantReady bool `json:"want_ready,omitempty"`
	// PredictedAfter is from when on the fault is the one that turns the node NotReady; 0: 5 s after it began.
	PredictedAfter time.Duration `json:"predicted_after_ns,omitempty"`
	// Unknown is how long a time nothing on the node shows, for which a window may be wider.
	Unknown time.Duration `json:"unknown_ns,omitempty"`
	// Deviation is the cause of a known difference that cannot be removed.
	Deviation string `json:"deviation,omitempty"`
	// WantReason is a reason that plegd must report from the fault on within
	// ReasonWithin, and no longer report within GoneWithin of the recovery.
	WantReason string `json:"want_reason,omitempty"`
	// WantMetrics is true where plegd must read the kubelet's own metrics.
	WantMetrics  bool          `json:"want_metrics,omitempty"`
	ReasonWithin time.Duration `json:"reason_within_ns,omitempty"`
	GoneWithin   time.Duration `json:"gone_within_ns,omitempty"`

	// Fault is when the fault began, Recovery when it ended for good, End when the recording ended.
	Fault    time.Time `json:"fault"`
	Recovery time.Time `json:"recovery"`
	End      time.Time `json:"end"`

	// Writes are all writes of the node's Ready condition.
	Writes []Write `json:"writes"`
	// Skips are the log lines in which the kubelet's sync loop skipped its work.
	Skips []Skip `json:"skips"`
	// Samples are plegd's answers.
	Samples []Sample `json:"samples"`
	// MetricsRead is true if plegd read the kubelet's own metrics.
	MetricsRead bool `json:"metrics_read,omitempty"`
}

// Write is one write of the Ready condition in the API.
type Write struct {
	At      time.Time `json:"at"`
	Ready   bool      `json:"ready"`
	Message string    `json:"message"`
}

// Skip is one line "Skipping pod synchronization" of the kubelet.
type Skip struct {
	At    time.Time `json:"at"`
	Error string    `json:"error"`
}

// Sample is plegd's status at one moment. Durations are seconds; nil where the status had none.
type Sample struct {
	At               time.Time `json:"at"`
	State            string    `json:"state"`
	Reason           string    `json:"reason,omitempty"`
	Reasons          []string  `json:"reasons,omitempty"`
	RulesOK          bool      `json:"rules_ok"`
	RulesFailIn      *float64  `json:"rules_fail_in,omitempty"`
	NodeReady        bool      `json:"node_ready"`
	NotReadyIn       *float64  `json:"not_ready_in,omitempty"`
	NotReadyInLatest *float64  `json:"not_ready_in_latest,omitempty"`
	ReadyIn          *float64  `json:"ready_in,omitempty"`
	ReadyInLatest    *float64  `json:"ready_in_latest,omitempty"`
	Message          string    `json:"message,omitempty"`
}

// File is the name of a recording's file.
func (r *Recording) File() string {
	return fmt.Sprintf("%s-%02d-run%d.json", r.Kubelet, r.Place, r.Run)
}

// Save writes the recording into a directory.
func (r *Recording) Save(dir string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.File()), b, 0o644)
}

// Load reads all recordings of a directory, by scenario, version and run.
func Load(dir string) ([]*Recording, error) {
	all, err := results.ReadFiles[Recording](filepath.Join(dir, "*-run*.json"))
	if err == nil && len(all) == 0 {
		err = errors.New("no recordings in " + dir + ": make e2e-kubelet makes them")
	}
	slices.SortFunc(all, func(a, b *Recording) int {
		return cmp.Or(a.Place-b.Place, cmp.Compare(b.Kubelet, a.Kubelet), a.Run-b.Run)
	})
	return all, err
}
