//go:build e2e

package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
	"github.com/plegd/plegd/test/lab/systemd"
)

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
	for _, c := range serviceSteps {
		t.Run(c.reason, func(t *testing.T) {
			awaitInside(t, s, "")
			b.t = t
			defer c.inject(b, s)()
			v := awaitInside(t, s, c.reason)
			sh := &shell{t: t, inside: s}
			for _, p := range c.commands {
				sh.try(p, b, stepsFor(v))
				if p.repairs {
					awaitInside(t, s, "")
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
