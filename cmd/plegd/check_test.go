package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/must"
)

// TestCheckWithoutDaemon: a socket that is not there, a file, a web server and
// garbage each get their reason, CRITICAL, and one line where one line is asked
// for.
func TestCheckWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	serve := func(name string, handle func(net.Listener)) string {
		l, err := net.Listen("unix", filepath.Join(dir, name))
		must.Do(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go handle(l)
		return l.Addr().String()
	}
	web := serve("web", func(l net.Listener) { _ = http.Serve(l, http.NotFoundHandler()) })
	garbage := serve("garbage", func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write(bytes.Repeat([]byte("garbage "), 64))
			_ = c.Close()
		}
	})
	for _, tt := range []struct{ name, path, reason string }{
		{"missing", filepath.Join(dir, "none"), health.RuntimeSocketMissing},
		{"a file", file, health.RuntimeNotListening},
		{"an HTTP server", web, health.CRIVersionUnsupported},
		{"garbage", garbage, health.CRIVersionUnsupported},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := plegd(t, "check", "--control-socket=", "--runtime-endpoint="+tt.path, "-o", "nagios")
			if tt.name == "missing" {
				_, document, _ := plegd(t, "check", "--control-socket=", "--runtime-endpoint="+tt.path, "-o", "json")
				var d facts.Snapshot
				if err := json.Unmarshal([]byte(document), &d); err != nil || d.Reason != tt.reason || d.NotReadyIn != nil {
					t.Errorf("%v: %s, not ready in %v: a look of a moment cannot know since when it is so", err, d.Reason, d.NotReadyIn)
				}
			}
			if code != exitUnhealthy || !strings.Contains(stdout, tt.reason) || strings.Count(stdout, "\n") != 1 {
				t.Errorf("exit %d, %q, %q; want 2, as for every critical reason, and one line with %s", code, stdout, stderr, tt.reason)
			}
		})
	}
}

func document(change func(*facts.Snapshot)) *facts.Snapshot {
	left, latest := 23*time.Second, 34*time.Second
	d := &facts.Snapshot{Verdict: facts.Verdict{
		State: facts.StateDegraded, Reason: health.RuntimeUnresponsive, LastSeen: time.Unix(100, 0), LastSeenAge: 12500 * time.Millisecond,
		Threshold: 3 * time.Minute, NotReadyIn: &left, NotReadyInLatest: &latest,
		Predicted: facts.Predicted{RulesOK: true, NodeReady: true},
		Active:    []facts.Active{{ID: health.RuntimeUnresponsive, Evidence: []string{"list_podsandbox unanswered for 9s | and\x1b[31m more\n"}}},
	}}
	if change != nil {
		change(d)
	}
	return d
}

// TestExitCodes: to node-problem-detector a node that is only slow gets no condition, and
// neither does the runtime for a fault of the kubelet.
func TestExitCodes(t *testing.T) {
	for _, tt := range []struct {
		state                           facts.State
		reason                          string
		severity                        facts.Severity
		check, npd, unhealthy, critical int
	}{
		{"healthy", "", "", 0, npdOK, npdOK, npdOK},
		{"degraded", health.RelistSlow, "warning", 1, npdProblem, npdOK, npdOK},
		{"degraded", health.RuntimeFrozen, "critical", 1, npdProblem, npdOK, npdProblem},
		{"unhealthy", health.RuntimeFrozen, "critical", 2, npdProblem, npdProblem, npdProblem},
		{"degraded", health.KubeletDown, "critical", 1, npdProblem, npdOK, npdOK},
		{"starting", health.Starting, "info", 3, npdUnknown, npdUnknown, npdUnknown},
		{"starting", health.RuntimeSocketMissing, "critical", 1, npdProblem, npdOK, npdProblem},
	} {
		d := document(func(d *facts.Snapshot) {
			d.State, d.Reason, d.Active = tt.state, tt.reason, []facts.Active{{ID: tt.reason, Severity: tt.severity}}
		})
		got := []int{exitCode(d), npdCode(d, npdAny), npdCode(d, npdUnhealthy), npdCode(d, npdCritical)}
		if want := []int{tt.check, tt.npd, tt.unhealthy, tt.critical}; !slices.Equal(got, want) {
			t.Errorf("%s %s: %d, want %d", tt.state, tt.reason, got, want)
		}
	}
}

// TestOneLine: Nagios's line has performance data, node-problem-detector's at most 80 bytes and
// the culprit without its name.
func TestOneLine(t *testing.T) {
	evidence := func(text string) func(*facts.Snapshot) {
		return func(d *facts.Snapshot) { d.Active[0].Evidence[0] = text }
	}
	const head = "degraded: RuntimeUnresponsive, NotReady in 23-34s: "
	nagios := func(w io.Writer, d *facts.Snapshot) (int, error) { return printNagios(w, d) }
	npd := func(w io.Writer, d *facts.Snapshot) (int, error) { return diagnosis{Snapshot: d}.printNPD(w, npdAny) }
	for name, tt := range map[string]struct {
		print  func(io.Writer, *facts.Snapshot) (int, error)
		change func(*facts.Snapshot)
		code   int
		want   string // begin of the line
	}{
		"Nagios": {nagios, nil, 1, "PLEGD WARNING - " + head + "list_podsandbox unanswered for 9s   and\\x1b[31m more\\n | last_seen_age=12.500s;30;180;0\n"},
		"Nagios, a critical reason": {nagios, func(d *facts.Snapshot) {
			d.Active = append(d.Active, facts.Active{ID: health.RuntimeFrozen, Severity: "critical"})
		}, 2, "PLEGD CRITICAL - degraded"},
		"npd, too long": {npd, evidence(strings.Repeat("ü", 100)), npdProblem, head + strings.Repeat("ü", (npdMaxBytes-3-len(head))/2) + "...\n"},
		"npd, short":    {npd, evidence("short"), npdProblem, head + "short\n"},
		"npd, a culprit": {npd, func(d *facts.Snapshot) {
			d.Reason, d.NodeReady = "ShimStuck", true
			d.Active = []facts.Active{{ID: "ShimStuck", Evidence: []string{"who: it does not answer", "beside it"}}}
			d.Culprit = &facts.Link{Kind: facts.KindShim, Name: "containerd-shim", PID: 4711, State: facts.LinkStopped, Evidence: "it does not answer"}
			d.Chain = []facts.Link{*d.Culprit}
		}, npdProblem, "degraded: ShimStuck, NotReady in 23-34s: shim pid 4711 stopped: beside it\n"},
	} {
		var out bytes.Buffer
		code, err := tt.print(&out, document(tt.change))
		if err != nil || code != tt.code || !strings.HasPrefix(out.String(), tt.want) || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %v\n got %q\nwant %q", name, code, err, out.String(), tt.want)
		}
	}
}

// TestAnotherEndpoint: the daemon answers for its own socket only, to check and bundle.
func TestAnotherEndpoint(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(dir, "control.sock")
	l, err := net.Listen("unix", control)
	must.Do(t, err)
	daemons := &facts.Snapshot{At: time.Now(), SchemaVersion: facts.SchemaVersion}
	daemons.State, daemons.Facts.Endpoint.Path = facts.StateHealthy, "/run/its.sock"
	answer, err := facts.Marshal(daemons)
	must.Do(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	other := filepath.Join(dir, "other.sock")
	for endpoint, want := range map[string]string{
		"": "/run/its.sock", "/run/its.sock": "/run/its.sock", "unix:///run/its.sock": "/run/its.sock", other: other,
	} {
		args := []string{"check", "--control-socket=" + control, "--timeout=2s", "-o", "json"}
		if endpoint != "" {
			args = append(args, "--runtime-endpoint="+endpoint)
		}
		code, out, errs := plegd(t, args...)
		var got facts.Snapshot
		if err := facts.Unmarshal([]byte(out), &got); err != nil || got.Facts.Endpoint.Path != want || (code == 0) != (want == "/run/its.sock") {
			t.Errorf("%q: exit %d, diagnosis of %q, %v %s", endpoint, code, got.Facts.Endpoint.Path, err, errs)
		}
		path := filepath.Join(dir, "b.tar.gz")
		args = append([]string{"bundle", "-o", path, "--state-dir=" + dir}, slices.DeleteFunc(args[1:], func(a string) bool {
			return a == "-o" || a == "json" || a == "--timeout=2s"
		})...)
		if code, _, errs := plegd(t, args...); code != 0 {
			t.Fatalf("bundle: exit %d: %s", code, errs)
		}
		text, err := exec.Command("tar", "-xzOf", path, "plegd-bundle/plegd/status.json").CombinedOutput()
		if err != nil || !strings.Contains(string(text), `"path": "`+want+`"`) {
			t.Errorf("%q: the bundle's status is of another socket: %v %.200s", endpoint, err, text)
		}
	}
}

// TestNPDWithoutDaemon: in a pod, where no socket is visible, a daemon that restarts is no problem
// of the runtime.
func TestNPDWithoutDaemon(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		reason, socket string
		own            bool
		want           int
	}{
		{health.RuntimeSocketMissing, "", true, npdUnknown},
		{health.RuntimeSocketMissing, "/no/such/dir/x.sock", true, npdUnknown},
		{health.RuntimeSocketMissing, filepath.Join(dir, "x.sock"), true, npdProblem},
		{health.RuntimeSocketMissing, "", false, npdProblem},
		{health.RuntimeFrozen, "", true, npdProblem},
	} {
		s := facts.Snapshot{Verdict: facts.Verdict{State: facts.StateDegraded, Reason: tt.reason}}
		s.Facts.Endpoint.Path = tt.socket
		var out strings.Builder
		if code, err := (diagnosis{Snapshot: &s, local: tt.own}).printNPD(&out, npdAny); code != tt.want || err != nil {
			t.Errorf("%+v: %d, %v: %s", tt, code, err, out.String())
		}
	}
}
