package exporter

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

func statusText(t *testing.T, d *StatusDocument, color bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteStatusText(&b, d, color); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func document(s Snapshot, names bool) *StatusDocument {
	d := BuildStatus(s, names)
	d.PlegdVersion, d.Node = "1.0.0", "worker-7"
	return &d
}

func TestStatusTextGolden(t *testing.T) {
	for name, snap := range map[string]Snapshot{
		"starting": starting(), "healthy": healthy(), "degraded": degraded(), "unhealthy": unhealthy(),
	} {
		t.Run(name, func(t *testing.T) {
			got := statusText(t, document(snap, true), false)
			golden(t, "testdata/status-"+name+".golden", got)
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > textWidth {
					t.Errorf("a line of %d columns: %s", n, line)
				}
			}
		})
	}
}

func TestStatusTextColor(t *testing.T) {
	d := document(unhealthy(), true)
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
	d := document(degraded(), true)
	d.KubeletMessage, d.Kubelet.NodeReady = evil+strings.Repeat("x", 1<<20), false
	d.Next, d.Reason = evil, evil
	d.Reasons[0].ID, d.Reasons[0].Evidence = evil, []string{evil, strings.Repeat("y ", 1<<16)}
	d.Runtime.Name, d.Runtime.Version = evil, strings.Repeat(evil, 1000)
	d.Endpoint.Path, d.Endpoint.Source = evil, evil
	d.StatusCheck.Conditions.NetworkReady = &ConditionDocument{Reason: evil, Message: evil}
	d.Probe.OK, d.Probe.Stage, d.Probe.Cause, d.Probe.Detail = false, evil, evil, evil
	for i := range d.Pods.Slowest {
		d.Pods.Slowest[i].Pod = &PodDocument{Namespace: evil, Name: strings.Repeat(evil, 100)}
		d.Pods.Slowest[i].Operation = evil
		d.Pods.Slowest[i].Error = &ErrorDocument{Operation: evil, Code: evil, Message: evil}
	}
	e := &d.Evidence
	e.Process.Comm, e.Process.Lock = evil, &LockDocument{HolderComm: evil, File: strings.Repeat(evil, 1000)}
	e.Connections.Stuck[0].Comm, e.Connections.Stuck[0].State = evil, evil
	e.Children.Stuck[0].Comm, e.Children.Stuck[0].State, e.Children.Old[0].Comm = evil, evil, evil
	e.Kubelet.OK, e.Kubelet.Detail = false, strings.Repeat(evil, 1000)
	e.Docker = &DockerDocument{
		ProbeDocument: &ProbeDocument{Stage: evil, Cause: evil, Detail: evil},
		Daemon:        &DockerProcessDocument{Socket: evil, Queue: &QueueDocument{}, Process: &ProcessDocument{Comm: evil}},
	}
	e.Sources[evil] = SourceDocument{Error: strings.Repeat(evil, 1000)}
	d.Operations[evil] = OperationDocument{LastError: &ErrorDocument{Operation: evil, Code: evil, Message: evil}}
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

func TestFormatSeconds(t *testing.T) {
	for s, want := range map[float64]string{
		0: "0s", -1: "0s", 0.000084: "0.1ms", 0.0004: "0.4ms", 0.0099: "9.9ms", 0.012: "12ms", 0.9994: "999ms", 0.9999: "1.0s",
		2.34: "2.3s", 9.94: "9.9s", 9.96: "10s", 47.4: "47s", 59.6: "1m00s", 133: "2m13s", 3599.6: "1h00m", 11040: "3h04m",
		190800: "2d05h",
	} {
		if got := formatSeconds(s); got != want {
			t.Errorf("formatSeconds(%v) = %s, want %s", s, got, want)
		}
	}
	if got := formatLeft(0.2); got != "1s" {
		t.Errorf("formatLeft(0.2) = %s: a countdown must not say 0 before it is over", got)
	}
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
		{"abcdefghij", 4, "abcd|efgh|ij"},
		{"ab cdefghij k", 4, "ab|cdef|ghij|k"},
	} {
		if got := strings.Join(wrap(tt.in, tt.width), "|"); got != tt.want {
			t.Errorf("wrap(%q, %d) = %q, want %q", tt.in, tt.width, got, tt.want)
		}
	}
}
