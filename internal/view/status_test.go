package view

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

// TestPhrases has the phrases of incomplete and of unusual snapshots.
func TestPhrases(t *testing.T) {
	at := time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return at.Add(-d) }
	from, by, over := 52*time.Second, 64*time.Second, time.Duration(0)
	for _, tt := range []struct {
		phrase func(*facts.Snapshot) string
		change func(*facts.Snapshot, *facts.Evidence)
		want   string
	}{
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) {}, "managing pods; the API shows Ready"},
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) { s.State = facts.StateUnknown }, "none: plegd cannot see the runtime, others may"},
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) { s.State, s.NodeReady = facts.StateStarting, false }, "none yet: no relist has succeeded"},
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) {
			s.RulesFailIn, s.NotReadyIn, s.NotReadyInLatest = &from, &from, &by
		}, "managing pods for another 52s; the API still shows Ready for 52s to 1m04s, if nothing changes"},
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) {
			s.RulesFailIn, s.NotReadyIn, s.NotReadyInLatest, s.SyncLoopAllowed = &over, &from, &from, false
		}, "not managing pods; the API still shows Ready for 52s, if nothing changes"},
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) {
			s.RulesFailIn, s.NotReadyIn, s.NodeReady = &over, &over, false
		},
			"the pod network is down; the API shows NotReady"},
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) {
			s.NodeReady, s.ReadyIn, s.ReadyInLatest = false, &from, &by
		},
			"managing pods; the API shows NotReady until the next status update, in 52s to 1m04s"},
		{outlook, func(s *facts.Snapshot, _ *facts.Evidence) {
			s.RulesFailIn, s.NotReadyIn, s.NotReadyInLatest, s.SyncLoopAllowed = &over, &over, &by, false
		}, "not managing pods; the API may still show Ready, for 1m04s at most"},
		{kubeletText, func(*facts.Snapshot, *facts.Evidence) {}, "none is seen on this node"},
		{kubeletText, func(_ *facts.Snapshot, e *facts.Evidence) { e.Kubelet = &facts.Kubelet{Refused: true} },
			"none is seen on this node; its healthz fails"},
		{kubeletText, func(s *facts.Snapshot, e *facts.Evidence) {
			e.KubeletProcess, s.Started = &facts.KubeletProcess{PID: 7}, ago(time.Hour)
			e.Kubelet = &facts.Kubelet{Seen: true, OK: true, LastSeen: ago(2 * time.Second)}
		}, "pid 7; started 1h00m ago; its healthz answers ok; its own PLEG was last seen 2.0s ago"},
		{kubeletText, func(_ *facts.Snapshot, e *facts.Evidence) {
			e.Kubelet = &facts.Kubelet{Seen: true, Detail: "syncloop failed", FailedSince: ago(9 * time.Second)}
		}, "its healthz fails for 9.0s: syncloop failed"},
		{process, func(*facts.Snapshot, *facts.Evidence) {}, ""},
		{process, func(_ *facts.Snapshot, e *facts.Evidence) { e.Queue = &facts.Queue{Listening: true, Limit: 4096} }, "queue 0 of 4096"},
		{process, func(_ *facts.Snapshot, e *facts.Evidence) {
			e.Process, e.Queue = &facts.Process{PID: 812, Comm: "containerd", RestartsTotal: 1}, &facts.Queue{}
		}, "pid 812 containerd is gone; nobody listens; 1 restart seen"},
		{process, func(_ *facts.Snapshot, e *facts.Evidence) {
			e.Process = &facts.Process{PID: 812, Comm: "x", Alive: true, OpenFDs: 4, MaxFDs: 9, Threads: map[string]int{"T": 3}}
			e.Cgroup = &facts.Cgroup{Frozen: true, Throttled: .25}
		}, "pid 812 x; descriptors 4 of 9, all 3 threads are stopped; its cgroup is frozen; throttled for 0.25s a second"},
		{missing, func(_ *facts.Snapshot, e *facts.Evidence) {
			e.Sources = map[string]facts.Source{"queue": {Err: "b", Kept: true}, "node": {Err: "a"}, "process": {Up: true}}
		}, "node: a; queue: b; its last sample still counts"},
	} {
		s := facts.Snapshot{At: at, Verdict: facts.Verdict{State: facts.StateHealthy, SyncLoopAllowed: true, Predicted: facts.Predicted{NodeReady: true}}}
		tt.change(&s, &s.Facts.Evidence)
		check.Equal(t, tt.phrase(&s), tt.want, "tt.phrase(&s)")
	}
}

// TestClockMeasuresTheDecidingRule: the bar shows the rule that fails first.
func TestClockMeasuresTheDecidingRule(t *testing.T) {
	at := time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	left := 12 * time.Second
	for want, age := range map[string]struct{ relist, status time.Duration }{
		"successful relist": {168 * time.Second, 3 * time.Second}, "good status check": {time.Second, 18 * time.Second},
	} {
		s := facts.Snapshot{At: at, Verdict: facts.Verdict{LastSeen: at, LastSeenAge: age.relist, Threshold: 3 * time.Minute}}
		s.RulesFailIn, s.NodeReady, s.Facts.Status.LastGood = &left, true, at.Add(-age.status)
		if c := newClock(&s); c.Watched != want || c.Limit-c.Age != left {
			t.Errorf("the bar measures %s of %s since the last %s, want the last %s", c.Age, c.Limit, c.Watched, want)
		}
	}
}

func TestPlot(t *testing.T) {
	at := time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	s := &facts.Snapshot{At: at, Verdict: facts.Verdict{Threshold: time.Second}}
	s.Facts.Relist.InFlight = &facts.InFlight{Start: at.Add(-71 * time.Second)}
	if newPlot(s, nil) != nil {
		t.Error("a plot of nothing")
	}
	bins := make([]RelistBin, HistoryBins)
	bins[50] = RelistBin{Slowest: time.Millisecond, Relists: 5, State: facts.StateHealthy}
	bins[60] = RelistBin{Slowest: 12 * time.Second, Relists: 1, State: facts.StateDegraded}
	bins[61] = RelistBin{Slowest: time.Second, Relists: 5, Failed: 1, State: facts.StateDegraded}
	// The one of 12 s covers two bins before its own; the one under way 15 bins.
	want := map[int]string{50: "ended", 58: "ended", 59: "ended", 60: "ended", 61: "failed"}
	for i := 105; i < HistoryBins; i++ {
		want[i] = "now"
	}
	p, got := newPlot(s, bins), map[int]string{}
	for i, b := range p.Bars {
		if b.Class != "" {
			got[i] = b.Class
		}
		check.Equal(t, b.State, bins[i].State, "the verdict of bin %d", i)
	}
	check.Same(t, got, want, "bars")
	if want := "11 relists ended, 1 of them failed; the slowest took 1m11s; one is under way for 1m11s"; p.Summary != want {
		t.Errorf("the summary is %q, want %q", p.Summary, want)
	}
	check.Equal(t, strings.Join(p.Ticks, " "), "02:54 02:56 02:59 03:01 now", "the ticks")
	// 1 ms is the lower edge, 1000 s the upper one; the shortest bar can be seen.
	for s, want := range map[float64]float64{0: .1, .001: .1, 1: 3, 1000: 6, 1e6: 6} {
		if got := decades(time.Duration(s * float64(time.Second))); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v s are %v high, want %v", s, got, want)
		}
	}
	if p.Limit != 3 || p.Bars[61].Top != 3 {
		t.Errorf("the threshold is at %v, a second at %v", p.Limit, p.Bars[61].Top)
	}
}

func briefText(t *testing.T, s *facts.Snapshot, height int) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, Status(Content{Snapshot: s}).WriteBrief(&b, false, height, "plegd status --full"))
	return b.String()
}

// TestBrief: the screen of a terminal holds, in this order, the verdict, the culprit, the
// countdown, evidence, the chain, the next step and the first step, however much there is of each.
func TestBrief(t *testing.T) {
	many := viewtest.Stalled()
	for range 20 {
		many.Active[0].Evidence = append(many.Active[0].Evidence, strings.Repeat("evidence ", 30))
		many.Chain = append(many.Chain[:1:1], append([]facts.Link{{Kind: facts.KindProcess, Name: strings.Repeat("x", 200)}}, many.Chain[1:]...)...)
	}
	open := viewtest.Stalled()
	open.ChainEnd = "each of 220 single status calls is answered: it is a lock of the list itself"
	two := viewtest.Stalled()
	two.Active = append(two.Active, facts.Active{ID: health.RuntimeStorageFull, Severity: facts.SeverityWarning, Since: two.At.Add(-9 * time.Second), Evidence: []string{"root /r is full"}})
	apart := viewtest.Unhealthy()
	agent := facts.Link{Kind: facts.KindProcess, Name: "agent", PID: 4713, State: facts.LinkStopped, Evidence: "stopped by a signal"}
	own := &facts.ActiveCause{WaitChain: facts.WaitChain{Chain: []facts.Link{agent}, Culprit: &agent}, Next: "`kill -CONT 4713` continues it."}
	apart.Active = append(apart.Active[:1], facts.Active{ID: health.RuntimeHelperStuck, Severity: facts.SeverityWarning, Since: apart.At, Cause: own})
	for name, tt := range map[string]struct {
		snap   facts.Snapshot
		height int
		want   []string
	}{
		"stalled": {viewtest.Stalled(), Screen, []string{
			"DEGRADED: ShimStuck (critical, for 1m37s) on worker-7", "Culprit    shim containerd-shim (pid 4711)", "Predicted  managing pods for another 1m20s",
			"Evidence   ContainerStatus of one container alone", "Chain      kubelet (its relist", "<== culprit", "Next       kill -CONT 4711", "First step ps -o pid", "Restart?   No: ", "More       plegd status --full",
		}},
		"many of each":           {many, Screen, []string{"Culprit ", "Predicted ", "Evidence ", " more)", "Chain ", "<== culprit", "Next ", "First step ", "More "}},
		"a low screen":           {many, 14, []string{"Culprit ", "Predicted ", "Evidence ", "Chain ", "Next ", "First step "}},
		"unhealthy":              {viewtest.Unhealthy(), Screen, []string{"UNHEALTHY: RuntimeUnresponsive", "Predicted  not managing pods", "Message    [container runtime is down", "Evidence   list_podsandbox unanswered", "First step ", "Restart?   Maybe: not if", "Missing    storage: statfs", "Kubelet "}},
		"a chain without an end": {open, Screen, []string{"Last link ", "Chain ", "No further: each of 220 single status calls is answered: it is a lock", "of the list itself.", "Next "}},
		"two faults":             {two, Screen, []string{"Next ", "First step ", "Restart? ", "Also       RuntimeListStall (critical", "RuntimeStorageFull (warning, for 9.0s): root /r is full", "More "}},
		"a second culprit":       {apart, Screen, []string{"Next ", "Also       RuntimeHelperStuck", "Culprit: process agent (pid", "Next: kill -CONT 4713 continues it", "More "}},
		"healthy":                {viewtest.Healthy(), Screen, []string{"HEALTHY: All is well", "Predicted  managing pods; the API shows Ready", "Kubelet "}},
		"starting":               {viewtest.Starting(), Screen, []string{"STARTING: Starting", "Predicted  none yet", "Next "}},
		"unknown":                {blind(), Screen, []string{"UNKNOWN: ", "Predicted  none", "Next "}},
	} {
		got := briefText(t, &tt.snap, tt.height)
		rest := got
		for _, want := range tt.want {
			at := strings.Index(strings.ToLower(rest), strings.ToLower(want))
			if at < 0 {
				t.Errorf("%s: no %q in its order:\n%s", name, want, got)
				break
			}
			rest = rest[at:]
		}
		height := 0
		for line := range strings.Lines(got) {
			height += (utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) + columns - 1) / columns
		}
		if height > tt.height {
			t.Errorf("%s: %d lines, want at most %d:\n%s", name, height, tt.height, got)
		}
	}
}

// TestRestartIsOneLine: whether a restart helps fits beside its label, for every reason.
func TestRestartIsOneLine(t *testing.T) {
	for _, r := range health.Reasons() {
		line := restart(r.Restart)
		if utf8.RuneCountInString(line) > columns-labelWidth || line == "" {
			t.Errorf("%s: %s", r.ID, line)
		}
	}
}

// TestRestartOutlived: a restart that may help by the reason's page does not while another process or a mount is the culprit
// and stands still.
func TestRestartOutlived(t *testing.T) {
	for _, tt := range []struct {
		culprit *facts.Link
		end     string
		want    string
	}{
		{culprit: nil, want: "Maybe."},
		{culprit: &facts.Link{Kind: facts.KindProcess, PID: 7, State: facts.LinkStopped}, want: "No."},
		{culprit: &facts.Link{Kind: facts.KindMount, Name: "/m", State: facts.LinkFrozen}, want: "No."},
		{culprit: &facts.Link{Kind: facts.KindProcess, PID: 7, State: facts.LinkAsleep}, want: "Maybe."},
		{culprit: &facts.Link{Kind: facts.KindRuntime, PID: 7, State: facts.LinkStopped}, want: "Maybe."},
		{culprit: &facts.Link{Kind: facts.KindCgroup, Name: "/g", State: facts.LinkMemory}, want: "Maybe."},
		{culprit: &facts.Link{Kind: facts.KindProcess, PID: 7, State: facts.LinkStopped}, end: "it cannot be read", want: "Maybe."},
	} {
		c := &facts.WaitChain{Culprit: tt.culprit, ChainEnd: tt.end}
		got := restartText(c, "Maybe. It helps where it hangs.")
		check.Equal(t, strings.HasPrefix(got, tt.want), true, "%+v: %s", tt.culprit, got)
	}
	c := &facts.WaitChain{Culprit: &facts.Link{Kind: facts.KindProcess, PID: 7, State: facts.LinkStopped}}
	check.Equal(t, restartText(c, "Yes. It helps."), "Yes. It helps.", "a page that is sure")
}

// TestBriefIsHarmless: hostile texts neither command the terminal nor push the verdict off it.
func TestBriefIsHarmless(t *testing.T) {
	s, _ := hostile("\x1b]0;owned\a\x1b[2J\r\nHEALTHY\u202e\u0085\xff" + strings.Repeat("x ", 5000))
	got := briefText(t, s, Screen)
	if strings.Count(got, "\n") > Screen || strings.ContainsFunc(got, func(r rune) bool { return r != '\n' && r < ' ' || r == 0x202e || r == 0x85 }) {
		t.Errorf("%q", got)
	}
}

// TestForecast: a message that the kubelet will write is not shown as said now.
func TestForecast(t *testing.T) {
	soon, over := 40*time.Second, time.Duration(0)
	for _, tt := range []struct {
		ready bool
		fails *time.Duration
		want  string
	}{
		{true, &soon, "will be: PLEG is not healthy"},
		{true, nil, "will be: PLEG is not healthy"},
		{true, &over, "with the next status update: PLEG is not healthy"},
		{false, &over, "PLEG is not healthy"},
	} {
		s := viewtest.Degraded()
		s.KubeletMessage, s.NodeReady, s.RulesFailIn = "PLEG is not healthy", tt.ready, tt.fails
		check.Equal(t, Message(&s), tt.want, "%+v", tt)
	}
}

// TestStepsRepeatNoNext: no step repeats Next.
func TestStepsRepeatNoNext(t *testing.T) {
	got := withoutNext([]string{
		"`kill -CONT 13` if it was stopped. Ending it ends its pod.", "`kill -CONT 13`.", "`ps -p 13`, then `kill -CONT 13`.", "Call the owner.",
	}, "`kill -CONT 13` continues it.")
	want := []string{"Ending it ends its pod.", "`ps -p 13`, then `kill -CONT 13`.", "Call the owner."}
	check.Same(t, got, want, "steps")
}

// TestParts: only what can be run is a command.
func TestParts(t *testing.T) {
	for text, want := range map[string]bool{
		"kill -CONT 13": true, "echo THAWED >/sys/fs/cgroup/x": true, "crictl inspect CONTAINER": false, "ps aux --sort -rss | head": true, "systemctl status containerd": true,
		"pipe_write": false, "--runtime-endpoint": false, "memory.events": false, "State: T": false, "LimitNOFILE=1048576": false,
	} {
		if got := parts("see `" + text + "`."); len(got) != 3 || got[1].Command != want || !got[1].Code {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

// TestCulpritsPod: the pod of the call is that of a shim at the end of its chain, not of any other process there.
func TestCulpritsPod(t *testing.T) {
	for kind, want := range map[facts.LinkKind]bool{facts.KindShim: true, facts.KindProcess: false} {
		c := &facts.WaitChain{
			Culprit: &facts.Link{Kind: kind, Name: "x", PID: 7, State: facts.LinkStopped},
			Chain:   []facts.Link{{Kind: facts.KindContainer, Name: "shop/cart/app"}},
		}
		got := culpritTerm(c, "").Text
		check.Equal(t, strings.Contains(got, "shop/cart"), want, "%s: %s", kind, got)
	}
}
