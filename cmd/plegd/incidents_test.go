package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/plegd/plegd/internal/bundle"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/stacks"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

// example is the documentation's incident.
const example = "../../docs/api/incident.json"

func readExample(t *testing.T) *incident.Incident {
	t.Helper()
	one, err := incident.ReadFile(example)
	must.Do(t, err)
	return one
}

// stateDir is the state directory that a dead plegd has left.
func stateDir(t *testing.T, all ...*incident.Incident) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Mkdir(incident.Dir(dir), 0o700))
	for _, one := range all {
		b, err := json.Marshal(one)
		must.Do(t, err)
		must.Do(t, os.WriteFile(filepath.Join(incident.Dir(dir), one.ID+".json"), b, 0o600))
	}
	return dir
}

// TestIncidentsOfADeadDaemon are read from its state directory, and those of a stuck one.
func TestIncidentsOfADeadDaemon(t *testing.T) {
	older, newer := readExample(t), readExample(t)
	newer.ID, newer.Opened = "20261122T030245Z-00000f", newer.Opened.AddDate(0, 0, 1)
	dir := stateDir(t, older, newer)
	none, stuck := filepath.Join(dir, "none.sock"), filepath.Join(dir, "stuck.sock")
	listener, err := net.Listen("unix", stuck) // of a daemon that accepts and does not answer
	must.Do(t, err)
	defer listener.Close()
	ask := func(state, socket string, args ...string) (code int, out, errs string) {
		return plegd(t, slices.Concat([]string{"incidents"}, args, []string{"--state-dir=" + state, "--control-socket=" + socket})...)
	}
	_, out, _ := ask(dir, none, "-o", "json")
	var list []incident.Summary
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 2 || list[0].ID != newer.ID {
		t.Errorf("%v: %s", err, out)
	}
	_, out, _ = ask(dir, none, older.ID, "-o", "json")
	if one, err := incident.Decode([]byte(out)); err != nil || len(one.Timeline) != len(older.Timeline) {
		t.Error(err)
	}
	if code, out, errs := ask(dir, stuck, older.ID); code != 0 || !strings.Contains(out, older.Reason) ||
		!strings.Contains(errs, "no answer from "+stuck) || strings.Count(errs, "\n") != 1 {
		t.Errorf("of a stuck daemon: exit %d: %s%s", code, out, errs)
	}
	if code, _, errs := ask(filepath.Join(dir, "nowhere"), none); code != 3 || !strings.Contains(errs, none) || !strings.Contains(errs, "nowhere") {
		t.Errorf("with nothing to read: exit %d: %s", code, errs)
	}
	for _, id := range []string{"20261121T030245Z-ffffff", "20261121T030405Z-00000F", "", "nonsense", "../../etc/passwd"} {
		code, out, errs := ask(dir, none, id)
		if code != 3 || out != "" || !strings.Contains(errs, "unknown incident") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d: %s%s", id, code, out, errs)
		}
	}
	must.Do(t, os.WriteFile(filepath.Join(incident.Dir(dir), "20261121T030245Z-eeeeee.json"), []byte("half"), 0o600))
	code, out, errs := ask(dir, none)
	if code != 0 || strings.Index(out, newer.ID) > strings.Index(out, older.ID) || strings.Count(out, "\n") != 3 || !strings.Contains(errs, "1 files") {
		t.Errorf("beside half a file: exit %d: %s%s", code, out, errs)
	}
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	for _, tt := range []struct {
		path string
		code int
		says string
	}{
		{example, 1, "verdicts differ"}, // it is made up, and the classifier knows
		{filepath.Join(dir, "none.json"), 3, "none.json"},
		{file("garbage", "garbage"), 3, "not an incident of plegd"},
		{file("empty.json", `{"schema_version":2,"id":"20261121T030245Z-ffffff"}`), 3, "no moment of it holds facts"},
		{file("older.json", `{"schema_version":1,"id":"20261121T030245Z-ffffff","plegd_version":"0.0.1","timeline":[{"facts":{"config":{"relist_period_ns":1000000000}}}]}`), 3, "schema_version 1: this plegd reads 2"},
		{file("newer.json", `{"schema_version":7,"id":"20261121T030245Z-ffffff","plegd_version":"9.9.9"}`), 3, "9.9.9"},
	} {
		code, out, errs := plegd(t, "replay", tt.path)
		if code != tt.code || !strings.Contains(out+errs, tt.says) {
			t.Errorf("%s: exit %d: %s%s", tt.path, code, out, errs)
		}
	}
}

// TestWatch: the status is printed each second, and an error does not end it.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out strings.Builder
		shown := 0
		err := watch(ctx, &out, false, func() (int, error) {
			shown++
			switch shown {
			case 2:
				return 0, errors.New("asking plegd: connection refused")
			case 3:
				cancel()
			}
			return io.WriteString(&out, "HEALTHY\n")
		})
		must.Do(t, err)
		want := "--- 2000-01-01T00:00:00Z\nHEALTHY\n--- 2000-01-01T00:00:01Z\nasking plegd: connection refused\n--- 2000-01-01T00:00:02Z\nHEALTHY\n"
		check.Equal(t, out.String(), want, "output")
	})
}

// TestStacksFile: a dump in a file is analysed, as text and as JSON.
func TestStacksFile(t *testing.T) {
	file := filepath.Join("..", "..", "internal", "stacks", "testdata", "containerd-1.6-list-hangs.txt")
	code, text, errs := plegd(t, "stacks", "--file", file)
	if code != 0 || !strings.Contains(text, "held by goroutine 346: UpdateContainerResources") {
		t.Errorf("exit %d, %s%s", code, text, errs)
	}
	code, out, errs := plegd(t, "stacks", "--file", file, "-o", "json")
	var doc stacksDocument
	if err := json.Unmarshal([]byte(out), &doc); err != nil || code != 0 || len(doc.Dumps) != 1 || doc.Dumps[0].Report.Locks[0].Holder.Goroutine != 346 {
		t.Errorf("exit %d, %v, %s%s", code, err, out, errs)
	}
}

// TestStacksAsks: only a yes lets a runtime get a signal, one for each process.
func TestStacksAsks(t *testing.T) {
	for answer, want := range map[string]bool{"": false, "n\n": false, "\n": false, "yes please\n": false, "y\n": true, " YES\n": true, "y": true} {
		var question strings.Builder
		check.Equal(t, confirmed("crio", 812, bufio.NewReader(strings.NewReader(answer)), &question), want, "%q", answer)
		check.Contains(t, question.String(), "SIGUSR1 to crio, pid 812", "question")
	}
	input := bufio.NewReader(strings.NewReader("y\nn\n"))
	if !confirmed("dockerd", 1, input, io.Discard) || confirmed("containerd", 2, input, io.Discard) {
		t.Error("an answer counts for another process")
	}
}

// TestStacksOffer: --signal is offered for a runtime only that would get the signal.
func TestStacksOffer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root's processes are runtimes")
	}
	text, err := os.ReadFile("/bin/sh")
	must.Do(t, err)
	for _, tt := range []struct {
		program, script string
		given, want     bool // --signal is
	}{
		{program: "crio", script: "trap : USR1; ", want: true},
		{program: "containerd", script: "trap : USR1; ", want: true},
		{program: "crio", script: "trap : USR1; ", given: true},
		{program: "dockerd", script: ""},
		{program: "cri-dockerd", script: "trap : USR1; "},
		{program: "sh", script: "trap : USR1; "},
	} {
		exe := filepath.Join(t.TempDir(), tt.program)
		must.Do(t, os.WriteFile(exe, text, 0o755))
		cmd := exec.Command(exe, "-c", tt.script+"echo ready; read end")
		_, out := must.Start(t, cmd)
		_, err := io.ReadFull(out, make([]byte, len("ready")))
		must.Do(t, err)
		c := &stacksCommand{signal: tt.given}
		hint := c.signalHint(t.Context(), &stacks.Reader{Table: proc.NewTable("/proc")}, cmd.Process.Pid)
		check.Equal(t, hint != "", tt.want, "%s, %q, --signal %t: %q", tt.program, tt.script, tt.given, hint)
	}
}

// TestURL asks a daemon over HTTP that knows the client, and one that does not.
func TestURL(t *testing.T) {
	var answer any
	daemon := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := facts.Marshal(answer)
		if err != nil || r.URL.Path != view.PathStatus {
			http.Error(w, "no such page", http.StatusNotFound)
			return
		}
		_, _ = w.Write(b)
	}))
	defer daemon.Close()
	s := viewtest.Unhealthy()
	for _, tt := range []struct {
		answer any
		args   []string
		code   int
		want   string
	}{
		{&s, []string{"status"}, exitUnhealthy, "First step"},
		{&s, []string{"status", "--full"}, exitUnhealthy, "Fresh dial"},
		{view.NewPublic(&s), []string{"status"}, exitUnhealthy, "public summary"},
		{view.NewPublic(&s), []string{"status", "-o", "json"}, exitUnhealthy, `"public": true`},
		{view.NewPublic(&s), []string{"check"}, exitUnhealthy, "RuntimeUnresponsive"},
		{view.NewPublic(&s), []string{"check", "-o", "nagios"}, exitUnhealthy, "PLEGD CRITICAL - unhealthy: RuntimeUnresponsive"},
	} {
		answer = tt.answer
		code, stdout, stderr := plegd(t, append(tt.args, "--url", daemon.URL)...)
		if code != tt.code || !strings.Contains(stdout, tt.want) {
			t.Errorf("%v: %d\n%s%s", tt.args, code, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"status", "--url", "node"}, {"status", "--user=a:b"}, {"check", "--url=http://x", "--cert=y"}} {
		if code, _, stderr := plegd(t, args...); code != exitUsage {
			t.Errorf("%v: %d %s", args, code, stderr)
		}
	}
}

// TestBundleTarget: a regular file is replaced, also behind a link, which is reported; any other
// file is written to and keeps its type.
func TestBundleTarget(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	link := filepath.Join(dir, "link")
	must.Do(t, os.WriteFile(file, []byte("old"), 0o600))
	must.Do(t, os.Symlink(file, link))
	write := func(w io.Writer) (*bundle.Manifest, error) {
		_, err := io.WriteString(w, "new")
		return &bundle.Manifest{}, err
	}
	for path, word := range map[string]string{link: "is replaced", file: "is replaced", "/dev/null": "", filepath.Join(dir, "fresh"): ""} {
		mode := func() fs.FileMode {
			info, err := os.Lstat(path)
			if err != nil {
				return 0
			}
			return info.Mode().Type()
		}
		before := mode()
		var said strings.Builder
		must.Do(t, writeBundle(path, write, &said))
		if mode() != before || strings.Contains(said.String(), "is replaced") != (word != "") {
			t.Errorf("%s: %v has become %v, %q", path, before, mode(), &said)
		}
	}
	if text, err := os.ReadFile(file); string(text) != "new" || err != nil {
		t.Errorf("the file holds %q, %v", text, err)
	}
	var said strings.Builder
	if err := writeBundle(dir, write, &said); err == nil {
		t.Error("a directory is written to")
	}
	if err := writeBundle("/dev/full", write, &said); err == nil {
		t.Error("/dev/full takes an archive")
	}
}
