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
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
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
	primary := func() (err error) {
		if s, err = b.verdict(); err == nil && s.Reason != f.want {
			err = fmt.Errorf("%s %s", s.State, s.Reason)
		}
		return err
	}
	lab.Eventually(b.t, f.limit, "plegd names "+f.want, func() error {
		err := primary()
		if s.Reason == health.NodePressure && s.ActiveReason(f.want) != nil {
			return nil // a busy machine is a fault of its own
		}
		return err
	})
	lab.Eventually(b.t, 2*time.Minute, f.want+" comes first once the machine is less busy", primary)
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

// service are the commands of a reason whose runtime is a service of systemd.
type service struct {
	reason string
	// inject makes the fault, and returns what ends what no command repairs.
	inject   func(*bench, *systemd.Systemd) (fix func())
	commands []pasted
}

const unit = "containerd.service"

// serviceSteps are made one after another on one systemd.
var serviceSteps = []service{
	{health.RuntimeSocketMissing, func(_ *bench, s *systemd.Systemd) func() {
		s.Run("systemctl", "stop", unit)
		return func() { s.Run("systemctl", "start", unit) }
	}, []pasted{
		{holds: "systemctl status", want: "inactive (dead)", status: 3},
		{holds: "journalctl -u", want: "containerd"},
		{holds: "plegd status", want: "/run/containerd/containerd.sock", status: -1},
	}},
	{health.RuntimeNotListening, func(_ *bench, s *systemd.Systemd) func() {
		s.Signal(unit, syscall.SIGKILL)
		return func() { s.Run("systemctl", "start", unit) }
	}, []pasted{
		{holds: "systemctl status", want: "signal=KILL", status: 3},
		{holds: "journalctl -u", want: "Main process exited"},
	}},
	{health.RuntimeSocketUnlinked, func(_ *bench, s *systemd.Systemd) func() {
		s.Run("rm", "/run/containerd/containerd.sock")
		return func() {}
	}, []pasted{{holds: "systemctl restart", repairs: true}}},
	{health.RuntimeThrottled, func(b *bench, s *systemd.Systemd) func() {
		runtime.Two(100, func(int) { b.pods[0].CreateHeavyContainer(1000) })
		s.Run("systemctl", "set-property", "--runtime", unit, "CPUQuota=1%")
		return func() {}
	}, []pasted{
		{holds: "systemctl show", want: "CPUQuotaPerSecUSec=10ms"},
		{holds: "cpu.cfs_quota_us", want: "000"},
		{holds: "CPUQuota=", repairs: true},
	}},
	{health.KernelLimitReached, func(_ *bench, s *systemd.Systemd) func() {
		s.Run("systemctl", "set-property", "--runtime", unit, "TasksMax="+s.Property(unit, "TasksCurrent"))
		return func() {
			s.Run("systemctl", "set-property", "--runtime", unit, "TasksMax=infinity")
			s.Run("systemctl", "start", unit) // Go ends where it gets no thread
		}
	}, []pasted{
		{holds: "ps -eo nlwp", want: "NLWP"},
		{holds: "systemctl show", want: "TasksMax="},
		{holds: "sysctl", want: "kernel.pid_max"},
	}},
	{health.SystemBusStalled, func(b *bench, s *systemd.Systemd) func() {
		s.Signal("dbus.service", syscall.SIGSTOP)
		return b.holdList()
	}, []pasted{
		{holds: "busctl status", status: 124},
		{holds: "ps -o pid", want: "T"},
		{holds: "systemctl status", want: "State: "},
		{holds: "kill -CONT"},
	}},
	{health.RuntimeRestarting, func(b *bench, s *systemd.Systemd) func() {
		for reason := ""; reason != health.RuntimeRestarting; { // those of the faults before count, too
			s.Signal(unit, syscall.SIGKILL)
			awaitInside(b.t, s, health.RuntimeNotListening, health.RuntimeRestarting)
			s.Run("systemctl", "start", unit)
			reason = awaitInside(b.t, s, "", health.RuntimeRestarting).Reason
		}
		return func() {}
	}, []pasted{
		{holds: "journalctl -u", want: "Main process exited"},
		{holds: "systemctl show", want: "NRestarts="},
	}},
}

// systemdConfig is the configuration of a containerd whose runc asks systemd for
// cgroups.
const systemdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true
  stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
`

// TestServiceSteps pastes the commands that are about the runtime's unit, in a systemd
// of the lab's with the machine's containerd and plegd as services.
func TestServiceSteps(t *testing.T) {
	if runtime.Given() && !strings.HasPrefix(runtime.Column(), "containerd") || os.Getenv("PLEGD_E2E_CONTAINERD") != "" {
		t.Skip("it is made with the machine's own containerd")
	}
	files := append(systemd.ContainerdFiles(t),
		systemd.File{Path: "/etc/containerd/config.toml", Text: fmt.Sprintf(systemdConfig, runtime.PauseImage)},
		// A fault stays until its commands have been tried.
		systemd.File{Path: "/etc/systemd/system/containerd.service.d/restart.conf", Text: "[Service]\nRestart=no\n[Unit]\nStartLimitIntervalSec=0\n"},
		systemd.File{Path: "/usr/bin/plegd", From: lab.Binary(t), Mode: 0o755},
	)
	s := systemd.Boot(t, files...)
	s.Run("systemctl", "start", "dbus.socket", "dbus.service")
	r := s.StartContainerd().In("plegd-steps.slice")
	pods := r.RunPods(2, 1)
	b := &bench{t: t, cri: r, pods: pods, victim: pods[0].RunContainer("victim")}
	s.Run("systemd-run", "--quiet", "--unit=plegd", "--property=Restart=always", "--property=RuntimeDirectory=plegd", "--property=StateDirectory=plegd",
		"plegd", "run", "--runtime-endpoint=/run/containerd/containerd.sock", "--kubelet-healthz-url=", "--log.level=info")
	// Several cases restart the runtime: after a repair its restarts may still be the reason.
	repaired := []string{"", health.RuntimeRestarting}
	for _, c := range serviceSteps {
		t.Run(c.reason, func(t *testing.T) {
			awaitInside(t, s, repaired...)
			b.t = t
			defer c.inject(b, s)()
			v := awaitInside(t, s, c.reason)
			sh := &shell{t: t, inside: s}
			for _, p := range c.commands {
				sh.try(p, b, stepsFor(v))
				if p.repairs {
					awaitInside(t, s, repaired...)
				}
			}
		})
	}
}

// awaitInside waits until plegd in a systemd names one of some reasons; "" is a healthy
// verdict.
func awaitInside(t *testing.T, s *systemd.Systemd, reasons ...string) *facts.Snapshot {
	t.Helper()
	var v facts.Snapshot
	lab.Eventually(t, time.Minute, fmt.Sprintf("the reason is one of %q", reasons), func() error {
		out, _ := s.TryRun("plegd", "status", "-o", "json") // the exit code is the verdict
		v = facts.Snapshot{}
		if err := facts.Unmarshal([]byte(out), &v); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !slices.Contains(reasons, v.Reason) || v.Reason == "" && v.State != facts.StateHealthy {
			return fmt.Errorf("%s %s", v.State, v.Reason)
		}
		return nil
	})
	return &v
}

// TestInsideRuntime: the wait chain continues inside a containerd that serves its
// goroutines: from the list to the request that holds its lock, and to the stopped shim.
func TestInsideRuntime(t *testing.T) {
	f := behindList(fault{on: onContainerd1})
	if why := f.leftOut(t); why != "" {
		t.Skip(why)
	}
	f.configure = func(b *bench) {
		b.ReplaceInConfig(firstPlugin, fmt.Sprintf("[debug]\n  address = %q\n%s", b.Socket+".debug", firstPlugin))
	}
	b := newBench(t, &f)
	b.watch(&f)
	cont := b.stopShims(1)
	end := b.holdList()
	shim := stoppedShim(b)
	lab.Eventually(t, 20*time.Second, "the chain names the request and the shim", func() error {
		_, body, err := b.plegd.GetControl(view.PathStatus)
		if err != nil {
			return err
		}
		var s facts.Snapshot
		if err := facts.Unmarshal([]byte(body), &s); err != nil {
			return err
		}
		holder := slices.IndexFunc(s.Chain, func(l facts.Link) bool {
			return l.Kind == facts.KindCall && l.Name == "UpdateContainerResources"
		})
		if holder != 1 || s.Chain[len(s.Chain)-1].PID != shim.PID {
			return fmt.Errorf("the chain is %+v", s.Chain)
		}
		return nil
	})
	inTurn(cont, end)()
}
