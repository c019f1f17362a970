//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

var ruleFiles = []string{"../../deploy/prometheus/plegd.rules.yml", "../../deploy/prometheus/plegd.recording.yml"}

// noAlert reports whether no alert fires.
func noAlert(p *lab.Prometheus) error {
	alerts, err := p.Alerts()
	if err != nil {
		return err
	}
	for _, a := range alerts {
		if a.State == "firing" {
			return fmt.Errorf("an alert fires: %v %q", a.Labels, a.Annotations["description"])
		}
	}
	return nil
}

// shutdown is a target that stops everything as a shutdown does, and leaves
// systemd itself for the test to look at.
const shutdownTarget = "lab-shutdown.target"

var shutdown = lab.SystemdFile{
	Path: "/etc/systemd/system/" + shutdownTarget,
	Text: "[Unit]\nDefaultDependencies=no\nRequires=shutdown.target\nAfter=shutdown.target\n",
}

// TestUpgrade takes containerd away for as long as an upgrade may take, under
// real pods and with the project's own rules in a real Prometheus, and restarts
// plegd in the middle of it. Then the node shuts down. No alert may fire.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	s := newSystemdWithPlegd(t, install{Settings: "# none\n", Files: append(lab.ContainerdFiles(t), shutdown)})
	s.StartContainerd().RunPods(2, 1)
	s.Run("systemctl", "start", plegdUnit)
	statusText(t, s, healthy)
	prometheus := s.NewPrometheus(ruleFiles...)
	began := time.Now()
	silent := func() error { return noAlert(prometheus) }

	// A restart as most are: seconds.
	s.Run("systemctl", "restart", "containerd.service")
	statusText(t, s, healthy)

	// One that takes nearly the two minutes that are allowed.
	const outage = 105 * time.Second
	s.Run("systemctl", "stop", "containerd.service")
	statusText(t, s, "Runtime")
	lab.Throughout(t, outage/2, "no alert fires while containerd is being upgraded", silent)
	s.Run("systemctl", "restart", plegdUnit)
	lab.Throughout(t, outage/2, "no alert fires while containerd is being upgraded", silent)
	s.Run("systemctl", "start", "containerd.service")
	statusText(t, s, healthy)
	if status := statusInside(t, s); status.Pods.Running == nil || *status.Pods.Running != 2 {
		t.Errorf("after the upgrade plegd sees %v running pods, want 2", status.Pods.Running)
	}
	lab.Throughout(t, 5*time.Second, "no alert fires after the upgrade", silent)

	// The shutdown of a node: every service stops, in no order. What plegd says
	// on its way must not be that the node is NotReady.
	marker := fmt.Sprintf("@%d.%06d", time.Now().Unix(), time.Now().Nanosecond()/1000)
	s.Run("systemctl", "start", "--no-block", "--job-mode=replace-irreversibly", shutdownTarget)
	lab.Eventually(t, 20*time.Second, "plegd and containerd have stopped", func() error {
		for _, unit := range []string{plegdUnit, "containerd.service"} {
			if state := s.Property(unit, "ActiveState"); state != "inactive" {
				return fmt.Errorf("%s is %s", unit, state)
			}
		}
		return nil
	})
	if result := s.Property(plegdUnit, "Result"); result != "success" {
		t.Errorf("at the shutdown plegd ended with %q", result)
	}
	out, err := s.TryRun("journalctl", "--unit="+plegdUnit, "--output=cat", "--since="+marker)
	if err != nil {
		t.Fatalf("read the journal: %v\n%s", err, out)
	}
	if strings.Contains(out, "state=unhealthy") || strings.Contains(out, "panic") {
		t.Errorf("at the shutdown plegd says:\n%s", out)
	}
	lab.Throughout(t, 30*time.Second, "no alert fires after the shutdown", silent)
	samples, err := prometheus.Range(`ALERTS{alertstate="firing"}`, began)
	if err != nil || len(samples) > 0 {
		t.Errorf("by Prometheus's own record an alert has fired: %v %v", samples, err)
	}
}

// TestWalk is a newcomer's: a bare system with a runtime, the package, the first
// scrape, a fault, the alert with its reason, the runbook, the recovery. Each
// step is timed.
func TestWalk(t *testing.T) {
	t.Parallel()
	deb := lab.PackageFile(t, "plegd_*_ARCH.deb")
	files := append(lab.ContainerdFiles(t), lab.SystemdFile{Path: "/root/plegd.deb", From: deb})
	s := bareSystem(t, files...)
	s.StartContainerd().RunPods(3, 1)
	var steps []string
	start := time.Now()
	last := start
	step := func(name string) {
		steps = append(steps, fmt.Sprintf("%s after %s", name, time.Since(last).Round(100*time.Millisecond)))
		last = time.Now()
	}

	// 1. One command.
	s.Run("dpkg", "-i", "/root/plegd.deb")
	step("installed")

	// 2. It runs, has found the runtime, and says that all is well.
	statusText(t, s, healthy)
	s.Run("plegd", "check")
	step("healthy")

	// 3. The first scrape, with the rules that the package brings.
	prometheus := s.NewPrometheus(s.Path("/usr/share/plegd/plegd.rules.yml"), s.Path("/usr/share/plegd/plegd.recording.yml"))
	lab.Eventually(t, 20*time.Second, "Prometheus has 3 running pods", func() error {
		pods, err := prometheus.Range("pleg_running_pods == 3", start)
		if err == nil && len(pods) == 0 {
			err = errors.New("it has no such sample")
		}
		return err
	})
	step("scraped")

	// 4. The fault.
	s.Signal("containerd.service", syscall.SIGSTOP)
	statusText(t, s, frozen)
	step("fault named")

	// 5. The alert, with the reason and where to read on.
	var alert lab.Alert
	lab.Eventually(t, 4*time.Minute, "an alert fires that has the reason", func() error {
		alerts, err := prometheus.Alerts()
		if err != nil {
			return err
		}
		for _, a := range alerts {
			if a.State == "firing" && strings.Contains(a.Labels["reason"]+a.Annotations["description"], frozen) {
				alert = a
				return nil
			}
		}
		return fmt.Errorf("alerts: %v", alerts)
	})
	step(alert.Labels["alertname"])

	// 6. The runbook that it links to: a page of this repository, and the same
	// text on the node.
	link := alert.Annotations["runbook_url"]
	_, page, ok := strings.Cut(link, "/blob/main/docs/")
	if !ok {
		t.Fatalf("the alert's runbook is %q", link)
	}
	if text := readFile(t, "../../docs/"+page); !strings.Contains(text, frozen) {
		t.Errorf("the runbook %s does not speak of %s", page, frozen)
	}
	out := s.Run("plegd", "reasons", frozen)
	if !strings.Contains(out, "SIGCONT") && !strings.Contains(strings.ToLower(out), "cont") {
		t.Errorf("plegd reasons %s has no step to continue:\n%s", frozen, out)
	}
	step("runbook")

	// 7. The step is done, and the node is healthy again.
	s.Signal("containerd.service", syscall.SIGCONT)
	statusText(t, s, healthy)
	step("recovered")
	lab.Eventually(t, 30*time.Second, "no alert fires", func() error { return noAlert(prometheus) })
	s.Run("plegd", "check")
	step("alert resolved")

	// The log has the whole story, by the reason.
	if out := s.Run("journalctl", "--unit="+plegdUnit, "--output=cat", "--grep=verdict changed"); !strings.Contains(out, `"reason":"`+frozen+`"`) {
		t.Error(errors.New("the journal has no verdict with the reason " + frozen))
	}
	lab.Report(t, "a newcomer's walk: %s; %s in all", strings.Join(steps, ", "), time.Since(start).Round(time.Second))
}
