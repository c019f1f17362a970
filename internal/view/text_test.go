package view

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func statusText(t *testing.T, s facts.Snapshot, color bool) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, Status(Content{Snapshot: &s}).WriteText(&b, color))
	return b.String()
}

// blind is a node whose runtime only plegd cannot see.
func blind() facts.Snapshot {
	s := viewtest.Healthy()
	failed := &facts.CallError{Operation: "list_podsandbox", Code: "Unavailable", Message: "permission denied"}
	s.Facts.Relist.LastSeen, s.Facts.Relist.Failures = viewtest.Ago(20*time.Second), 20
	s.Facts.Relist.Last = &facts.RelistResult{Start: viewtest.Ago(time.Second), End: viewtest.Ago(100 * time.Millisecond), Err: failed}
	s.Facts.Dial = facts.Dial{At: viewtest.T0, Cause: facts.CausePermissionDenied, Detail: "permission denied for uid 100"}
	s.Verdict = *health.Judge(&s.Facts, s.At, nil)
	return s
}

// kubeletDown is a node on which nobody listens for the kubelet's healthz any more.
func kubeletDown() facts.Snapshot {
	s := viewtest.Healthy()
	s.Facts.Evidence.Kubelet = &facts.Kubelet{At: viewtest.T0, Seen: true, Refused: true, FailedSince: viewtest.Ago(90 * time.Second), AnsweredAt: viewtest.Ago(90 * time.Second)}
	s.Verdict = *health.Judge(&s.Facts, s.At, nil)
	return s
}

// TestStatusText: 24 lines of 80 columns hold the verdict, the reason, the culprit with its
// pod, the prediction, the kubelet and what to do. The golden files have the rest.
func TestStatusText(t *testing.T) {
	for name, tt := range map[string]struct {
		snap facts.Snapshot
		want []string
	}{
		"starting":  {viewtest.Starting(), []string{"STARTING: Starting (info, for 1.2s) on worker-7", "Predicted  none yet", "Kubelet ", "Next       "}},
		"healthy":   {viewtest.Healthy(), []string{"HEALTHY: All is well (for 2d01h) on worker-7", "Predicted  managing pods; the API shows Ready", "Kubelet    its healthz answers ok"}},
		"degraded":  {viewtest.Degraded(), []string{"DEGRADED: PodInspectionStall (critical, ", "Predicted  managing pods for another", "Next "}},
		"stalled":   {viewtest.Stalled(), []string{"DEGRADED: ShimStuck (critical", "Culprit    shim", "payments/api-7d9f8b6c5-x2x4v", "Predicted  managing pods for another", "Next ", "kill -CONT"}},
		"unhealthy": {viewtest.Unhealthy(), []string{"UNHEALTHY: RuntimeUnresponsive (", "Predicted  not managing pods; the API shows NotReady", "Kubelet    its healthz fails", "Message    [container runtime is down", "Next ", "1. "}},
		"unknown":   {blind(), []string{"UNKNOWN: RuntimeSocketPermissionDenied (", "Predicted  none: plegd cannot see the runtime", "Next "}},
		"kubelet":   {kubeletDown(), []string{"DEGRADED: KubeletDown (critical", "Kubelet    its healthz fails for 1m30s", "Next "}},
	} {
		t.Run(name, func(t *testing.T) {
			got := statusText(t, tt.snap, false)
			lines := strings.Split(got, "\n")
			screen := strings.Join(lines[:min(24, len(lines))], "\n")
			for _, want := range append(tt.want, "Kubelet ") {
				check.Contains(t, screen, want, "first screen")
			}
			if name == "degraded" || name == "stalled" || name == "unhealthy" {
				viewtest.Golden(t, "testdata/status-"+name+".golden", got)
			}
			commands := strings.ReplaceAll(strings.Join(append(tt.snap.Steps, tt.snap.Next), "\n"), "`", "")
			for _, line := range lines {
				if utf8.RuneCountInString(line) > columns && !strings.Contains(commands, strings.Trim(line, " 0123456789.,;:")) {
					t.Errorf("a line of more than %d columns that is no command: %s", columns, line)
				}
			}
		})
	}
}

func TestColor(t *testing.T) {
	plain, colored := statusText(t, viewtest.Unhealthy(), false), statusText(t, viewtest.Unhealthy(), true)
	if strings.Contains(plain, "\x1b") || !strings.HasPrefix(colored, "\x1b[1;31mUNHEALTHY\x1b[0m: ") {
		t.Errorf("colors without being asked for, or a verdict that is not red: %.60q", colored)
	}
	var stripped strings.Builder
	for i, part := range strings.Split(colored, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		stripped.WriteString(part)
	}
	check.Equal(t, stripped.String(), plain, "colors change more than the color")
}

// hostile is an incident, and its moment, with a text wherever something comes from outside.
func hostile(text string) (*facts.Snapshot, *incident.Incident) {
	s := viewtest.Filled(text)
	s.Active = append(s.Active, s.Active[0])
	s.Chain[0].Name, s.Culprit.Evidence = "", ""
	f := &s.Facts
	f.Calls = map[string]facts.Call{text: {LastFailed: s.At, LastErr: f.Calls["key"].LastErr}}
	f.Evidence.Sources = map[string]facts.Source{text: {Err: strings.Repeat(text, 1000)}}
	one := viewtest.Incident()
	one.ID, one.Reason, one.State, one.Outcome = text, text, facts.State(text), incident.Outcome(text)
	one.KubeletMessage, one.Ending, one.Timeline[0].Snapshot = text, []string{text}, &s
	return &s, one
}

// TestHostileText has terminal commands, line breaks and very long texts wherever
// something comes from outside.
func TestHostileText(t *testing.T) {
	const evil = "\x1b]0;owned\a\x1b[2J\r\nHEALTHY\u202e\u0085\xff"
	s, one := hostile(evil)
	s.KubeletMessage += strings.Repeat("x", 1<<20)
	s.Active[0].Evidence = []string{evil, strings.Repeat("y ", 1<<16)}
	var b strings.Builder
	must.Do(t, errors.Join(Incident(one, s).WriteText(&b, false), WriteIncidents(&b, []incident.Summary{one.Summary})))
	none := *s
	none.Facts.Endpoint.Path = "" // then the searched ones are shown
	for _, got := range []string{statusText(t, *s, false), statusText(t, none, false), b.String()} {
		for _, r := range got {
			if r != '\n' && (r < ' ' || r == 0x7f || r == 0x85 || r == 0x202e || r == utf8.RuneError) {
				t.Fatalf("%q reaches the terminal", r)
			}
		}
		if len(got) > 64<<10 {
			t.Errorf("%d bytes of text", len(got))
		}
		if strings.Contains(got, "\nHEALTHY") {
			t.Errorf("a forged line:\n%s", got)
		}
	}
}

// TestCommandsStayWhole: a command can be pasted from the text, however long it is.
func TestCommandsStayWhole(t *testing.T) {
	s := viewtest.Degraded()
	long := "ss -xp | awk -v s=/run/containerd/containerd.sock '$5==s {want[$8]} {line[$6]=$0}  END {for (i in want) print line[i]}'"
	s.Steps = []string{"Some words that come before it: `" + long + "`: the clients."}
	check.Contains(t, statusText(t, s, false), long, "the command is not in one piece")
}

func TestIncidentText(t *testing.T) {
	var b strings.Builder
	one := viewtest.Incident()
	must.Do(t, Incident(one, new(facts.Snapshot)).WriteText(&b, false))
	viewtest.Golden(t, "testdata/incident.golden", b.String())
	once := b.String()
	last := one.Timeline[len(one.Timeline)-1]
	last.Offset++
	one.Timeline = append(one.Timeline, last) // evidence that was sampled after the end
	b.Reset()
	must.Do(t, Incident(one, new(facts.Snapshot)).WriteText(&b, false))
	check.Equal(t, b.String(), once, "a moment like the one before")
	b.Reset()
	if err := Incident(&incident.Incident{Summary: one.Summary}, new(facts.Snapshot)).WriteText(&b, false); err != nil || !strings.Contains(b.String(), "ShimStuck") {
		t.Errorf("an incident without moments, as after a crash: %v\n%s", err, b.String())
	}
	b.Reset()
	list := slices.Repeat([]incident.Summary{one.Summary}, 2)
	list[0].Outcome, list[0].Closed, list[0].Stored = incident.Open, nil, false
	must.Do(t, WriteIncidents(&b, list))
	viewtest.Golden(t, "testdata/incidents.golden", b.String())
	b.Reset()
	if err := WriteIncidents(&b, nil); err != nil || b.String() != "no incidents\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestFloat(t *testing.T) {
	for s, want := range map[float64]string{
		0: "0s", -1: "0s", 0.000084: "0.1ms", 0.0004: "0.4ms", 0.0099: "9.9ms", 0.012: "12ms", 0.9994: "999ms", 0.9999: "1.0s",
		2.34: "2.3s", 9.94: "9.9s", 9.96: "10s", 47.4: "47s", 59.6: "1m00s", 133: "2m13s", 3599.6: "1h00m", 11040: "3h04m",
		190800: "2d05h",
	} {
		check.Equal(t, float(s), want, "formatSeconds(%v)", s)
	}
	check.Equal(t, countdown(200*time.Millisecond), "1s", "a countdown must not say 0 before it is over")
}

func TestWrap(t *testing.T) {
	for _, tt := range []struct {
		in    string
		width int
		want  string
	}{
		{"", 5, ""},
		{"a b c", 5, "a b c"},
		{"a bb ccc", 4, "a bb|ccc"},
		{"abcdefghij", 4, "abcdefghij"},
		{"ab cdefghij k", 4, "ab|cdefghij|k"},
		{"a " + unbroken("b  c") + " d", 4, "a|b  c|d"},
		{"a " + unbroken("bb ccc") + ": d", 4, "a|bb ccc:|d"},
	} {
		check.Equal(t, strings.Join(wrap(tt.in, tt.width), "|"), tt.want, "wrap(%q, %d)", tt.in, tt.width)
	}
}

// TestShorten: a text is cut after a word, a word where it must be.
func TestShorten(t *testing.T) {
	for in, want := range map[string]string{
		"one two three": "one two three", "one two, three": "one two...", "one two three four": "one two...", "onetwothreefour": "onetwothre...", "a twothreefour": "a twothree...",
	} {
		check.Equal(t, shorten(in, 13), want, "%s", in)
	}
}

func TestHistory(t *testing.T) {
	start := time.Date(2026, 11, 21, 3, 4, 5, 0, time.UTC)
	h := NewHistory(start)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	last := func(now float64, n int) []RelistBin { return h.Bins(at(now))[HistoryBins-n:] }
	h.Add(at(1), time.Millisecond, true)
	h.Add(at(2), 7*time.Millisecond, true)
	h.Add(at(3), 2*time.Millisecond, false)
	h.Add(at(11), time.Second, true)
	h.Judged(at(11), facts.StateDegraded) // the worst one counts
	h.Judged(at(12), facts.StateHealthy)
	want := []RelistBin{{}, {Slowest: 7 * time.Millisecond, Relists: 3, Failed: 1}, {}, {Slowest: time.Second, Relists: 1, State: facts.StateDegraded}}
	check.Same(t, last(12, 4), want, "the last 20 s")
	// Ten minutes later the old ones are gone, and their places are used again.
	h.Add(at(601), 3*time.Millisecond, true)
	check.Same(t, last(602, 1), []RelistBin{{Slowest: 3 * time.Millisecond, Relists: 1}}, "ten minutes later")
	check.Equal(t, h.Bins(at(602))[0], RelistBin{}, "a bin of ten minutes ago is still there")
	// A restart that takes 20 s leaves a gap of four bins.
	saved, again := h.Bins(at(602)), NewHistory(at(622))
	again.Restore(at(602), saved)
	again.Add(at(623), time.Millisecond, true)
	want = []RelistBin{saved[HistoryBins-1], {}, {}, {}, {Slowest: time.Millisecond, Relists: 1}}
	check.Same(t, again.Bins(at(623))[HistoryBins-5:], want, "after a restart")
}
