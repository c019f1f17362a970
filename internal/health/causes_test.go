package health

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// hangingList returns facts in which a list has hung for a while.
func hangingList() facts.Facts {
	f := healthyFacts(t0)
	f.Relist.InFlight = &facts.InFlight{Start: t0.Add(-6 * time.Second), Phase: facts.PhaseListContainers, PhaseStart: t0.Add(-6 * time.Second)}
	f.Relist.LastSeen = t0.Add(-7 * time.Second)
	f.Calls = answeredCalls()
	return f
}

// answeredCalls are those of a runtime that has just answered Version.
func answeredCalls() map[string]facts.Call { return map[string]facts.Call{"version": {LastOK: t0}} }

// chainOf is a chain from a list that hangs to the links.
func chainOf(links ...facts.Link) *facts.Chain {
	return &facts.Chain{At: t0, Links: append([]facts.Link{{Kind: facts.KindCall, Name: "list_containers", State: facts.LinkUnanswered, Evidence: "unanswered for 6s"}}, links...)}
}

// TestSeverityAsCause: a stuck shim or helper is a warning by itself, and as severe
// as the hang where it is the cause of one.
func TestSeverityAsCause(t *testing.T) {
	shim := facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped, Evidence: "stopped"}
	helper := facts.Link{Kind: facts.KindHelper, Name: "runc", PID: 4712, State: facts.LinkAsleep, Evidence: "asleep"}
	waits := shim
	waits.State = facts.LinkChild
	for _, tt := range []struct {
		id      string
		links   []facts.Link
		symptom string
		want    facts.Severity
	}{
		{ShimStuck, []facts.Link{shim}, RuntimeListStall, facts.SeverityCritical},
		{RuntimeHelperStuck, []facts.Link{waits, helper}, RuntimeListStall, facts.SeverityCritical},
		{ShimStuck, nil, "", facts.SeverityWarning},
		{RuntimeHelperStuck, nil, "", facts.SeverityWarning},
	} {
		f := healthyFacts(t0)
		if tt.links != nil {
			f = hangingList()
			f.Evidence.Chain = chainOf(tt.links...)
		} else {
			f.Evidence.Children, f.Calls = &facts.Children{Shims: 5}, answeredCalls()
			if tt.id == ShimStuck {
				f.Evidence.Children.Stuck = []facts.Child{{PID: 4711, Comm: "containerd-shim", State: "T", Since: t0.Add(-5 * time.Second)}}
			} else {
				f.Evidence.Children.Old = []facts.Child{{PID: 4712, Comm: "runc", Since: t0.Add(-time.Minute)}}
			}
		}
		v := Judge(&f, t0, nil)
		if v.Reason != tt.id || v.Symptom != tt.symptom || v.Active[0].Severity != tt.want {
			t.Errorf("%s behind %q, %+v; want %s behind %q, %s", v.Reason, v.Symptom, v.Active, tt.id, tt.symptom, tt.want)
		}
	}
}

// suspicion is a call that is unanswered for some time, and the expected verdict.
type suspicion struct {
	unanswered      time.Duration
	usual           time.Duration // of those before it
	version         time.Duration // since it was answered
	probe           bool          // one that began after the call was answered
	suspected, hang bool
}

// suspicions are of lists and of inspections.
var suspicions = []suspicion{
	{unanswered: 400 * time.Millisecond},
	{unanswered: 600 * time.Millisecond, suspected: true},
	{unanswered: 600 * time.Millisecond, version: time.Second},
	{unanswered: 600 * time.Millisecond, version: time.Second, probe: true, suspected: true},
	{unanswered: 600 * time.Millisecond, usual: 300 * time.Millisecond},
	{unanswered: time.Second, usual: 300 * time.Millisecond, suspected: true},
}

// answered sets the answers beside the call.
func (s suspicion) answered(f *facts.Facts) {
	f.Version.Ended = t0.Add(-s.version)
	f.Probe = facts.Probe{At: t0.Add(-100 * time.Millisecond), OK: s.probe}
}

// TestChainBeforeTheHang: a list, an inspection or a Status is suspected before it counts as hanging, while
// Version is answered; the chain that was found meanwhile counts from the hang on.
func TestChainBeforeTheHang(t *testing.T) {
	shim := facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped, Evidence: "stopped"}
	check := func(tt suspicion, f facts.Facts, operation string, called time.Time) {
		tt.answered(&f)
		f.Evidence.Chain = &facts.Chain{At: t0, Links: []facts.Link{{Kind: facts.KindCall, Name: operation}, {Kind: facts.KindContainer, Name: "a/b/c"}, shim}}
		if s := newSignals(&f, t0, nil).suspectedCall(); s.Suspected != tt.suspected || s.Suspected && (s.Operation != operation || !s.Called.Equal(called)) {
			t.Errorf("%s, %+v: %+v", operation, tt, s)
		}
		if v := Judge(&f, t0, nil); (v.Reason == ShimStuck) != tt.hang || (v.Culprit != nil) != tt.hang {
			t.Errorf("%s, %+v: %s, culprit %+v", operation, tt, v.Reason, v.Culprit)
		}
	}
	for _, tt := range append(suspicions, suspicion{unanswered: 1600 * time.Millisecond, suspected: true, hang: true}) {
		f, start := hangingList(), t0.Add(-tt.unanswered)
		f.Relist.InFlight.Start, f.Relist.InFlight.PhaseStart, f.Relist.LastSeen = start, start, start.Add(-time.Second)
		f.Relist.Lists = []time.Duration{tt.usual, tt.usual, tt.usual}
		check(tt, f, "list_containers", start)
	}
	for _, tt := range append(suspicions,
		suspicion{unanswered: 2 * time.Second, usual: time.Second},
		suspicion{unanswered: 3100 * time.Millisecond, usual: time.Second, suspected: true, hang: true}) {
		f, start := healthyFacts(t0), t0.Add(-tt.unanswered)
		f.Relist.InFlight = &facts.InFlight{Start: start, Phase: facts.PhaseInspect, PhaseStart: start, Pods: 1}
		f.Relist.Inspecting = []facts.PodInspection{{UID: "u", Start: start, CallStart: start, Operation: "container_status"}}
		f.Calls = answeredCalls()
		f.Calls["container_status"] = facts.Call{LastOK: start, LastOKDuration: tt.usual}
		check(tt, f, "container_status", start)
	}
	for _, tt := range append(suspicions, suspicion{unanswered: 2100 * time.Millisecond, suspected: true, hang: true}) {
		f, start := healthyFacts(t0), t0.Add(-tt.unanswered)
		f.Status.InFlightSince = start
		f.Calls = answeredCalls()
		f.Calls[opStatus] = facts.Call{LastOK: start, LastOKDuration: tt.usual}
		check(tt, f, opStatus, start)
	}
}

// TestStepForServer: of a mount that is not answered the step names its server, also
// where that waits for somebody else.
func TestStepForServer(t *testing.T) {
	f := healthyFacts(t0)
	f.Relist.InFlight = &facts.InFlight{Start: t0.Add(-6 * time.Second), Phase: facts.PhaseInspect, PhaseStart: t0.Add(-6 * time.Second), Pods: 1}
	f.Relist.Inspecting = []facts.PodInspection{{UID: "u", Start: t0.Add(-6 * time.Second), Operation: "container_status"}}
	f.Calls = answeredCalls()
	server := facts.Link{Kind: facts.KindProcess, Name: "mountd", PID: 12, State: facts.LinkAsleep, Evidence: "1 thread asleep"}
	other := facts.Link{Kind: facts.KindProcess, Name: "backend", PID: 13, State: facts.LinkStopped, Evidence: "stopped"}
	for _, tt := range []struct {
		links []facts.Link
		want  string
	}{
		{[]facts.Link{server}, "Get pid 12 (mountd), which serves the mount /volume, to answer: 1 thread asleep."},
		{[]facts.Link{server, {Kind: facts.KindProcess, Name: "backend", PID: 13, State: facts.LinkAsleep, Evidence: "2 threads asleep"}}, "Get pid 12 (mountd), which serves the mount /volume, to answer: it waits for pid 13 (backend): 2 threads asleep."},
		{[]facts.Link{server, other}, "`kill -CONT 13`"},
	} {
		f.Evidence.Chain = &facts.Chain{At: t0, Links: append([]facts.Link{
			{Kind: facts.KindCall, Name: "container_status", State: facts.LinkUnanswered}, {Kind: facts.KindContainer, Name: "a/b/c"},
			{Kind: facts.KindProcess, Name: "dockerd", PID: 11, State: facts.LinkBlocked}, {Kind: facts.KindMount, Name: "/volume", State: facts.LinkBlocked},
		}, tt.links...)}
		if v := Judge(&f, t0, nil); v.Reason != PodInspectionStall || !strings.HasPrefix(v.Next, tt.want) {
			t.Errorf("%s: %q, want %q", v.Reason, v.Next, tt.want)
		}
	}
}

// TestContainerIsBlamedLate: a call of a starved runtime that is late is not taken for a
// container's lock.
func TestContainerIsBlamedLate(t *testing.T) {
	for hangs, blamed := range map[time.Duration]bool{2 * time.Second: false, 6 * time.Second: true} {
		f := hangingList()
		f.Relist.InFlight.PhaseStart = t0.Add(-hangs)
		f.Evidence.Chain = chainOf(facts.Link{Kind: facts.KindContainer, Name: "a/b/c"})
		f.Evidence.Chain.Links[0].Since, f.Evidence.Chain.Unknown = t0.Add(-hangs), "its shim is idle"
		v := Judge(&f, t0, nil)
		if v.Reason != RuntimeListStall || contains(strings.Join(v.Active[0].Evidence, ";"), "of one container alone hangs") != blamed {
			t.Errorf("%s: %v, the container is blamed: want %t", hangs, v.Active, blamed)
		}
	}
}

func TestLinkID(t *testing.T) {
	for _, tt := range []struct {
		name string
		link facts.Link
		want string
	}{
		{"a driver's executable", facts.Link{Kind: facts.KindHelper, Name: "aws-cni"}, "aws-cni"},
		{"a name that is no word", facts.Link{Kind: facts.KindProcess, Name: "(sd pam) \"x\""}, "_sd_pam___x_"},
		{"a slice", facts.Link{Kind: facts.KindCgroup, Name: "/kubepods.slice/kubepods-podab12.slice/x.scope"}, "kubepods.slice"},
		{"a file server", facts.Link{Kind: facts.KindMount, Name: "/var/lib/kubelet/pods/1/x", Fingerprint: "nfs4:1c2d3e4f"}, "nfs4:1c2d3e4f"},
		{"a pod has none", facts.Link{Kind: facts.KindPod, Name: "shop/api-1"}, ""},
		{"a container has none", facts.Link{Kind: facts.KindContainer, Name: "shop/api-1/main"}, ""},
	} {
		check.Equal(t, tt.link.ID(), tt.want, "%s", tt.name)
	}
}

// TestCauseOutlivesItsCall: what the chain of a call has proved is as severe while calls are answered, and the cause of the
// next one that hangs before its chain is known.
func TestCauseOutlivesItsCall(t *testing.T) {
	shim := facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkThrottled}
	group := facts.Link{Kind: facts.KindCgroup, Name: "/shims", State: facts.LinkThrottled}
	f := hangingList()
	f.Evidence.Chain = chainOf(shim, group)
	hanging := Judge(&f, t0, nil)
	finding, ok := Proof(hanging)
	if !ok || finding.Reason != ShimStuck || finding.Call != "list_containers" || finding.Chain.First().PID != 4711 {
		t.Fatalf("%+v, %t of %+v", finding, ok, hanging)
	}
	later := t0.Add(time.Second)
	answered := healthyFacts(later)
	held := Judge(&answered, later, hanging)
	_, ok = Proof(held)
	if ok || !held.Active[0].Held || held.Culprit == nil || held.Next != hanging.Next {
		t.Errorf("the reason is held without its cause: %+v", held)
	}
	for _, none := range []facts.Verdict{
		{WaitChain: hanging.WaitChain}, {Reason: hanging.Reason, WaitChain: facts.WaitChain{Chain: hanging.Chain}, Active: hanging.Active},
	} {
		_, ok = Proof(&none)
		check.Equal(t, ok, false, "a chain without a reason or a culprit: %+v", none)
	}
	finding.Chain.At = t0
	for name, f := range map[string]facts.Facts{"answered": healthyFacts(t0), "the next call hangs": hangingList()} {
		f.Evidence.Findings = []facts.Finding{finding}
		v := Judge(&f, t0, hanging)
		check.Equal(t, v.Reason, ShimStuck, "%s", name)
		check.Equal(t, v.Active[0].Severity, facts.SeverityCritical, "%s", name)
		check.Equal(t, v.Culprit.Name, "/shims", "%s", name)
		check.Equal(t, HoldsUp(v, ShimStuck), v.Symptom != "", "%s", name)
	}
	finding.Chain.At = t0.Add(-time.Minute)
	f = hangingList()
	f.Evidence.Findings = []facts.Finding{finding}
	if v := Judge(&f, t0, nil); v.Reason != RuntimeListStall {
		t.Errorf("%s by what was true a minute ago", v.Reason)
	}
}

// TestEndedHelper: a helper that has ended waits for its shim.
func TestEndedHelper(t *testing.T) {
	f := hangingList()
	f.Evidence.Chain = chainOf(
		facts.Link{Kind: facts.KindHelper, Name: "runc", PID: 4712, State: facts.LinkEnded},
		facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped},
	)
	check.Equal(t, Judge(&f, t0, nil).Reason, ShimStuck, "the reason")
}

// TestCauseOfStuckAgain: of a shim that is stopped again the cause stays known until its chain has been followed; another
// shim's is not taken for it.
func TestCauseOfStuckAgain(t *testing.T) {
	f := healthyFacts(t0)
	f.Calls = answeredCalls()
	f.Evidence.Children = &facts.Children{Shims: 5, Stuck: []facts.Child{{PID: 4711, State: "T", Since: t0.Add(-time.Second)}}}
	f.Evidence.Chain = &facts.Chain{At: t0, Links: []facts.Link{{Kind: facts.KindShim, PID: 4711, State: facts.LinkStopped}}}
	first := Judge(&f, t0, nil)
	f.Evidence.Chain = nil
	again := Judge(&f, t0, first)
	if again.Culprit == nil || again.Culprit.PID != 4711 || again.Next != first.Next {
		t.Errorf("%+v, %q after %+v, %q", again.Culprit, again.Next, first.Culprit, first.Next)
	}
	f.Evidence.Children.Stuck[0].PID = 5000
	if other := Judge(&f, t0, first); other.Culprit != nil {
		t.Errorf("%+v of another shim", other.Culprit)
	}
}
