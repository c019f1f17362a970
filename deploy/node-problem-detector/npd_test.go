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
	// want is the result, and says what the message must hold.
	want int
	says string
}

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
	return []node{
		{"healthy", with("PLEGD_RUNTIME_ENDPOINT=" + healthy), ok, "healthy"},
		{"a list hangs", with("PLEGD_RUNTIME_ENDPOINT=" + hung), problem, "RuntimeListStall"},
		{"no socket", with("PLEGD_RUNTIME_ENDPOINT=" + filepath.Join(dir, "gone.sock")), problem, "RuntimeSocketMissing"},
		{"a wrong setting", with("PLEGD_RELIST_PERIOD=often"), unknown, ""},
		{"a daemon that does not answer", with("PLEGD_RUNTIME_ENDPOINT="+healthy, "PLEGD_CONTROL_SOCKET="+silent), unknown, ""},
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
	if len(d.config.Rules) != 1 || len(d.config.Conditions) != 1 {
		return fmt.Errorf("%d rules and %d conditions, want one of each", len(d.config.Rules), len(d.config.Conditions))
	}
	r := d.config.Rules[0]
	switch {
	case r.Path != "/usr/bin/plegd":
		return fmt.Errorf("the plugin is %s, and the packages install /usr/bin/plegd", r.Path)
	case d.config.MetricsReporting == nil || !*d.config.MetricsReporting:
		return errors.New("its metrics are switched off")
	case d.invoke < 2*d.global:
		return fmt.Errorf("it is asked every %s, and may take %s", d.invoke, d.global)
	case d.config.PluginConfig.Concurrency == nil || *d.config.PluginConfig.Concurrency != 1:
		return errors.New("several plegds may ask the runtime at once")
	}
	// A fault that lasts is one event, however its numbers change.
	for _, message := range []string{"NotReady in 120s", "NotReady in 90s"} {
		d.update(r, problem, message)
	}
	if d.updates != 1 {
		return fmt.Errorf("a fault that lasts makes %d events", d.updates)
	}
	for _, n := range all {
		began := time.Now()
		result, message, err := d.run(r, program, n.env)
		took := time.Since(began)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", n.name, err)
		case strings.HasPrefix(message, "Timeout"):
			return fmt.Errorf("%s: killed after %s", n.name, took)
		case result != n.want || !strings.Contains(message, n.says):
			return fmt.Errorf("%s: the result is %d %q, want %d with %q", n.name, result, message, n.want, n.says)
		case strings.ContainsAny(message, "\n\r") || !utf8.ValidString(message) || len(message) > 80:
			return fmt.Errorf("%s: not one line of at most 80 bytes: %q", n.name, message)
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
		{`      "timeout": "5s"`, `      "timeout": "6s"`, "greater than the global"},
		{`      "timeout": "5s"`, `      "timeout": "1s"`, "killed after"},
		{`, "-o", "npd"`, ``, "the result is"},
		{`"condition": "PLEGProblem"`, `"condition": "PlegProblem"`, "no default condition"},
		{`"max_output_length": 80`, `"max_output_length": 12`, "the result is"},
		{`"max_output_length": 80`, `"max_output": 80`, "unknown field"},
		{`_condition_update": false`, `_condition_update": true`, "events"},
		{`"concurrency": 1`, `"concurrency": 3`, "several plegds"},
		{`"/usr/bin/plegd"`, `"/usr/local/bin/plegd"`, "the packages install"},
		{`"invoke_interval": "30s"`, `"invoke_interval": "5s"`, "it is asked every"},
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
