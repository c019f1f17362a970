//go:build e2e

package faults

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
	"github.com/plegd/plegd/test/lab/systemd"
)

// TestSteps pastes the commands of a reason's steps into a shell while its fault stands,
// with a second runtime on the machine, and checks their output. The one that
// repairs comes last: the reason must be gone after it.
func TestSteps(t *testing.T) {
	for i := range faults {
		f := faultNamed(t, faults[i].name)
		if len(f.steps) == 0 || f.leftOut(t) != "" {
			continue
		}
		t.Run(f.test(), func(t *testing.T) {
			second := runtime.NewContainerd(t, runtime.ContainerdOptions{})
			second.CRI(t).RunPods(1, 1)
			b := newBench(t, f)
			b.watch(f)
			defer f.make(b)()
			verdict := b.await(f)
			shell := newShell(t, b)
			shell.not = fmt.Sprintf("pid=%d,", second.Pid())
			commands := stepsFor(&verdict)
			for _, c := range f.steps {
				shell.try(c, b, commands)
				if c.repairs {
					b.awaitGone(f.want)
				}
			}
		})
	}
}

// pasted is one command of a reason's steps.
type pasted struct {
	// holds is a part of the command, by which it is found.
	holds string
	// want must be in the output, of this bench or always.
	want   string
	wantOf func(*bench) string
	// status is its exit status; -1 for any.
	status int
	// inside is true for one that must see the runtime's mounts.
	inside bool
	// repairs is true for one after which the reason is gone.
	repairs bool
}

// await waits for the fault's reason and returns the verdict.
func (b *bench) await(f *fault) (s facts.Snapshot) {
	b.t.Helper()
	lab.Eventually(b.t, f.limit, "plegd names "+f.want, func() (err error) {
		if s, err = b.verdict(); err == nil && s.Reason != f.want {
			err = fmt.Errorf("%s %s", s.State, s.Reason)
		}
		return err
	})
	return s
}

// verdict asks plegd for everything that it knows.
func (b *bench) verdict() (s facts.Snapshot, err error) {
	code, body, err := b.plegd.GetControl("/api/v1/status")
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d", code)
	}
	if err == nil {
		err = facts.Unmarshal([]byte(body), &s)
	}
	return s, err
}

// awaitGone waits until a reason is no longer active. Others may be: a machine that is
// busy is NodePressure, too.
func (b *bench) awaitGone(reason string) {
	b.t.Helper()
	lab.Eventually(b.t, 30*time.Second, reason+" is over", func() error {
		status, err := b.plegd.Status()
		if err != nil {
			return err
		}
		for _, r := range status.Reasons {
			if r.ID == reason {
				return fmt.Errorf("it is not: %q", r.Evidence)
			}
		}
		return nil
	})
}

var command = regexp.MustCompile("`([^`]+)`")

// stepsFor are the commands of a verdict, with the node's values.
func stepsFor(s *facts.Snapshot) (out []string) {
	for _, text := range append([]string{s.Next}, s.Steps...) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
	}
	return out
}

// shell runs commands as they are printed.
type shell struct {
	t testing.TB
	// path comes before the programs' own, not must be in no output.
	path, not string
	inside    *systemd.Systemd // nil: on the machine
}

func newShell(t testing.TB, b *bench) *shell {
	t.Helper()
	s := &shell{t: t, path: t.TempDir()}
	b.must(os.WriteFile(filepath.Join(s.path, "plegd"), fmt.Appendf(nil, "#!/bin/sh\nexec '%s' \"$@\" --control-socket='%s'\n", lab.Binary(t), b.plegd.ControlSocket), 0o755))
	if program := os.Getenv(crictlEnv); program != "" {
		b.must(os.Symlink(program, filepath.Join(s.path, "crictl")))
	}
	return s
}

// crictlEnv says where crictl is: no package has it.
const crictlEnv = "PLEGD_E2E_CRICTL"

// try finds a command among those of the steps and runs it.
func (s *shell) try(p pasted, b *bench, commands []string) {
	s.t.Helper()
	i := slices.IndexFunc(commands, func(c string) bool { return strings.Contains(c, p.holds) })
	if i < 0 {
		s.t.Errorf("no command with %q among %q", p.holds, commands)
		return
	}
	c := commands[i]
	if strings.Contains(c, "crictl ") && os.Getenv(crictlEnv) == "" {
		s.t.Logf("SKIPPED: %s: %s names no crictl", c, crictlEnv)
		return
	}
	text, status := s.run(p, b, c)
	want := p.want
	if p.wantOf != nil {
		want = p.wantOf(b)
	}
	s.t.Logf("$ %s\n%s(exit status %d)", c, text, status)
	switch {
	case status != p.status && p.status >= 0:
		s.t.Errorf("%s: exit status %d, want %d", c, status, p.status)
	case !strings.Contains(text, want):
		s.t.Errorf("%s: no %q in its output", c, want)
	case s.not != "" && strings.Contains(text, s.not):
		s.t.Errorf("%s: names the other runtime, %s", c, s.not)
	}
}

// run runs a command and returns its output and its exit status.
func (s *shell) run(p pasted, b *bench, c string) (text string, status int) {
	s.t.Helper()
	argv := []string{"timeout", "20", "bash", "-o", "pipefail", "-c", "PATH='" + s.path + "':$PATH; " + c}
	var out []byte
	var err error
	if s.inside != nil {
		text, err = s.inside.TryRun(argv...)
		out = []byte(text)
	} else {
		if p.inside {
			argv = append([]string{"nsenter", "--mount", "--pid", fmt.Sprintf("--target=%d", b.Pid()), "--"}, argv...)
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.WaitDelay = 30 * time.Second
		out, err = cmd.CombinedOutput()
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	} else if err != nil {
		s.t.Fatalf("%s: %v", c, err)
	}
	return string(out), 0
}
