package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// Public is the summary of a snapshot for clients that may not see what the node
// contains. It has no field for text that comes from the node: reasons, kinds and
// steps are words of plegd's own tables. Its JSON names are those of a snapshot.
type Public struct {
	// Public is true: it tells the summary from a snapshot.
	Public        bool      `json:"public"`
	SchemaVersion int       `json:"schema_version"`
	PlegdVersion  string    `json:"plegd_version,omitzero"`
	At            time.Time `json:"at"`

	State    health.State    `json:"state"`
	Since    time.Time       `json:"since,omitzero"`
	Reason   string          `json:"reason"`
	Severity health.Severity `json:"severity,omitzero"`
	// ReasonSince is when the primary reason became active.
	ReasonSince time.Time      `json:"reason_since,omitzero"`
	Symptom     string         `json:"symptom,omitzero"`
	Reasons     []PublicReason `json:"reasons"`
	// CulpritKind is the kind of the last link of the chain of waiting.
	CulpritKind health.LinkKind `json:"culprit_kind,omitzero"`
	// Meaning, Next and Steps are the primary reason's, without this node's values.
	Meaning string   `json:"meaning,omitzero"`
	Next    string   `json:"next,omitzero"`
	Steps   []string `json:"steps,omitempty"`

	NodeReady        bool           `json:"node_ready"`
	RulesFailIn      *time.Duration `json:"rules_fail_in_seconds,omitzero"`
	NotReadyIn       *time.Duration `json:"not_ready_in_seconds,omitzero"`
	NotReadyInLatest *time.Duration `json:"not_ready_in_latest_seconds,omitzero"`
	LastSeenAge      time.Duration  `json:"last_seen_age_seconds,omitzero"`
	Threshold        time.Duration  `json:"threshold_seconds"`
}

// PublicReason is an active reason.
type PublicReason struct {
	ID       string          `json:"id"`
	Severity health.Severity `json:"severity"`
	Since    time.Time       `json:"since"`
}

// NewPublic returns the summary of s.
func NewPublic(s *health.Snapshot) *Public {
	p := &Public{
		Public: true, SchemaVersion: s.SchemaVersion, PlegdVersion: s.PlegdVersion, At: s.At,
		State: s.State, Since: s.Since, Symptom: known(s.Symptom), Reasons: []PublicReason{},
		NodeReady: s.NodeReady, RulesFailIn: s.RulesFailIn,
		NotReadyIn: s.NotReadyIn, NotReadyInLatest: s.NotReadyInLatest,
		LastSeenAge: s.LastSeenAge, Threshold: s.Threshold,
	}
	for i := range s.Active {
		if a := &s.Active[i]; known(a.ID) != "" {
			p.Reasons = append(p.Reasons, PublicReason{a.ID, a.Severity, a.Since})
		}
	}
	if s.Culprit != nil {
		p.CulpritKind = s.Culprit.Kind
	}
	r := reason(s.Reason)
	if r == nil {
		return p
	}
	p.Reason, p.Meaning, p.Next = r.ID, r.Meaning, health.Generic(r.Next)
	for _, step := range r.Steps {
		p.Steps = append(p.Steps, health.Generic(step))
	}
	if a, _ := splitReasons(&s.Verdict); a != nil {
		p.Severity, p.ReasonSince = a.Severity, a.Since
	}
	return p
}

// Snapshot returns a snapshot that holds what the summary does.
func (p *Public) Snapshot() *health.Snapshot {
	s := &health.Snapshot{SchemaVersion: p.SchemaVersion, PlegdVersion: p.PlegdVersion, At: p.At, Verdict: health.Verdict{
		State: p.State, Since: p.Since, Reason: p.Reason, Symptom: p.Symptom, Active: []health.Active{},
		Next: p.Next, Steps: p.Steps,
		LastSeenAge: p.LastSeenAge, Threshold: p.Threshold, NotReadyIn: p.NotReadyIn, NotReadyInLatest: p.NotReadyInLatest,
		Predicted: health.Predicted{NodeReady: p.NodeReady, RulesFailIn: p.RulesFailIn},
	}}
	if p.CulpritKind != "" {
		s.Culprit = &health.Link{Kind: p.CulpritKind}
	}
	for _, r := range p.Reasons {
		s.Active = append(s.Active, health.Active{ID: r.ID, Severity: r.Severity, Since: r.Since})
	}
	return s
}

// publicNote is where the rest can be seen.
const publicNote = "this is the public summary; `plegd status` on the node, its loopback, " +
	"and clients that authenticate (--web.config.file) see the rest"

// Document returns the summary in words.
func (p *Public) Document() *Document {
	d := Status(Content{Snapshot: p.Snapshot(), Note: publicNote})
	d.Summary = slices.DeleteFunc(d.Summary, func(r Row) bool { return r.Label == "Kubelet" })
	d.Sections = slices.DeleteFunc(d.Sections, func(s Section) bool { return s.ID != "todo" && s.ID != "others" })
	return d
}

// Line returns the verdict in one line: state, reason or -, and the prediction while
// something points to NotReady.
func Line(s *health.Snapshot) string {
	out := Say(string(s.State)) + " " + cmp.Or(Say(s.Reason), "-")
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

// known returns id if it is one of plegd's reasons, else "".
func known(id string) string {
	if reason(id) == nil {
		return ""
	}
	return id
}

// reason returns the row of a reason, nil for an unknown one.
func reason(id string) *health.Reason {
	for _, r := range health.Reasons() {
		if r.ID == id {
			return &r
		}
	}
	return nil
}

// runbook returns the meaning of a reason, and whether a restart of the runtime helps;
// nothing for an unknown reason.
func runbook(id string) (meaning, restart string) {
	if r := reason(id); r != nil {
		return r.Meaning, "Does restarting the runtime help? " + r.Restart
	}
	return "", ""
}
