//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/systemd"
)

// noAlert reports whether no alert fires.
func noAlert(p *lab.Prometheus) error {
	alerts, err := p.Alerts()
	for _, a := range alerts {
		if a.State == "firing" {
			return fmt.Errorf("an alert fires: %v %q", a.Labels, a.Annotations["description"])
		}
	}
	return err
}

// shutdown is a target that stops everything as a shutdown does, and leaves systemd
// itself for the test to look at.
var shutdown = systemd.File{
	Path: "/etc/systemd/system/lab-shutdown.target",
	Text: "[Unit]\nDefaultDependencies=no\nRequires=shutdown.target\nAfter=shutdown.target\n",
}

// soonKnown selects a node that is no new one.
const soonKnown = "last_over_time(pleg_threshold_seconds[2m] offset 15s)"

// knownSoon returns a copy of a file of rules in which a node is no new one after 15 s, and not
// after 5 min (newNode in the mixin's configuration): before that it raises no alert.
func knownSoon(t *testing.T, path string) string {
	t.Helper()
	const newNode = "last_over_time(pleg_threshold_seconds[2m] offset 5m)"
	b, err := os.ReadFile(path)
	lab.Must(t, err)
	text := string(b)
	if !strings.Contains(text, newNode) {
		t.Fatalf("%s has no %s", path, newNode)
	}
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	text = strings.ReplaceAll(text, newNode, soonKnown)
	lab.Must(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestUpgrade takes containerd away for as long as an upgrade may take before the kubelet stops
// managing pods, under real pods and with the project's own rules in a real Prometheus, and
// restarts plegd in the middle of it. Then the node shuts down. No alert may fire.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	n := newNode(t, unitFile(t), "# none\n", append(systemd.ContainerdFiles(t), shutdown)...)
	n.StartContainerd().RunPods(2, 1)
	n.Run("systemctl", "start", plegdUnit)
	n.awaitText(healthy)
	prometheus := n.NewPrometheus(knownSoon(t, "../../deploy/prometheus/plegd.rules.yml"), "../../deploy/prometheus/plegd.recording.yml")
	began := time.Now()
	silent := func() error { return noAlert(prometheus) }
	n.await("the rules know the node", func() error {
		_, err := prometheus.Value("count(" + soonKnown + ")")
		return err
	})

	// A restart as most are: seconds.
	n.Run("systemctl", "restart", "containerd.service")
	n.awaitText(healthy)

	// An upgrade, which ends before the kubelet's 30 s without a Status have passed.
	n.Run("systemctl", "stop", "containerd.service")
	n.awaitText("Runtime")
	n.Run("systemctl", "restart", plegdUnit)
	n.awaitText("Runtime")
	lab.Throughout(t, 10*time.Second, "no alert fires while containerd is being upgraded", silent)
	n.Run("systemctl", "start", "containerd.service")
	n.awaitText(healthy)
	if status, err := n.status(); err != nil || status.Pods.Running != 2 {
		t.Errorf("after the upgrade plegd sees %v running pods (%v), want 2", status.Pods.Running, err)
	}

	// The shutdown of a node: every service stops, in no order. plegd must not report
	// on its way that the node is NotReady.
	marker := fmt.Sprintf("--since=@%d.%06d", time.Now().Unix(), time.Now().Nanosecond()/1000)
	n.Run("systemctl", "start", "--no-block", "--job-mode=replace-irreversibly", "lab-shutdown.target")
	n.await("plegd and containerd have stopped", func() error {
		for _, unit := range []string{plegdUnit, "containerd.service"} {
			if state := n.Property(unit, "ActiveState"); state != "inactive" {
				return fmt.Errorf("%s is %s", unit, state)
			}
		}
		return nil
	})
	n.is("at the shutdown", map[string]string{"Result": "success"})
	if out := n.journal(marker); strings.Contains(out, `"state":"unhealthy"`) || strings.Contains(out, "panic") {
		t.Errorf("at the shutdown plegd logs:\n%s", out)
	}
	lab.Throughout(t, 30*time.Second, "no alert fires after the shutdown", silent)
	samples, err := prometheus.Range(`ALERTS{alertstate="firing"}`, began)
	if err != nil || len(samples) > 0 {
		t.Errorf("by Prometheus's own record an alert has fired: %v %v", samples, err)
	}
}

// TestWalk is a newcomer's walk: a bare system with a runtime, the package, the first
// scrape, a fault, the alert with its reason, the runbook, the recovery. Each step is
// timed.
func TestWalk(t *testing.T) {
	t.Parallel()
	deb := systemd.File{Path: "/root/plegd.deb", From: lab.PackageFile(t, "plegd_*_ARCH.deb")}
	n := bareNode(t, append(systemd.ContainerdFiles(t), deb)...)
	n.StartContainerd().RunPods(3, 1)
	var steps []string
	start := time.Now()
	last := start
	step := func(name string) {
		steps = append(steps, fmt.Sprintf("%s after %s", name, time.Since(last).Round(100*time.Millisecond)))
		last = time.Now()
	}
	n.Run("dpkg", "-i", "/root/plegd.deb")
	step("installed")
	n.awaitText(healthy)
	n.Run("plegd", "check")
	step("healthy")

	prometheus := n.NewPrometheus(knownSoon(t, n.Path("/usr/share/plegd/plegd.rules.yml")), n.Path("/usr/share/plegd/plegd.recording.yml"))
	n.await("Prometheus has 3 running pods", func() error {
		pods, err := prometheus.Range("pleg_running_pods == 3", start)
		if err == nil && len(pods) == 0 {
			err = errors.New("it has no such sample")
		}
		return err
	})
	step("scraped")

	n.Signal("containerd.service", syscall.SIGSTOP)
	n.awaitText(frozen)
	step("fault named")
	var alert lab.Alert
	lab.Eventually(t, 4*time.Minute, "an alert fires that has the reason", func() error {
		alerts, err := prometheus.Alerts()
		for _, a := range alerts {
			if a.State == "firing" && strings.Contains(a.Labels["reason"]+a.Annotations["description"], frozen) {
				alert = a
				return nil
			}
		}
		return fmt.Errorf("alerts: %v %w", alerts, err)
	})
	step(alert.Labels["alertname"])

	// The runbook that it links to: a page of this repository, and the same text on the
	// node.
	_, page, ok := strings.Cut(alert.Annotations["runbook_url"], "/blob/main/")
	if !ok || !strings.Contains(readFile(t, page), frozen) {
		t.Fatalf("the alert's runbook is %q", alert.Annotations["runbook_url"])
	}
	if out := n.Run("plegd", "reasons", frozen); !strings.Contains(strings.ToLower(out), "cont") {
		t.Errorf("plegd reasons %s has no step to continue:\n%s", frozen, out)
	}
	n.Signal("containerd.service", syscall.SIGCONT)
	n.awaitText(healthy)
	step("recovered")
	lab.Eventually(t, 3*time.Minute, "no alert fires, 2 min after the fault", func() error { return noAlert(prometheus) })
	n.Run("plegd", "check")
	step("alert resolved")
	check.Contains(t, n.journal("--grep=verdict changed"), `"reason":"`+frozen+`"`, "the journal has no verdict with the reason %s", frozen)
	lab.Report(t, "a newcomer's walk: %s; %s in all", strings.Join(steps, ", "), time.Since(start).Round(time.Second))
}
