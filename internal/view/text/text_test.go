package text

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func statusText(t *testing.T, d *health.Snapshot, color bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteStatusText(&b, d, color); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestStatusTextGolden(t *testing.T) {
	for name, snap := range map[string]health.Snapshot{
		"starting": viewtest.Starting(), "healthy": viewtest.Healthy(), "degraded": viewtest.Degraded(), "unhealthy": viewtest.Unhealthy(), "stalled": viewtest.Stalled(),
	} {
		t.Run(name, func(t *testing.T) {
			got := statusText(t, new(snap), false)
			viewtest.Golden(t, "testdata/status-"+name+".golden", got)
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > textWidth {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
		})
	}
}

func TestStatusTextColor(t *testing.T) {
	d := new(viewtest.Unhealthy())
	plain, colored := statusText(t, d, false), statusText(t, d, true)
	if strings.Contains(plain, "\x1b") {
		t.Error("colors where none were asked for")
	}
	if !strings.HasPrefix(colored, "\x1b[1;31mUNHEALTHY\x1b[0m: ") {
		t.Errorf("the verdict is not red: %.60q", colored)
	}
	var stripped strings.Builder
	for i, part := range strings.Split(colored, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		stripped.WriteString(part)
	}
	if stripped.String() != plain {
		t.Error("colors change more than the color")
	}
}

// TestStatusTextHostile puts terminal commands, line breaks and very long texts
// wherever something comes from outside.
func TestStatusTextHostile(t *testing.T) {
	const evil = "\x1b]0;owned\a\x1b[2J\r\nHEALTHY\u202e\u0085\xff"
	d := new(viewtest.Degraded())
	d.KubeletMessage, d.NodeReady = evil+strings.Repeat("x", 1<<20), false
	d.Next, d.Reason = evil, evil
	d.Active[0].ID, d.Active[0].Evidence = evil, []string{evil, strings.Repeat("y ", 1<<16)}
	f := &d.Facts
	f.Runtime.Name, f.Runtime.Version = evil, strings.Repeat(evil, 1000)
	f.Endpoint.Path, f.Endpoint.Source = evil, evil
	f.Status.NetworkReady = &health.Condition{Reason: evil, Message: evil}
	f.Probe.OK, f.Probe.Stage, f.Probe.Cause, f.Probe.Detail = false, evil, evil, evil
	for i := range f.Relist.Slowest {
		p := &f.Relist.Slowest[i]
		p.Namespace, p.Name, p.Operation = evil, strings.Repeat(evil, 100), evil
		p.Err = &health.CallError{Operation: evil, Code: evil, Message: evil}
	}
	e := &f.Evidence
	e.Process.Comm, e.Process.Lock = evil, &health.LockWait{HolderComm: evil, File: strings.Repeat(evil, 1000)}
	e.Children.Stuck[0].Comm, e.Children.Stuck[0].State, e.Children.Old[0].Comm = evil, evil, evil
	e.Kubelet.OK, e.Kubelet.Detail = false, strings.Repeat(evil, 1000)
	e.Docker = &health.Docker{
		Probe:  health.Probe{At: viewtest.T0, Stage: evil, Cause: evil, Detail: evil},
		Daemon: &health.DockerProcess{Socket: evil, Queue: &health.Queue{}, Process: &health.Process{Comm: evil}},
	}
	e.Sources[evil] = health.Source{Err: strings.Repeat(evil, 1000)}
	f.Calls[evil] = health.Call{LastErr: &health.CallError{Operation: evil, Code: evil, Message: evil}}
	got := statusText(t, d, false)
	for _, r := range got {
		if r != '\n' && (r < ' ' || r == 0x7f || r == 0x85 || r == 0x202e || r == utf8.RuneError) {
			t.Fatalf("%q reaches the terminal", r)
		}
	}
	if len(got) > 32<<10 {
		t.Errorf("%d bytes of text", len(got))
	}
	for line := range strings.Lines(got) {
		if strings.HasPrefix(line, "HEALTHY") {
			t.Errorf("a forged line: %s", line)
		}
		if n := utf8.RuneCountInString(line); n > 3*textWidth {
			t.Errorf("a line of %d columns: %s", n, line)
		}
	}
}

// TestCommandsStayWhole: a command can be pasted from the text, however long it is.
func TestCommandsStayWhole(t *testing.T) {
	d := viewtest.Degraded()
	long := "ss -xp | awk -v s=/run/containerd/containerd.sock '$5==s {want[$8]} {line[$6]=$0}  END {for (i in want) print line[i]}'"
	d.Steps = []string{"Some words that come before it: `" + long + "`: the clients."}
	var b strings.Builder
	if err := WriteStatusText(&b, &d, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), long) {
		t.Errorf("the command is not in one piece:\n%s", b.String())
	}
}

// TestFirstScreen: 24 lines of 80 columns hold verdict, reason, culprit with its
// pod, the prediction and what to do.
func TestFirstScreen(t *testing.T) {
	d := viewtest.Stalled()
	lines := strings.Split(statusText(t, &d, false), "\n")
	screen := strings.Join(lines[:min(24, len(lines))], "\n")
	for _, want := range []string{"DEGRADED: ShimStuck (critical)", "Culprit    shim", "payments/api-7d9f8b6c5-x2x4v", "Predicted  managing pods for another", "Next ", "kill -CONT"} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q on the first screen:\n%s", want, screen)
		}
	}
}
