package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// judged returns a verdict with the reasons active, each since some time.
func judged(previous *facts.Verdict, since map[string]time.Duration) *facts.Verdict {
	w := newSignals(&facts.Facts{}, t0, previous)
	v := &facts.Verdict{}
	for i := range table {
		if age, ok := since[table[i].ID]; ok {
			v.Active = append(v.Active, facts.Active{ID: table[i].ID, Severity: table[i].Severity, Since: t0.Add(-age), Seen: t0})
		}
	}
	v.Active = holdPrevious(v.Active, w)
	rankReasons(v, w)
	return v
}

// TestRank: severity, then layer, then the table's order; the primary reason gives
// way after two seconds, or at once to a cause.
func TestRank(t *testing.T) {
	was := func(id string, seen time.Duration) *facts.Verdict {
		return &facts.Verdict{Reason: id, Active: []facts.Active{{ID: id, Severity: reasonOf(id).Severity, Seen: t0.Add(-seen)}}}
	}
	const ms = time.Millisecond
	type since = map[string]time.Duration
	for _, tt := range []struct {
		name   string
		before *facts.Verdict
		active since
		want   string
	}{
		{"a warning of a lower layer hides nothing", nil, since{ShimStuck: time.Hour, KubeletDown: 0}, KubeletDown},
		{"the lower layer", nil, since{RuntimeUnresponsive: time.Minute, AcceptFDExhausted: 0, NetworkNotReady: 0}, AcceptFDExhausted},
		{"the table's order", nil, since{RuntimeListStall: 0, NetworkNotReady: time.Minute}, RuntimeListStall},
		{"not known, and a warning", nil, since{Unknown: 0, TooManyContainers: time.Hour}, Unknown},

		{"kept", was(RuntimeThrottled, 2900*ms), nil, RuntimeThrottled},
		{"kept long enough", was(RuntimeThrottled, 3000*ms), nil, ""},
		{"kept beside a milder one", was(RuntimeThrottled, time.Second), since{NodePressure: time.Minute}, RuntimeThrottled},
		{"not beside a worse one", was(FDsRunningOut, time.Second), since{KubeletDown: 0}, KubeletDown},
		{"unknown is not kept", was(Unknown, time.Second), nil, ""},

		{"a new one of the same layer waits", was(RuntimeListStall, 0), since{RuntimeListStall: time.Minute, RuntimeUnresponsive: 1900 * ms}, RuntimeListStall},
		{"and has its turn", was(RuntimeListStall, 0), since{RuntimeListStall: time.Minute, RuntimeUnresponsive: 2000 * ms}, RuntimeUnresponsive},
		{"a lower layer does not wait", was(RuntimeUnresponsive, 0), since{RuntimeUnresponsive: time.Minute, AcceptFDExhausted: 0}, AcceptFDExhausted},
		{"nor does a worse one", was(RelistSlow, 0), since{RelistSlow: time.Minute, KubeletDown: 0}, KubeletDown},
		{"a new one waits where the old one has just gone", was(RuntimeUnresponsive, time.Second), since{RuntimeListStall: time.Second}, RuntimeUnresponsive},
		{"not known, and the kubelet is down", nil, since{Unknown: 0, KubeletDown: time.Hour}, Unknown},
	} {
		if v := judged(tt.before, tt.active); v.Reason != tt.want {
			t.Errorf("%s: %q, want %q: %v", tt.name, v.Reason, tt.want, listed(v))
		}
	}
}

// TestStartIsNotHeld: a runtime that has started beside plegd leaves no reason behind.
func TestStartIsNotHeld(t *testing.T) {
	before := facts.Active{ID: RuntimeStarting, Severity: facts.SeverityCritical, Since: t0.Add(-2 * time.Second), Seen: t0.Add(-time.Second)}
	f := healthyFacts(t0)
	v := Judge(&f, t0, &facts.Verdict{State: facts.StateStarting, Reason: before.ID, Active: []facts.Active{before}})
	if v.State != facts.StateHealthy || v.Reason != "" {
		t.Errorf("the first verdict after the start: %s", listed(v))
	}
}

// TestBlind: a blind spot of plegd alone is no evidence about the node.
func TestBlind(t *testing.T) {
	f := healthyFacts(t0)
	failing(&f, 300, "Unavailable")
	f.Status.LastGood = f.Relist.LastSeen
	f.Dial = facts.Dial{At: t0, Cause: facts.CausePermissionDenied, Detail: "permission denied"}
	v := Judge(&f, t0, nil)
	if v.State != facts.StateUnknown || v.NotReadyIn != nil || v.RulesFailIn != nil || v.KubeletMessage != "" || !v.NodeReady {
		t.Errorf("may not connect: %s, NotReady in %v, %q", v.State, v.NotReadyIn, v.KubeletMessage)
	}
	f.Evidence.Kubelet = &facts.Kubelet{Seen: true, Refused: true, FailedSince: t0.Add(-time.Minute)}
	if v := Judge(&f, t0, nil); v.State != facts.StateUnhealthy || v.ActiveReason(KubeletDown) == nil {
		t.Errorf("may not connect, and the kubelet is down: %s", listed(v))
	}
}

// TestMissedEvidence: evidence that is missing for a moment lengthens the hold of a reason,
// but not of an event: each start of the runtime is a new event.
func TestMissedEvidence(t *testing.T) {
	now := t0.Add(time.Minute)
	for id, want := range map[string]time.Duration{RuntimeListStall: 5 * time.Second, RuntimeStarting: 0} {
		before := facts.Active{ID: id, Severity: facts.SeverityCritical, Since: t0, Seen: now.Add(-5 * time.Second)}
		w := &signals{f: &facts.Facts{}, moment: now, previous: &facts.Verdict{Active: []facts.Active{before}}}
		check.Equal(t, activated(w, reasonOf(id), nil).Missed, want, "%s: missed for", id)
	}
}
