//go:build e2e

package faults

import (
	"cmp"
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

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
)

// TestSteps pastes the commands of a reason's steps into a shell while its fault
// stands, with a second runtime on the machine, and looks at what they print. The
// one that repairs comes last: the reason must be gone after it.
func TestSteps(t *testing.T) {
	for _, s := range stepsOf {
		f := faultNamed(t, s.fault)
		if why := f.leftOut(); why != "" || f.simulated() && lab.RuntimeGiven() && !lab.StandInsOnly() {
			continue // that is of another column
		}
		t.Run(s.reason+"/"+strings.ReplaceAll(f.name, ",", ""), func(t *testing.T) {
			second := lab.NewContainerd(t, lab.ContainerdOptions{})
			second.CRI(t).RunPods(1, 1)
			b := newBench(t, f)
			b.watch(f)
			defer f.inject(b)()
			verdict := b.await(f)
			shell := newShell(t, b)
			shell.not = fmt.Sprintf("pid=%d,", second.Pid())
			commands := stepsFor(&verdict, s.reason)
			for _, c := range s.commands {
				shell.try(c, b, commands)
				if c.repairs {
					b.awaitGone(s.reason)
				}
			}
		})
	}
}

// faultNamed finds a fault in the tables.
func faultNamed(t *testing.T, name string) *fault {
	t.Helper()
	all := slices.Concat(matrix, dockerMatrix, shapes, kernelFaults, storageFaults, takeOvers, stepFaults)
	i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("no fault %q", name)
	}
	f := all[i]
	f.complete()
	return &f
}

// pasted is one command of a reason's steps.
type pasted struct {
	// holds is a part of the command, by which it is found; it is in the page's, too.
	holds string
	// want must be in the output, of this bench or always.
	want   string
	wantOf func(*bench) string
	// status is its exit status; -1 for one that is not the command's to choose.
	status int
	// inside is true for one that must see the runtime's mounts.
	inside bool
	// repairs is true for one after which the reason is gone.
	repairs bool
	// values are what an operator fills in: a container, an id.
	values func(*bench) *strings.Replacer
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

// stepsFor are the commands of a reason with the node's values: those of the verdict,
// or for a reason beside its own the steps of that one.
func stepsFor(s *health.Snapshot, reason string) (out []string) {
	texts := append([]string{s.Next}, s.Steps...)
	if s.Reason != reason {
		texts = health.Steps(&s.Facts, &health.Verdict{Reason: reason, Chain: s.Chain})
	}
	for _, text := range texts {
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
	inside    *lab.Systemd // nil: on the machine
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
	if p.values != nil {
		c = p.values(b).Replace(c)
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

// TestEveryStep looks whether each command of each reason is tried, or said to be not.
func TestEveryStep(t *testing.T) {
	used := map[int]bool{}
	for _, r := range health.Reasons() {
		texts := append([]string{r.Next}, r.Steps...)
		for _, m := range command.FindAllStringSubmatch(health.Generic(strings.Join(texts, "\n")), -1) {
			tried := func(reason string, commands []pasted) bool {
				return reason == r.ID && slices.ContainsFunc(commands, func(p pasted) bool { return strings.Contains(m[1], p.holds) })
			}
			if slices.ContainsFunc(stepsOf, func(s steps) bool { return tried(s.reason, s.commands) }) ||
				slices.ContainsFunc(append(serviceSteps, ownStep), func(s service) bool { return tried(s.reason, s.commands) }) {
				continue
			}
			i := slices.IndexFunc(untried, func(u notTried) bool {
				return (u.reason == "" || u.reason == r.ID) && strings.Contains(m[1], u.holds)
			})
			if i < 0 {
				t.Errorf("%s: %q is not tried, and untried does not say why", r.ID, m[1])
			}
			used[i] = true
		}
	}
	for i, u := range untried {
		if !used[i] {
			t.Errorf("untried: no command is %q of %q", u.holds, cmp.Or(u.reason, "any reason"))
		}
	}
}
