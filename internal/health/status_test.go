package health

import (
	"testing"
	"time"
)

// TestStatusFailedWithTheLists: a Status that failed while the lists did says
// nothing once they are answered again, until it fails beside them.
func TestStatusFailedWithTheLists(t *testing.T) {
	f := healthyFacts(t0)
	failed := &CallError{Operation: "status", Code: "Unknown", Message: "Cannot connect to the Docker daemon"}
	f.Status.LastErr = failed
	f.Calls = map[string]Call{"list_containers": {LastOK: t0}, "status": {LastFailed: t0.Add(-time.Second), LastErr: failed}}
	for name, tt := range map[string]struct {
		answered time.Time
		want     string
	}{
		"the lists have never failed":      {time.Time{}, RuntimeNotReady},
		"they failed, and so did Status":   {t0.Add(-100 * time.Millisecond), ""},
		"they were answered before it was": {t0.Add(-2 * time.Second), RuntimeNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			f := f
			f.Relist.AnsweredSince = tt.answered
			if v := Judge(&f, t0, nil); v.Reason != tt.want {
				t.Errorf("%q, want %q: %v", v.Reason, tt.want, v.Active)
			}
		})
	}
}

// TestStatusFailsBesideLists: a Status that fails while the lists are answered counts
// down from the beginning on, with any error.
func TestStatusFailsBesideLists(t *testing.T) {
	for name, tt := range map[string]struct {
		code string
		good time.Duration // age of the last good Status
		want string
		left time.Duration
	}{
		"an answer":                            {"Unknown", 4 * time.Second, RuntimeNotReady, 26 * time.Second},
		"one failure of the connection":        {"Unavailable", 4 * time.Second, "", 0},
		"failures of the connection, for 11 s": {"Unavailable", 11 * time.Second, RuntimeNotReady, 19 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthyFacts(t0)
			f.Status.LastGood = t0.Add(-tt.good)
			f.Status.LastErr = &CallError{Operation: "status", Code: tt.code, Message: "transport is closing"}
			f.Calls = map[string]Call{"list_containers": {LastOK: t0}, "status": {LastFailed: t0.Add(-time.Second), LastErr: f.Status.LastErr}}
			v := Judge(&f, t0, nil)
			if v.Reason != tt.want {
				t.Errorf("%q, want %q: %v", v.Reason, tt.want, v.Active)
			}
			if (v.RulesFailIn != nil) != (tt.left > 0) || v.RulesFailIn != nil && *v.RulesFailIn != tt.left {
				t.Errorf("the rules fail in %v, want %s", v.RulesFailIn, tt.left)
			}
		})
	}
}

// TestLateAnswerIsNoProof: a call that was answered after seconds does not show
// that a Status that hangs hangs alone; one that was answered at once does.
func TestLateAnswerIsNoProof(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for took, want := range map[time.Duration]bool{4 * time.Second: false, 2 * time.Millisecond: true} {
		f := &Facts{
			Status: Status{Answered: true, InFlightSince: now.Add(-3 * time.Second)},
			Calls:  map[string]Call{opVersion: {LastOK: now.Add(-time.Second), LastOKDuration: took}},
		}
		if got := newView(f, now, nil).answeredWhileStatusFails(); got != want {
			t.Errorf("Version answered after %s: %t", took, got)
		}
	}
}
