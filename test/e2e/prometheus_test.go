//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// alertName is the alert that these tests look at, alertThreshold the age of
// the last seen at which it fires.
const (
	alertName      = "PLEGUnhealthy"
	alertThreshold = 6 * time.Second
)

// alertRules is the alert as plegd's documentation gives it, with a threshold
// short enough for a test. The guard keeps a node silent that is only waiting
// for its runtime: 0 is not a time.
var alertRules = fmt.Sprintf(`groups:
  - name: plegd
    rules:
      - alert: %s
        expr: time() - pleg_last_seen_seconds > %.0f and pleg_last_seen_seconds > 0
`, alertName, alertThreshold.Seconds())

// TestAlertNeverCame has Prometheus look for a minute at a plegd whose runtime
// never comes.
func TestAlertNeverCame(t *testing.T) {
	t.Parallel()
	socket := lab.Dir(t) + "/never.sock"
	plegd := lab.NewPlegd(t, socket, lab.PlegdOptions{})
	prometheus := lab.NewPrometheus(t, plegd.Address, alertRules)
	watch := lab.NewWatch(t, plegd)
	start := time.Now()
	lab.Throughout(t, time.Minute, "the alert is silent", func() error { return silent(prometheus) })

	seen, err := prometheus.Range("pleg_last_seen_seconds", start)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) < 55 {
		t.Errorf("Prometheus has %d samples of pleg_last_seen_seconds of a minute", len(seen))
	}
	for _, s := range seen {
		if s.Value != 0 {
			t.Fatalf("pleg_last_seen_seconds was %v at %s, want 0 before the first success", s.Value, s.At)
		}
	}
	neverPending(t, prometheus, start)

	sights := watch.Sights(start)
	for _, reason := range lab.Reasons(sights) {
		if reason != socketMissing && reason != "Starting" {
			t.Errorf("the primary reason was %s: %s", reason, lab.Story(sights, start))
		}
	}
	// The kubelet's rule about the runtime's status has had its 30 s by now.
	last := sights[len(sights)-1]
	if want := "container runtime status check may not have completed yet"; last.State != unhealthy || !strings.Contains(last.KubeletMessage, want) {
		t.Errorf("after a minute: %s, %q; want unhealthy, with %q", last.State, last.KubeletMessage, want)
	}
	lab.Report(t, "a runtime that never came: the alert silent for a minute; %s", lab.Story(sights, start))
}

// TestAlertHang restarts plegd, which the alert must not mind, and then freezes
// the runtime, which it must.
func TestAlertHang(t *testing.T) {
	t.Parallel()
	s := newSubject(t, lab.PlegdOptions{})
	prometheus := lab.NewPrometheus(t, s.plegd.Address, alertRules)
	start := time.Now()
	s.plegd.Stop()
	s.plegd.Start()
	lab.Throughout(t, 4*time.Second, "the alert is silent after a stop and a start", func() error { return silent(prometheus) })
	s.plegd.Kill()
	s.plegd.Start()
	lab.Throughout(t, alertThreshold+2*time.Second, "the alert is silent after a kill and a start", func() error { return silent(prometheus) })
	neverPending(t, prometheus, start)

	frozenAt := time.Now()
	s.runtime.Freeze()
	const slack = 300 * time.Millisecond // this test's own polling
	lab.Eventually(t, alertThreshold+2*lab.ScrapeInterval+slack, "the alert fires", func() error {
		firing, err := prometheus.Firing(alertName)
		if err == nil && !firing {
			err = errors.New("it does not fire")
		}
		return err
	})
	fired := time.Since(frozenAt)

	// A restart of plegd during the hang must not silence the alert for good:
	// what it has last seen it knows from its state directory.
	s.plegd.Kill()
	s.plegd.Start()
	lab.Eventually(t, 3*lab.ScrapeInterval, "the alert fires after a restart during the hang", func() error {
		firing, err := prometheus.Firing(alertName)
		if err == nil && !firing {
			err = errors.New("it does not fire")
		}
		return err
	})
	value, ok := s.plegd.MustMetrics().Value("pleg_last_seen_seconds")
	if age := time.Since(time.UnixMilli(int64(value * 1000))); !ok || age < alertThreshold || age > time.Minute {
		t.Errorf("pleg_last_seen_seconds is %v (there: %t) after a restart during the hang", value, ok)
	}

	s.runtime.Thaw()
	thawed := time.Now()
	back := s.watch.Await(thawed, 3*time.Second, "a relist succeeds", func(sight lab.Sight) bool {
		return sight.LastSeen != nil && sight.LastSeen.After(frozenAt.Add(time.Second)) && sight.State == healthy
	})
	lab.Eventually(t, time.Until(back.At.Add(2*lab.ScrapeInterval+slack)), "the alert resolves", func() error { return silent(prometheus) })
	resolved := time.Since(thawed)
	lab.Report(t, "alert at an age of %s: fires %s after the freeze, resolves %s after the thaw and %s after the first relist",
		alertThreshold, seconds(fired), seconds(resolved), seconds(time.Since(back.At)))
}

// TestMetricsLint has Prometheus's own linter look at a scrape.
func TestMetricsLint(t *testing.T) {
	t.Parallel()
	lab.RequirePrograms(t, "promtool")
	runtime := lab.NewRuntime(t)
	runtime.RunPods(2, 1)
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	plegd.AwaitState(10*time.Second, healthy)
	plegd.AwaitRelists(10*time.Second, 2)
	m := plegd.MustMetrics()
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(m.Text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	const budget = 500
	if n := m.Series(); n > budget {
		t.Errorf("a scrape has %d series, want %d at most", n, budget)
	}
	if got := m.Labels("pleg_verdict", "state"); len(got) != 1 || got[0] != healthy {
		t.Errorf("pleg_verdict is 1 for %q, want %q", got, healthy)
	}
	if got := m.Labels("pleg_primary_reason", "reason"); len(got) != 0 {
		t.Errorf("pleg_primary_reason is 1 for %q though all is well", got)
	}
	for _, pod := range []string{lab.Namespace, "e2e-"} {
		if strings.Contains(m.Text, pod) {
			t.Errorf("a scrape holds the name of a pod: %q", pod)
		}
	}
}

// silent reports whether the alert neither fires nor is pending.
func silent(p *lab.Prometheus) error {
	alerts, err := p.Alerts()
	if err == nil && len(alerts) > 0 {
		err = fmt.Errorf("alerts: %v", alerts)
	}
	return err
}

// neverPending checks in Prometheus's own record that the alert has been silent.
func neverPending(t *testing.T, p *lab.Prometheus, since time.Time) {
	t.Helper()
	samples, err := p.Range(fmt.Sprintf("ALERTS{alertname=%q}", alertName), since)
	if err != nil || len(samples) > 0 {
		t.Errorf("the alert has not been silent: %v %v", samples, err)
	}
}
