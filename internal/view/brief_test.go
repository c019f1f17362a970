package view

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

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
	open.ChainEnd = "its shim cannot be read (denied)"
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
		"unhealthy":              {viewtest.Unhealthy(), Screen, []string{"UNHEALTHY: RuntimeUnresponsive", "Predicted  not managing pods", "Message    [container runtime is down", "Evidence   list_podsandbox unanswered", "First step ", "Restart?   Maybe: not if", "Missing    queue: reading sock_diag", "Kubelet "}},
		"a chain without an end": {open, Screen, []string{"Last link ", "Chain ", "No further: its shim cannot be read (denied).", "Next "}},
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

// TestStepsRepeatNoNext: a step says nothing that Next has said.
func TestStepsRepeatNoNext(t *testing.T) {
	got := withoutNext([]string{
		"`kill -CONT 13` if it was stopped. Ending it ends its pod.", "`kill -CONT 13`.", "`ps -p 13`, then `kill -CONT 13`.", "Call the owner.",
	}, "`kill -CONT 13` continues it.")
	want := []string{"Ending it ends its pod.", "`ps -p 13`, then `kill -CONT 13`.", "Call the owner."}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
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

// TestFullDescriptors: a culprit that has used up its descriptors shows them.
func TestFullDescriptors(t *testing.T) {
	s := viewtest.Stalled()
	s.Facts.Evidence.Process.OpenFDs, s.Facts.Evidence.Process.MaxFDs = 72, 8
	s.Culprit = &facts.Link{Kind: facts.KindRuntime, Name: "containerd", PID: s.Facts.Evidence.Process.PID, Evidence: "asleep: accept queue 1 of 4096"}
	if got := culpritTerm(&s).Text; !strings.Contains(got, "accept queue 1 of 4096, fds 72 of 8") {
		t.Error(got)
	}
}
