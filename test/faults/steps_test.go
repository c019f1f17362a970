//go:build e2e

package faults

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// stepsOf are faults in which the commands of the reason's steps are pasted into a
// shell, and what the output of each must hold. A command that changes something, or
// that needs systemd, the kubelet or crictl, is left out by its first word.
var stepsOf = []struct {
	fault string
	want  map[string]func(*bench) string
}{
	{"400 idle connections, 256 fds", map[string]func(*bench) string{
		"ls -l /proc/": func(*bench) string { return "socket" },
		"ss -xp":       func(*bench) string { return fmt.Sprintf("pid=%d,", os.Getpid()) },
	}},
	{"SIGSTOP", map[string]func(*bench) string{
		"grep -e State": func(*bench) string { return "T (stopped)" },
		"cat /proc/":    func(b *bench) string { return b.Cgroup },
	}},
	{"shim stopped", map[string]func(*bench) string{
		"ps -o pid": func(b *bench) string { return fmt.Sprint(b.Shim(b.pods[0])) },
	}},
	{"root full, ext4", map[string]func(*bench) string{
		"df -h":   func(b *bench) string { return "100% " + b.disk.Path() },
		"df -i":   func(b *bench) string { return b.disk.Path() },
		"findmnt": func(*bench) string { return "errors=remount-ro" },
		"du -xh":  func(b *bench) string { return b.disk.Path() },
	}},
}

// readOnly are the programs of commands that change nothing and are there on every
// machine of the tests.
var readOnly = []string{"ls", "ss", "grep", "cat", "ps", "df", "findmnt", "du", "stat"}

var (
	command  = regexp.MustCompile("`([^`]+)`")
	evidence = regexp.MustCompile(`pid (\d+)`)
)

// TestSteps pastes the commands of a reason while its fault stands, with a second
// runtime on the machine.
func TestSteps(t *testing.T) {
	all := slices.Concat(matrix, storageFaults)
	for _, s := range stepsOf {
		i := slices.IndexFunc(all, func(f fault) bool { return f.name == s.fault })
		if i < 0 {
			t.Fatalf("no fault %q", s.fault)
		}
		f := &all[i]
		f.complete()
		t.Run(strings.ReplaceAll(f.name, ",", ""), func(t *testing.T) {
			second := lab.NewContainerd(t, lab.ContainerdOptions{})
			second.CRI(t).RunPods(1, 1)
			b := newBench(t, f)
			b.watch(f)
			defer f.inject(b)()
			verdict := b.await(f)
			ran := map[string]bool{}
			for _, c := range pasted(verdict) {
				for begins, want := range s.want {
					if strings.HasPrefix(c, begins) {
						b.paste(c, want(b), second.Pid())
						ran[begins] = true
					}
				}
			}
			for begins := range s.want {
				if !ran[begins] {
					t.Errorf("no step of %s begins with %q: %q", f.want, begins, verdict.Steps)
				}
			}
		})
	}
}

// await waits for the fault's reason and returns the verdict.
func (b *bench) await(f *fault) (s health.Snapshot) {
	b.t.Helper()
	lab.Eventually(b.t, f.limit, "plegd names "+f.want, func() error {
		code, body, err := b.plegd.GetControl("/api/v1/status")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("status %d", code)
		}
		if err == nil {
			err = health.Unmarshal([]byte(body), &s)
		}
		if err == nil && s.Reason != f.want {
			err = fmt.Errorf("%s %s", s.State, s.Reason)
		}
		return err
	})
	return s
}

// pasted returns the read-only commands of a verdict's steps. PID stands for the
// process that the evidence names.
func pasted(s health.Snapshot) (out []string) {
	for _, step := range append([]string{s.Next}, s.Steps...) {
		for _, m := range command.FindAllStringSubmatch(step, -1) {
			c := m[1]
			if found := evidence.FindStringSubmatch(strings.Join(s.Active[0].Evidence, "; ")); found != nil {
				c = regexp.MustCompile(`\bPID\b`).ReplaceAllString(c, found[1])
			}
			if program, _, _ := strings.Cut(c, " "); slices.Contains(readOnly, program) {
				out = append(out, c)
			}
		}
	}
	return out
}

// paste runs a command and looks at what it prints. The other runtime must not be in
// it.
func (b *bench) paste(c, want string, other int) {
	b.t.Helper()
	argv := []string{"timeout", "20", "bash", "-o", "pipefail", "-c", c}
	if b.disk != nil { // its mounts are the runtime's; the processes are the machine's
		argv = append([]string{"nsenter", "--mount", "--pid", fmt.Sprintf("--target=%d", b.Pid()), "--"}, argv...)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.CombinedOutput()
	text := string(out)
	b.t.Logf("$ %s\n%s", c, text)
	switch {
	case err != nil:
		b.t.Errorf("%s: %v", c, err)
	case !strings.Contains(text, want):
		b.t.Errorf("%s: no %q in its output", c, want)
	case strings.Contains(text, fmt.Sprintf("pid=%d,", other)):
		b.t.Errorf("%s: names the other runtime, pid %d", c, other)
	}
}
