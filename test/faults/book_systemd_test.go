//go:build e2e

package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/results"
)

// systemBusCase is the row whose runtime is a service of a systemd of its own.
var systemBusCase = bookCase{
	row:    5,
	source: "[cri-o 2584](https://github.com/cri-o/cri-o/issues/2584), [systemd 11809](https://github.com/systemd/systemd/issues/11809), [runc 4853](https://github.com/opencontainers/runc/issues/4853)",
	made:   "dbus-daemon stopped in a booted systemd, runc with the systemd cgroup driver, UpdateContainerResources",
	within: sweptWithin,
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

// TestCaseBookSystemBus makes row 5: dbus-daemon does not answer, and runc waits for
// it. The machine's own containerd runs as a service there.
func TestCaseBookSystemBus(t *testing.T) {
	c := &systemBusCase
	if !caseWanted(t, c) || lab.StandInsOnly() {
		t.Skip("another case is asked for")
	}
	kept := c.kept()
	defer func() { keepCase(t, kept) }()
	files := append(lab.ContainerdFiles(t),
		lab.SystemdFile{Path: "/etc/containerd/config.toml", Text: fmt.Sprintf(systemdConfig, lab.PauseImage)},
		lab.SystemdFile{Path: "/usr/bin/plegd", From: lab.Binary(t), Mode: 0o755},
	)
	s := lab.NewSystemd(t, files...)
	s.Run("systemctl", "start", "dbus.socket", "dbus.service")
	bus, err := strconv.Atoi(s.Property("dbus.service", "MainPID"))
	if err != nil || bus == 0 {
		t.Fatalf("dbus-daemon has no pid: %v", err)
	}
	r := s.StartContainerd().In("plegd-book.slice")
	pods := r.RunPods(2, 1)
	b := &bench{t: t, cri: r, pods: pods, victim: pods[0].RunContainer("victim")}
	s.Run("systemd-run", "--quiet", "--unit=plegd-book", "--property=RuntimeDirectory=plegd", "--property=StateDirectory=plegd", "plegd", "run",
		"--runtime-endpoint=/run/containerd/containerd.sock", "--kubelet-healthz-url=", "--log.level=info")
	awaitInside(t, s, time.Minute, func(e *explained) string { return e.Reason })
	for range number(t, "RUNS") {
		kept.Runs = append(kept.Runs, b.stopBus(s, bus))
	}
}

// stopBus makes the case once.
func (b *bench) stopBus(s *lab.Systemd, bus int) (one results.Run) {
	b.t.Helper()
	s.Signal("dbus.service", syscall.SIGSTOP)
	cont := func() { s.Signal("dbus.service", syscall.SIGCONT) }
	defer cont()
	end := b.holdList()
	defer end()
	seen := []string{"", health.RuntimeListStall, health.SystemBusStalled}
	var e explained
	for time.Since(b.injected) < 4*sweptWithin {
		e = statusInside(b.t, s)
		if !slices.Contains(seen, e.Reason) {
			one.Wrong = "on the way: " + e.Reason
		}
		if e.Reason == health.SystemBusStalled && e.Culprit != nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	took := time.Since(b.injected)
	one.Seconds = secondsOrNil(took)
	switch {
	case e.Culprit == nil || e.Culprit.PID != bus || e.Culprit.State != health.LinkStopped:
		one.Wrong = fmt.Sprintf("want the stopped dbus-daemon %d: %s", bus, e)
	case e.Reason != health.SystemBusStalled || e.Symptom != health.RuntimeListStall:
		one.Wrong = "the reason: " + e.String()
	case !strings.Contains(e.Next, fmt.Sprintf("`kill -CONT %d`", bus)) || !strings.Contains(e.Next, "restart of the runtime does not help"):
		one.Wrong = "the first step: " + e.Next
	case took > sweptWithin:
		one.Wrong = fmt.Sprintf("named after %.1f s", took.Seconds())
	}
	b.t.Logf("after %.2f s: %s", took.Seconds(), e)
	if one.Wrong != "" {
		b.t.Error(one.Wrong)
	}
	cont()
	end()
	awaitInside(b.t, s, 30*time.Second, func(e *explained) string { return e.Reason })
	// The list that hung is not among the last: a list that is slow as a rule counts as
	// hanging later.
	calm := statusInside(b.t, s).Facts.Relist.Attempts + 3
	awaitInside(b.t, s, 30*time.Second, func(e *explained) string {
		if e.Facts.Relist.Attempts < calm {
			return fmt.Sprintf("relist %d, not %d", e.Facts.Relist.Attempts, calm)
		}
		return ""
	})
	return one
}

// statusInside asks the plegd in a systemd, over its control socket.
func statusInside(t *testing.T, s *lab.Systemd) (e explained) {
	t.Helper()
	out, _ := s.TryRun("plegd", "status", "-o", "json") // the exit code is the verdict
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return e
}

// awaitInside waits until something of the status is "".
func awaitInside(t *testing.T, s *lab.Systemd, limit time.Duration, wrong func(*explained) string) {
	t.Helper()
	lab.Eventually(t, limit, "plegd in the systemd says so", func() error {
		out, _ := s.TryRun("plegd", "status", "-o", "json")
		var e explained
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if text := wrong(&e); text != "" || e.State != string(health.StateHealthy) {
			return fmt.Errorf("%s %s", e.State, text)
		}
		return nil
	})
}
