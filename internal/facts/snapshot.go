package facts

import "time"

// SchemaVersion is the version of Snapshot in JSON. Fields may be added under one version; it grows
// when a field is renamed, removed or changes its meaning. 1 had durations in nanoseconds.
const SchemaVersion = 2

// Snapshot is plegd's state at one moment: the verdict and the facts that it was made
// from. A published snapshot is shared and never changes.
type Snapshot struct {
	SchemaVersion int       `json:"schema_version"`
	PlegdVersion  string    `json:"plegd_version,omitzero"`
	Node          string    `json:"node,omitzero"` // the host's name
	At            time.Time `json:"at"`            // the moment that the ages and countdowns belong to
	Ready         bool      `json:"ready"`         // the first relist has been attempted
	Verdict
	// Held is true while the verdict before a pause or a restart of plegd is kept: it was not judged from these facts.
	Held     bool     `json:"held,omitzero"`
	Facts    Facts    `json:"facts"`
	Previous *Verdict `json:"previous,omitzero"` // the verdict before this one. Only incidents keep it
}

// AsOf returns s with its ages and countdowns as of t: they grow although nothing is judged.
func (s *Snapshot) AsOf(t time.Time) Snapshot {
	out := *s
	passed := max(0, t.Sub(s.At))
	out.At = s.At.Add(passed)
	out.LastSeenAge = out.Age(s.LastSeen)
	out.ModelledAge = out.Age(s.ModelledLastSeen)
	for _, left := range []**time.Duration{&out.RulesFailIn, &out.NotReadyIn, &out.NotReadyInLatest, &out.ReadyIn,
		&out.ReadyInLatest} {
		if *left != nil {
			*left = new(max(0, **left-passed))
		}
	}
	return out
}

// Age returns how long ago t was at the moment of s; 0 where t is zero.
func (s *Snapshot) Age(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, s.At.Sub(t))
}

// Wall returns t as the wall clock of a moment has it, which may have been set since: by the monotonic clock, in whole seconds.
// A clock that is only slewed moves no time.
func Wall(moment, t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	stored := t.Round(0).UTC()
	set := moment.Round(0).UTC().Add(-moment.Sub(t)).Sub(stored)
	return stored.Add(set.Round(time.Second))
}
