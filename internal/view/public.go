package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

// Public is the summary of a snapshot for clients that may not see what the node
// contains. It has no field for text that comes from the node: reasons, kinds and
// steps are words of plegd's own tables. Its JSON is part of a snapshot's.
type Public struct {
	// Public is true: it tells the summary from a snapshot.
	Public        bool      `json:"public"`
	SchemaVersion int       `json:"schema_version"`
	PlegdVersion  string    `json:"plegd_version,omitzero"`
	Taken         time.Time `json:"at"`

	State      facts.State    `json:"state"`
	StateSince time.Time      `json:"since,omitzero"`
	Reason     string         `json:"reason"`
	Symptom    string         `json:"symptom,omitzero"`
	Reasons    []PublicReason `json:"reasons"` // the primary one first
	Culprit    *PublicLink    `json:"culprit,omitzero"`
	// Next and Steps are the primary reason's, without this node's values.
	Next  string   `json:"next,omitzero"`
	Steps []string `json:"steps,omitempty"`

	facts.Predicted  `json:"kubelet"`
	NotReadyIn       *time.Duration `json:"not_ready_in_seconds,omitzero"`
	NotReadyInLatest *time.Duration `json:"not_ready_in_latest_seconds,omitzero"`
	LastSeenAge      time.Duration  `json:"last_seen_age_seconds,omitzero"`
	Threshold        time.Duration  `json:"threshold_seconds"`
}

// PublicReason is an active reason.
type PublicReason struct {
	ID          string         `json:"id"`
	Severity    facts.Severity `json:"severity"`
	ActiveSince time.Time      `json:"since"`
}

// PublicLink is the last link of the chain of waiting.
type PublicLink struct {
	Kind facts.LinkKind `json:"kind"`
}

// NewPublic returns the summary of s.
func NewPublic(s *facts.Snapshot) *Public {
	page := reason(s.Reason).Generic()
	p := &Public{
		Public: true, SchemaVersion: s.SchemaVersion, PlegdVersion: s.PlegdVersion, Taken: s.At, State: s.State, StateSince: s.Since,
		Reason: reason(s.Reason).ID, Symptom: reason(s.Symptom).ID, Reasons: []PublicReason{}, Next: page.Next, Steps: page.Steps,
		Predicted: s.Predicted, NotReadyIn: s.NotReadyIn, NotReadyInLatest: s.NotReadyInLatest,
		LastSeenAge: s.LastSeenAge, Threshold: s.Threshold,
	}
	for _, a := range s.Active {
		if health.Known(a.ID) {
			p.Reasons = append(p.Reasons, PublicReason{ID: a.ID, Severity: a.Severity, ActiveSince: a.Since})
		}
	}
	if s.Culprit != nil {
		p.Culprit = &PublicLink{Kind: s.Culprit.Kind}
	}
	return p
}

// Snapshot returns a snapshot that holds what the summary does.
func (p *Public) Snapshot() *facts.Snapshot {
	var s facts.Snapshot
	if b, err := facts.Marshal(p); err == nil {
		_ = s.UnmarshalJSON(b) // the names are the same
	}
	return &s
}

// publicNote is where the rest can be seen.
const publicNote = "this is the public summary; root on the node (`plegd status`) " +
	"and clients that authenticate (--web.config.file) see the rest"

// Document returns the summary in words.
func (p *Public) Document() *Document {
	d := Status(Content{Snapshot: p.Snapshot()})
	for i, r := range d.Summary {
		if r.Label == "Kubelet" {
			d.Summary[i] = Row{Label: "Note", Text: publicNote}
		}
	}
	d.Sections = slices.DeleteFunc(d.Sections, func(s Section) bool { return s.ID != "todo" && s.ID != "others" })
	return d
}

// Line returns the verdict that this process has made in one line: state, reason or -, and
// the prediction while something points to NotReady.
func Line(s *facts.Snapshot) string {
	out := string(s.State) + " " + cmp.Or(s.Reason, "-")
	if s.RulesFailIn != nil || s.NotReadyIn != nil {
		out += "; " + outlook(s)
	}
	return out
}

// PublicMessage returns the kubelet's message without the texts of the runtime's
// conditions, which end it.
func PublicMessage(message string) string {
	fixed, _, cut := strings.Cut(message, " reason:")
	if cut && strings.HasPrefix(fixed, "[") {
		fixed += "]"
	}
	return fixed
}

// reason returns the row of a reason, an empty one for an unknown reason.
func reason(id string) health.Reason {
	r, _ := health.Lookup(id)
	return r
}
