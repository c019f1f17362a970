package health

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// fullRoot is a root directory without space, so that RuntimeStorageFull is the primary reason.
var fullRoot = &facts.Storage{At: t0, FileSystems: []facts.FileSystem{{Directory: "/root", Use: "root", Bytes: 1 << 30}}}

// stoppedAgent is what a helper waits for.
var stoppedAgent = facts.Link{Kind: facts.KindProcess, Name: "agent", PID: 4713, State: facts.LinkStopped, Evidence: "stopped"}

// secondHelper returns facts with two faults: a full disk, and a helper that waits for a stopped agent.
func secondHelper() facts.Facts {
	f := healthyFacts(t0)
	f.Calls = answeredCalls()
	f.Evidence.Storage = fullRoot
	f.Evidence.Children = &facts.Children{Shims: 5, Old: []facts.Child{{PID: 4712, Comm: "plugin", State: "S", Since: t0.Add(-time.Minute)}}}
	helper := facts.Link{Kind: facts.KindHelper, Name: "plugin", PID: 4712, State: facts.LinkPeer, Evidence: "waits"}
	f.Evidence.Second = &facts.Finding{Reason: RuntimeHelperStuck, Chain: facts.Chain{At: t0, Links: []facts.Link{helper, stoppedAgent}}}
	return f
}

// TestTwoFaults: each of two faults has its own culprit, chain and next step, and neither has the other one's.
func TestTwoFaults(t *testing.T) {
	hangs := hangingList()
	hangs.Evidence.Storage = fullRoot
	hangs.Evidence.Chain = chainOf(facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped})
	found := secondHelper()
	found.Evidence.Findings = []facts.Finding{*found.Evidence.Second}
	found.Evidence.Second = nil
	for _, tt := range []struct {
		name    string
		f       facts.Facts
		second  string
		culprit int
		step    string
	}{
		{"a helper whose chain was followed", secondHelper(), RuntimeHelperStuck, 4713, "kill -CONT 4713"},
		{"a helper that the ledger has found", found, RuntimeHelperStuck, 4713, "kill -CONT 4713"},
		{"a list that hangs", hangs, ShimStuck, 4711, "kill -CONT 4711"},
	} {
		v := Judge(&tt.f, t0, nil)
		second := v.ActiveReason(tt.second)
		if v.Reason != RuntimeStorageFull || second == nil || second.Cause == nil {
			t.Errorf("%s: %s with %+v", tt.name, v.Reason, v.Active)
			continue
		}
		check.Equal(t, second.Cause.Culprit.PID, tt.culprit, "%s: the second culprit", tt.name)
		check.Equal(t, strings.Contains(second.Cause.Next, tt.step), true, "%s: %q", tt.name, second.Cause.Next)
		if v.Culprit != nil || strings.Contains(v.Next, "kill -CONT") {
			t.Errorf("%s: a full disk with the culprit %+v and the step %q", tt.name, v.Culprit, v.Next)
		}
	}
}

// TestSecondStep: a second fault without a culprit has the step of its page.
func TestSecondStep(t *testing.T) {
	f := secondHelper()
	f.Evidence.Second = nil
	v := Judge(&f, t0, nil)
	second := v.ActiveReason(RuntimeHelperStuck)
	check.Equal(t, second.Cause.Next, reasonOf(RuntimeHelperStuck).Next, "the next step")
}

// TestOneFaultHasOneCause: a reason beside the primary one has no culprit of its own where that is the primary's, or not
// about its process, or old.
func TestOneFaultHasOneCause(t *testing.T) {
	other := secondHelper()
	other.Evidence.Children.Old[0].PID = 5000
	old := secondHelper()
	old.Evidence.Second.Chain.At = t0.Add(-time.Minute)
	symptom := hangingList()
	symptom.Evidence.Chain = chainOf(facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped})
	for name, tt := range map[string]struct {
		f  facts.Facts
		id string
	}{
		"the chain of another process":   {other, RuntimeHelperStuck},
		"an old chain":                   {old, RuntimeHelperStuck},
		"the symptom of the primary one": {symptom, RuntimeListStall},
	} {
		v := Judge(&tt.f, t0, nil)
		second := v.ActiveReason(tt.id)
		if second == nil || v.Reason == tt.id || second.Cause != nil && second.Cause.Culprit != nil {
			t.Errorf("%s: %+v beside %s", name, second, v.Reason)
		}
	}
}

// TestFindSecond: the chain of a reason beside the primary one is followed where it is about a process and not known yet.
func TestFindSecond(t *testing.T) {
	warning := func(id string) facts.Active {
		return facts.Active{ID: id, Severity: facts.SeverityWarning, Since: t0}
	}
	helper := facts.Symptom{Process: 4712, Since: t0}
	for name, tt := range map[string]struct {
		v     facts.Verdict
		found []facts.Finding
		want  facts.Symptom
	}{
		"beside a full disk":       {v: facts.Verdict{Active: []facts.Active{warning(RuntimeStorageFull), warning(RuntimeHelperStuck)}}, want: helper},
		"it is the primary one":    {v: facts.Verdict{Active: []facts.Active{warning(RuntimeHelperStuck)}}},
		"it is about no process":   {v: facts.Verdict{Active: []facts.Active{warning(RuntimeHelperStuck), warning(RuntimeStorageFull)}}},
		"the ledger has found it":  {v: facts.Verdict{Active: []facts.Active{warning(RuntimeStorageFull), warning(RuntimeHelperStuck)}}, found: []facts.Finding{{Reason: RuntimeHelperStuck}}},
		"the primary chain has it": {v: facts.Verdict{WaitChain: facts.WaitChain{Chain: []facts.Link{{PID: 4712}}}, Active: []facts.Active{warning(ShimStuck), warning(RuntimeHelperStuck)}}},
		"information":              {v: facts.Verdict{Active: []facts.Active{warning(RuntimeStorageFull), {ID: RuntimeHelperStuck, Severity: facts.SeverityInfo}}}},
	} {
		f := secondHelper()
		f.Evidence.Findings = tt.found
		tt.v.Reason = tt.v.Active[0].ID
		got, _, ok := FindSecond(&f, &tt.v)
		check.Equal(t, got, tt.want, "%s", name)
		check.Equal(t, ok, tt.want.Process != 0, "%s: ok", name)
	}
}
