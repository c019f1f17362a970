package npd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// plugin is the program that the rules are to run, built once.
func plugin(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plegd")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/plegd/plegd/cmd/plegd").CombinedOutput(); err != nil {
		t.Fatalf("build plegd: %v\n%s", err, out)
	}
	return path
}

// node is what the plugin finds.
type node struct {
	name string
	env  []string
	// want are the results by condition, and says what the messages of problems must hold.
	want map[string]int
	says string
}

const unhealthy, runtimeProblem = "PLEGUnhealthy", "ContainerRuntimeProblem"

// nodes are a healthy one, one with a fault, and what may go wrong with the
// question itself. None has a plegd that runs but the last, whose does not
// answer.
func nodes(t *testing.T, program string) []node {
	t.Helper()
	dir := t.TempDir()
	base := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "PLEGD_KUBELET_HEALTHZ_URL=",
		"PLEGD_CONTROL_SOCKET=" + filepath.Join(dir, "none.sock"),
	}
	with := func(more ...string) []string { return append(base[:len(base):len(base)], more...) }
	healthy := simulate(t, program, filepath.Join(dir, "healthy.sock"))
	hung := simulate(t, program, filepath.Join(dir, "hung.sock"), "--failpoints=ListContainers=delay(1h)")
	silent := filepath.Join(dir, "silent.sock")
	l, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	both := func(u, r int) map[string]int { return map[string]int{unhealthy: u, runtimeProblem: r} }
	return []node{
		{"healthy", with("PLEGD_RUNTIME_ENDPOINT=" + healthy), both(ok, ok), "healthy"},
		// The kubelet still manages pods: nothing that a remediation should act on.
		{"a list hangs", with("PLEGD_RUNTIME_ENDPOINT=" + hung), both(ok, problem), "RuntimeListStall"},
		{"no socket", with("PLEGD_RUNTIME_ENDPOINT=" + filepath.Join(dir, "gone.sock")), both(ok, problem), "RuntimeSocketMissing"},
		{"a wrong setting", with("PLEGD_RELIST_PERIOD=often"), both(unknown, unknown), ""},
		{"a daemon that does not answer", with("PLEGD_RUNTIME_ENDPOINT="+healthy, "PLEGD_CONTROL_SOCKET="+silent), both(unknown, unknown), ""},
	}
}

func simulate(t *testing.T, program, socket string, flags ...string) string {
	t.Helper()
	cmd := exec.Command(program, append([]string{"simulate", "--socket=" + socket, "--pods=20", "--containers=2"}, flags...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	deadline := time.Now().Add(20 * time.Second)
	for {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		if time.Now().After(deadline) {
			t.Fatal("plegd simulate makes no " + socket)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// check runs a configuration on every node and returns what is wrong.
func check(text, program string, all []node) error {
	d, err := newDetector(text)
	if err != nil {
		return err
	}
	if len(d.config.Rules) != 2 || len(d.config.Conditions) != 2 || d.config.Rules[0].Condition == d.config.Rules[1].Condition {
		return errors.New("want a rule for each of two conditions: of two for one, each ends the other's problem")
	}
	switch {
	case d.config.MetricsReporting == nil || !*d.config.MetricsReporting:
		return errors.New("its metrics are switched off")
	case d.invoke < 4*d.global:
		return fmt.Errorf("it is asked every %s, and may take twice %s", d.invoke, d.global)
	case d.config.PluginConfig.Concurrency == nil || *d.config.PluginConfig.Concurrency != 1:
		return errors.New("several plegds may ask the runtime at once")
	}
	for _, r := range d.config.Rules {
		if r.Path != "/usr/bin/plegd" {
			return fmt.Errorf("the plugin is %s, and the packages install /usr/bin/plegd", r.Path)
		}
		// A fault that lasts is one event, however its numbers change.
		for _, message := range []string{"NotReady in 120s", "NotReady in 90s"} {
			d.update(r, problem, message)
		}
		if n := d.conditions[r.Condition].updates; n != 1 {
			return fmt.Errorf("a fault that lasts makes %d events", n)
		}
	}
	for _, n := range all {
		for _, r := range d.config.Rules {
			began := time.Now()
			result, message, err := d.run(r, program, n.env)
			took := time.Since(began)
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", n.name, err)
			case strings.HasPrefix(message, "Timeout"):
				return fmt.Errorf("%s: killed after %s", n.name, took)
			case result != n.want[r.Condition] || !strings.Contains(message, n.says):
				return fmt.Errorf("%s: the result for %s is %d %q, want %d with %q", n.name, r.Condition, result, message, n.want[r.Condition], n.says)
			case strings.ContainsAny(message, "\n\r") || !utf8.ValidString(message) || len(message) > 80:
				return fmt.Errorf("%s: not one line of at most 80 bytes: %q", n.name, message)
			}
		}
	}
	return nil
}

func TestPlugin(t *testing.T) {
	program := plugin(t)
	all := nodes(t, program)
	b, err := os.ReadFile("plegd.json")
	if err != nil {
		t.Fatal(err)
	}
	own := string(b)
	if err := check(own, program, all); err != nil {
		t.Error(err)
	}
	for _, m := range []struct{ old, mutant, found string }{
		{`"--npd-problem=critical"],
      "timeout": "5s"`, `"--npd-problem=critical"],
      "timeout": "6s"`, "greater than the global"},
		{`"--npd-problem=critical"],
      "timeout": "5s"`, `"--npd-problem=critical"],
      "timeout": "1s"`, "killed after"},
		{`, "--npd-problem=unhealthy"`, ``, "the result for PLEGUnhealthy is"},
		{`--npd-problem=critical`, `--npd-problem=unhealthy`, "the result for ContainerRuntimeProblem is"},
		{`"condition": "PLEGUnhealthy"`, `"condition": "PlegUnhealthy"`, "no default condition"},
		{`"condition": "PLEGUnhealthy"`, `"condition": "ContainerRuntimeProblem"`, "each ends the other's"},
		{`"max_output_length": 80`, `"max_output_length": 6`, "the result for"},
		{`"max_output_length": 80`, `"max_output": 80`, "unknown field"},
		{`_condition_update": false`, `_condition_update": true`, "events"},
		{`"concurrency": 1`, `"concurrency": 3`, "several plegds"},
		{`"/usr/bin/plegd",
      "args": ["check", "-o", "npd", "--npd-problem=critical"]`, `"/usr/local/bin/plegd",
      "args": ["check", "-o", "npd", "--npd-problem=critical"]`, "the packages install"},
		{`"invoke_interval": "30s"`, `"invoke_interval": "15s"`, "it is asked every"},
	} {
		if n := strings.Count(own, m.old); n != 1 {
			t.Errorf("plegd.json has %q %d times, want once: name another mutation", m.old, n)
			continue
		}
		t.Run(m.mutant, func(t *testing.T) {
			t.Parallel()
			if err := check(strings.Replace(own, m.old, m.mutant, 1), program, all); err == nil || !strings.Contains(err.Error(), m.found) {
				t.Errorf("with %s for %s what is found is %v, want %q", m.mutant, m.old, err, m.found)
			}
		})
	}
}
