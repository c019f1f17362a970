package npd

import (
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

	"github.com/plegd/plegd/test/check"
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
	healthy := filepath.Join(dir, "healthy.sock")
	hung := filepath.Join(dir, "hung.sock")
	start(t, program, "simulate", "--socket="+healthy, "--pods=20", "--containers=2")
	start(t, program, "simulate", "--socket="+hung, "--pods=20", "--containers=2", "--failpoints=ListContainers=delay(1h)")
	silent := filepath.Join(dir, "silent.sock")
	l, err := net.Listen("unix", silent)
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	for name, n := range map[string]struct {
		env                []string
		unhealthy, runtime int
		message            string
	}{
		"healthy": {daemon(t, program, healthy, "HEALTHY"), ok, ok, "healthy"},
		// The kubelet still manages pods: nothing that a remediation should act on.
		"a list hangs":    {daemon(t, program, hung, "RuntimeListStall"), ok, problem, "RuntimeListStall"},
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
				// plegd ends by itself within npdTimeout, which is shorter: the machine may be slow.
				limit, err := time.ParseDuration(r.Timeout)
				must.Do(t, err)
				check.Equal(t, limit, 5*time.Second, "the timeout of a rule")
				cmd := exec.Command(program, r.Args...)
				cmd.Env = append([]string{
					"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PLEGD_KUBELET_HEALTHZ_URL=",
					"PLEGD_CONTROL_SOCKET=" + filepath.Join(dir, "none.sock"),
				}, n.env...)
				out, err := cmd.Output()
				var exit *exec.ExitError
				if err != nil && !errors.As(err, &exit) {
					t.Fatal(err)
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

// start runs plegd until the test ends.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// daemon runs plegd beside a runtime until its status has a word, and returns the environment of a
// client. It sees no /proc: the machine that runs the test may itself be short of something.
func daemon(t *testing.T, program, endpoint, word string) []string {
	t.Helper()
	control := endpoint + ".plegd"
	start(t, program, "run", "--runtime-endpoint="+endpoint, "--control-socket="+control, "--state-dir="+t.TempDir(),
		"--web.listen-address=", "--kubelet-healthz-url=", "--path.procfs="+t.TempDir(), "--path.sysfs="+t.TempDir())
	must.Eventually(t, 2*time.Minute, word, func() bool {
		out, _ := exec.Command(program, "status", "--control-socket="+control).Output() // not 0 in a fault
		return strings.Contains(string(out), word)
	})
	return []string{"PLEGD_CONTROL_SOCKET=" + control}
}
