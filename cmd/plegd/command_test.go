package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// plegd runs one command line and returns its exit code and output.
func plegd(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	code = execute(ctx, args, &out, &err)
	return code, out.String(), err.String()
}

// TestBadInput: one line that names the flag, the value and the allowed values; an
// exit code that is no verdict, and nothing is started.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	for _, tt := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"run", "--no-such-flag"}, 2, []string{"--no-such-flag"}},
		{[]string{"run", "--relist-perod=2s"}, 2, []string{"--relist-perod", "did you mean --relist-period?", "plegd run --help"}},
		{[]string{"run", "extra"}, 2, []string{"extra"}},
		{[]string{"nonsense"}, 4, []string{"nonsense", "plegd --help"}},
		{[]string{"chekc"}, 4, []string{"chekc", "did you mean check?"}},
		{[]string{"--vresion"}, 4, []string{"--vresion", "did you mean --version?"}},
		{[]string{"simulate", "failpoint"}, 4, []string{"failpoint", "did you mean failpoints?"}},
		{[]string{"simulate", "--pods=many"}, 4, []string{"--pods", `"many"`, "whole number"}},
		{[]string{"simulate", "--pods=-3"}, 4, []string{"--pods -3", "0 to 100000"}},
		{[]string{"simulate", "--containers=-1"}, 4, []string{"--containers -1", "0 to 1000000"}},
		{[]string{"simulate", "--churn=7"}, 4, []string{"--churn 7", "0 to 1"}},
		{[]string{"simulate", "--churn=often"}, 4, []string{"--churn", `"often"`, "0 to 1"}},
		{[]string{"simulate", "--failpoints=x"}, 4, []string{"--failpoints", `"x"`, "name=term"}},
		{[]string{"simulate", "--socket=/dev/null"}, 1, []string{"--socket /dev/null", "no socket"}},
		{[]string{"replay"}, 4, []string{"arguments []", "want plegd replay FILE"}},
		{[]string{"reasons", "ShimStuck", "x"}, 4, []string{`"x"`, "want plegd reasons [ID]"}},
		{[]string{"run", "x"}, 2, []string{`["x"]`, "want plegd run"}},
		{[]string{"incidents", "-o", "xml"}, 4, []string{"--output", `"xml"`}},
		{[]string{"check", "-o", "nagios", "--timeout=0"}, 3, []string{"--timeout"}},
		{[]string{"check", "--no-such-flag", "-o=npd"}, 2, []string{"--no-such-flag"}},
		{[]string{"run", "--relist-period=soon"}, 2, []string{"--relist-period", `"soon"`, "1s"}},
		{[]string{"run", "--relist-period=0"}, 2, []string{"--relist-period", "0s", "10ms to 1h"}},
		{[]string{"run", "--relist-period=5m"}, 2, []string{"--relist-period", "5m0s", "--relist-threshold", "3m0s"}},
		{[]string{"run", "--relist-threshold=-1s"}, 2, []string{"--relist-threshold", "-1s", "1s to 24h"}},
		{[]string{"run", "--probe-period=1000h"}, 2, []string{"--probe-period", "1000h0m0s", "want 10ms to 1h"}},
		{[]string{"run", "--runtime-endpoint=tcp://10.0.0.1:1234"}, 2, []string{"--runtime-endpoint", "tcp://10.0.0.1:1234", "unix://"}},
		{[]string{"run", "--runtime-endpoint=run/x.sock"}, 2, []string{"--runtime-endpoint", "run/x.sock", "absolute"}},
		{[]string{"run", "--runtime-endpoint=/" + strings.Repeat("x", 200)}, 2, []string{"--runtime-endpoint", "107"}},
		{[]string{"run", "--web.listen-address=nowhere"}, 2, []string{"--web.listen-address", "nowhere"}},
		{[]string{"run", "--web.config.file=" + filepath.Join(dir, "none.yml")}, 2, []string{"--web.config.file", "none.yml"}},
		{[]string{"run", "--control-socket=relative.sock"}, 2, []string{"--control-socket", "relative.sock"}},
		{[]string{"run", "--log.level=loud"}, 2, []string{"--log.level", `"loud"`, "debug, info, warn or error"}},
		{[]string{"run", "--log.format=xml"}, 2, []string{"--log.format", `"xml"`, "json or console"}},
		{[]string{"check", "--output=xml"}, 4, []string{"--output", `"xml"`, "text, json, nagios or npd"}},
		{[]string{"check", "--timeout=0"}, 4, []string{"--timeout", "0s"}},
		{[]string{"check", "--no-such-flag"}, 4, []string{"--no-such-flag"}},
		{[]string{"check", "-o", "npd", "--timeout=never"}, 2, []string{"--timeout", `"never"`}},
		{[]string{"check", "-o", "npd", "--npd-problem=slow"}, 2, []string{"--npd-problem", `"slow"`, "unhealthy"}},
		{[]string{"check", "snpd"}, 4, []string{"snpd"}},
		{[]string{"check", "--control-socket=/run/npd", "--no-such-flag"}, 4, []string{"--no-such-flag"}},
		{[]string{"check", "-onagios", "--no-such-flag"}, 3, []string{"--no-such-flag"}},
		{[]string{"check", "--npd-problem=unhealthy"}, 4, []string{"--npd-problem", "-o npd"}},
		{[]string{"stacks", "--file=x", "--signal"}, 4, []string{"--signal", "--file"}},
		{[]string{"stacks", "--yes"}, 4, []string{"--yes", "--signal"}},
		{[]string{"stacks", "--file=" + file}, 3, []string{file, "not a goroutine dump"}},
		{[]string{"stacks", "--file=" + filepath.Join(dir, "none")}, 1, []string{"none"}},
		{[]string{"status", "--output=nagios"}, 4, []string{"--output", `"nagios"`, "text or json"}},
		{[]string{"status", "--control-socket=" + filepath.Join(dir, "none.sock")}, 3, []string{"none.sock"}},
		{[]string{"reasons", "NoSuchReason"}, 4, []string{"NoSuchReason", "plegd reasons"}},
		{[]string{"reasons", "ShimStuk"}, 4, []string{"did you mean ShimStuck?"}},
		{[]string{"drill", "ShimStuk", "--alertmanager=http://127.0.0.1:1"}, 4, []string{"did you mean ShimStuck?"}},
		{[]string{"drill", "ShimStuck"}, 4, []string{"--alertmanager", "http://HOST:9093"}},
		{[]string{"drill", "ShimStuck", "--alertmanager=http://127.0.0.1:1", "--for=0"}, 4, []string{"--for", "0s"}},
		{[]string{"drill", "ShimStuck", "--alertmanager=http://127.0.0.1:1", "--label=x"}, 4, []string{"--label", `"x"`}},
		{[]string{"drill", "ShimStuck", "--alertmanager=http://127.0.0.1:1"}, 1, []string{"connection refused"}},
		{[]string{"replay", file}, 3, []string{file}},
		{[]string{"replay", filepath.Join(dir, "none.json")}, 3, []string{"none.json"}},
	} {
		t.Run(strings.Join(tt.args, " ")[:min(60, len(strings.Join(tt.args, " ")))], func(t *testing.T) {
			code, stdout, stderr := plegd(t, tt.args...)
			check.Equal(t, code, tt.code, "exit")
			check.Equal(t, stdout, "", "it prints")
			if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "plegd: ") {
				t.Errorf("want one line, got %q", stderr)
			}
			for _, want := range tt.says {
				check.Contains(t, stderr, want, "does not say")
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	env := map[string]string{
		"PLEGD_RELIST_PERIOD": "2s", "PLEGD_RELIST_THRESHOLD": "1m", "PLEGD_WEB_LISTEN_ADDRESS": "127.0.0.1:1, 127.0.0.1:2",
		"PLEGD_PATH_PROCFS": "/host/proc", "PLEGD_CONTROL_SOCKET": "",
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	cmd := newRunCommand()
	fs := cmd.Flags()
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" {
			t.Errorf("--%s has no help text", f.Name)
		}
	})
	page, err := os.ReadFile("../../docs/operating.md")
	must.Do(t, err)
	documented := regexp.MustCompile("(?m)^\\| `--([a-z.-]+)` \\| `([A-Z_]+)` \\| ([^|]*)\\|").FindAllStringSubmatch(string(page), -1)
	rows := map[string]string{}
	for _, row := range documented {
		check.Equal(t, row[2], envName(row[1]), "docs/operating.md, --%s: variable", row[1])
		rows[row[1]] = strings.TrimSpace(row[3])
	}
	fs.VisitAll(func(f *pflag.Flag) {
		given, ok := rows[f.Name]
		want := strings.Trim(f.DefValue, "[]")
		if length, err := time.ParseDuration(given); err == nil {
			given = length.String()
		}
		if !ok && f.Name != "help" || given != want && f.Name != "state-dir" {
			t.Errorf("docs/operating.md has %t, --%s with default %q; it is %q", ok, f.Name, given, want)
		}
		delete(rows, f.Name)
	})
	check.Equal(t, len(rows), 0, "flags in docs/operating.md that are none: %v", rows)
	must.Do(t, fs.Parse([]string{"--relist-threshold=2m"}))
	must.Do(t, fromEnvironment(fs, lookup))
	for flag, want := range map[string]string{
		"relist-period": "2s", "relist-threshold": "2m0s", "path.procfs": "/host/proc", "control-socket": "",
		"web.listen-address": "[127.0.0.1:1,127.0.0.1:2]", "rpc-timeout": "2m0s",
	} {
		check.Equal(t, fs.Lookup(flag).Value.String(), want, "%s", flag)
	}
	env["PLEGD_RPC_TIMEOUT"] = "long"
	err = fromEnvironment(newRunCommand().Flags(), lookup)
	if err == nil || !strings.Contains(err.Error(), "PLEGD_RPC_TIMEOUT") || !strings.Contains(err.Error(), `"long"`) {
		t.Errorf("a wrong variable: %v", err)
	}
}

// TestReasons: what a program reads of the table is what text says.
func TestReasons(t *testing.T) {
	code, text, _ := plegd(t, "reasons")
	_, out, _ := plegd(t, "reasons", "-o", "json")
	var all []reasonDocument
	if err := json.Unmarshal([]byte(out), &all); err != nil || code != 0 {
		t.Fatalf("exit %d: %v", code, err)
	}
	if n := len(health.Reasons()); len(all) != n || strings.Count(text, "\n") != n {
		t.Errorf("%d reasons, %d lines, want %d", len(all), strings.Count(text, "\n"), n)
	}
	for _, r := range all {
		if r.ID == "" || len(r.Severities) == 0 || strings.Contains(strings.Join(append(r.Steps, r.Next), " "), "{pid}") {
			t.Errorf("%+v", r)
		}
		code, one, _ := plegd(t, "reasons", strings.ToLower(r.ID))
		if code != 0 || !strings.Contains(one, r.Next) || !strings.Contains(one, r.Meaning) {
			t.Errorf("reasons %s: exit %d, %q", r.ID, code, one)
		}
	}
}

// TestFlagValuesComplete: a shell completes what a flag or a command takes.
func TestFlagValuesComplete(t *testing.T) {
	one := readExample(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"check", "-o", ""}, "nagios"},
		{[]string{"status", "--output", ""}, "json"},
		{[]string{"run", "--events", ""}, "evented"},
		{[]string{"run", "--log.level", ""}, "debug"},
		{[]string{"reasons", "Shim"}, "ShimStuck"},
		{[]string{"incidents", "--control-socket=", "--state-dir=" + stateDir(t, one), ""}, one.ID + "\t" + one.Reason},
	} {
		code, out, _ := plegd(t, append([]string{"__complete"}, tt.args...)...)
		if code != 0 || !slices.Contains(strings.Split(out, "\n"), tt.want) {
			t.Errorf("%v: exit %d, %q lacks %s", tt.args, code, out, tt.want)
		}
	}
}

func TestCompletionAndVersion(t *testing.T) {
	for args, says := range map[string]string{"completion tcsh": `unknown command "tcsh"`, "completion zhs": "did you mean zsh?"} {
		code, out, errs := plegd(t, strings.Fields(args)...)
		if code != 2 || out != "" || !strings.Contains(errs, says) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, %q, %q", args, code, out, errs)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, out, _ := plegd(t, "completion", shell); code != 0 || !strings.Contains(out, "plegd") {
			t.Errorf("completion %s: exit %d", shell, code)
		}
	}
	for _, arg := range []string{"version", "--version"} {
		if code, out, _ := plegd(t, arg); code != 0 || !strings.HasPrefix(out, "plegd, version ") {
			t.Errorf("%s: exit %d, %q", arg, code, out)
		}
	}
}

// TestBundle: one archive, readable by its owner alone, with what could not be had
// reported; where it cannot be written one line and exit 1, and no part of a file.
func TestBundle(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b.tar.gz")
	code, _, stderr := plegd(t, "bundle", "--control-socket=", "--state-dir="+dir, "--runtime-endpoint="+filepath.Join(dir, "none.sock"), "-o", path)
	if code != 0 || !strings.Contains(stderr, path) || !strings.Contains(stderr, "names of pods") {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 || info.Size() == 0 {
		t.Errorf("%v, %v", info, err)
	}
	code, _, stderr = plegd(t, "bundle", "--control-socket=", "-o", filepath.Join(dir, "none", "b.tar.gz"))
	if code != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "none/b.tar.gz") {
		t.Errorf("a folder that is not there: exit %d: %s", code, stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".plegd-*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestSignals: a command that hangs ends within a second of the first signal, and at once at the
// second one.
func TestSignals(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		signals int
		ends    bool // at the first signal
		want    int
		took    time.Duration
	}{
		{[]string{"replay", "fifo"}, 1, false, 128 + 15, endTimeout},
		{[]string{"incidents"}, 2, false, 128 + 15, 0},
		{[]string{"run"}, 1, false, 0, daemonEndTimeout},
		{[]string{"run"}, 2, false, 0, 0},
		{[]string{"status"}, 1, true, 3, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 2)
			ended := make(chan int, 1)
			for range tt.signals {
				signals <- syscall.SIGTERM
			}
			start := time.Now()
			cancel := func() {
				if tt.ends {
					ended <- 3
				}
			}
			if code := await(tt.args, signals, cancel, ended); code != tt.want || time.Since(start) != tt.took {
				t.Errorf("%+v: %d after %s", tt, code, time.Since(start))
			}
		})
	}
}

// TestDrill posts one alert, and says what and until when.
func TestDrill(t *testing.T) {
	posts := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { posts++ }))
	defer server.Close()
	code, out, _ := plegd(t, "drill", "runtimefrozen", "--alertmanager="+server.URL, "--node=node-1", "--label=cluster=eu")
	if code != 0 || posts != 1 || !strings.HasPrefix(out, "DRILL: node-1: RuntimeFrozen: ") || !strings.Contains(out, "It ends at ") {
		t.Errorf("%d, %d posts: %s", code, posts, out)
	}
}
