package npd

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/plegd/plegd/test/must"
)

// config is the part of node-problem-detector's custom plugin configuration that the
// test reads.
type config struct {
	PluginConfig struct {
		Timeout   string `json:"timeout"`
		MaxOutput int    `json:"max_output_length"`
		// A changed message is no new event.
		ByMessage bool `json:"enable_message_change_based_condition_update"`
	} `json:"pluginConfig"`
	Conditions []struct{ Type string }
	Rules      []struct {
		Type, Condition, Path, Timeout string
		Args                           []string
	}
}

// The exit codes of a plugin.
const (
	ok      = 0
	problem = 1
	unknown = 2
)

const unhealthy, runtimeProblem = "PLEGUnhealthy", "ContainerRuntimeProblem"

// TestPlugin runs the commands of plegd.json as node-problem-detector does: on a healthy
// node, on nodes with a fault, and where the question itself fails.
func TestPlugin(t *testing.T) {
	b, err := os.ReadFile("plegd.json")
	must.Do(t, err)
	var c config
	must.Do(t, json.Unmarshal(b, &c))
	if len(c.Rules) != 2 || len(c.Conditions) != 2 || c.Rules[0].Condition == c.Rules[1].Condition || c.PluginConfig.ByMessage {
		t.Fatalf("want one rule for each of two conditions, and no events for changed messages: %+v", c)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "plegd")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/plegd/plegd/cmd/plegd").CombinedOutput(); err != nil {
		t.Fatalf("build plegd: %v\n%s", err, out)
	}
	healthy := simulate(t, program, filepath.Join(dir, "healthy.sock"))
	hung := simulate(t, program, filepath.Join(dir, "hung.sock"), "--failpoints=ListContainers=delay(1h)")
	silent := filepath.Join(dir, "silent.sock")
	l, err := net.Listen("unix", silent)
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for name, n := range map[string]struct {
		env                []string
		unhealthy, runtime int
		message            string
	}{
		"healthy": {[]string{"PLEGD_RUNTIME_ENDPOINT=" + healthy}, ok, ok, "healthy"},
		// The kubelet still manages pods: nothing that a remediation should act on.
		"a list hangs":    {[]string{"PLEGD_RUNTIME_ENDPOINT=" + hung}, ok, problem, "RuntimeListStall"},
		"no socket":       {[]string{"PLEGD_RUNTIME_ENDPOINT=" + filepath.Join(dir, "gone.sock")}, ok, problem, "RuntimeSocketMissing"},
		"a wrong setting": {[]string{"PLEGD_RELIST_PERIOD=often"}, unknown, unknown, ""},
		"a daemon that does not answer": {
			[]string{"PLEGD_RUNTIME_ENDPOINT=" + healthy, "PLEGD_CONTROL_SOCKET=" + silent}, unknown, unknown, "",
		},
	} {
		for _, r := range c.Rules {
			t.Run(name+"/"+r.Condition, func(t *testing.T) {
				want := map[string]int{unhealthy: n.unhealthy, runtimeProblem: n.runtime}[r.Condition]
				if r.Path != "/usr/bin/plegd" || r.Type != "permanent" {
					t.Errorf("the rule is %s, %s", r.Type, r.Path)
				}
				limit, err := time.ParseDuration(r.Timeout)
				must.Do(t, err)
				// The start of a process takes as long as the machine is loaded: it is measured beside the rule.
				begun := time.Now()
				must.Do(t, exec.Command(program, "version").Run())
				limit += 10 * time.Since(begun)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				cmd := exec.CommandContext(ctx, program, r.Args...)
				cmd.Env = append([]string{
					"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PLEGD_KUBELET_HEALTHZ_URL=",
					"PLEGD_CONTROL_SOCKET=" + filepath.Join(dir, "none.sock"),
				}, n.env...)
				out, err := cmd.Output()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
					t.Fatal(err, ctx.Err())
				}
				code, message := cmd.ProcessState.ExitCode(), strings.TrimSpace(string(out))
				if code != want || !strings.Contains(message, n.message) {
					t.Errorf("the result is %d %q, want %d with %q", code, message, want, n.message)
				}
				if strings.ContainsAny(message, "\n\r") || !utf8.ValidString(message) || len(message) > c.PluginConfig.MaxOutput {
					t.Errorf("not one line of at most %d bytes: %q", c.PluginConfig.MaxOutput, message)
				}
			})
		}
	}
}

func simulate(t *testing.T, program, socket string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(program, append([]string{"simulate", "--socket=" + socket, "--pods=20", "--containers=2"}, flags...)...)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatal("plegd simulate makes no " + socket)
		}
	}
}
