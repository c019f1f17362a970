//go:build e2e

package observe

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// faster is by how much everything that takes time in the rules is shortened:
// two minutes are twelve seconds. plegd's own measures stay as they are, but for
// the threshold, which is shortened too.
const (
	faster    = 10
	threshold = 3 * time.Minute / faster
)

// fast shortens the times in a file of rules or of Alertmanager's configuration.
func fast(text string) string {
	text = regexp.MustCompile(`\b(\d+)(s|m|h)\b`).ReplaceAllStringFunc(text, func(s string) string {
		d, err := time.ParseDuration(s)
		if err != nil {
			return s
		}
		return strconv.Itoa(max(1, int(d.Seconds()/faster))) + "s"
	})
	return strings.ReplaceAll(text, "pleg_not_ready_in_seconds < 60", "pleg_not_ready_in_seconds < "+strconv.Itoa(60/faster))
}

// TestAlerts has real faults on several nodes at once, and looks at what reaches
// whom.
func TestAlerts(t *testing.T) {
	t.Parallel()
	lab.RequirePrograms(t, "prometheus", "prometheus-alertmanager")
	var kubeletIll atomic.Bool
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if kubeletIll.Load() {
			http.Error(w, "syncloop failed", http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}))
	defer kubelet.Close()

	faults := map[string]string{
		"well":    "",
		"hangs":   "ListContainers=hang",
		"accepts": "socket=noaccept",
		"no-net":  "Status=notready(NetworkReady)",
		"kubelet": "",
	}
	nodes, runtimes, daemons := map[string]string{"gone": lab.FreeAddress(t)}, map[string]*lab.Simulated{}, map[string]*lab.Plegd{}
	for name := range faults {
		runtimes[name] = lab.NewSimulated(t, "--pods=5", "--containers=1")
		flags := []string{"--relist-threshold=" + threshold.String(), "--rpc-timeout=12s"}
		if name == "kubelet" {
			flags = append(flags, "--kubelet-healthz-url="+kubelet.URL)
		}
		plegd := lab.NewPlegd(t, runtimes[name].Socket, lab.PlegdOptions{Flags: flags})
		plegd.AwaitState(time.Minute, "healthy")
		nodes[name], daemons[name] = plegd.Address, plegd
	}

	box := &lab.Inbox{}
	webhook := httptest.NewServer(box)
	defer webhook.Close()
	manager := lab.FreeAddress(t)
	dir := lab.Dir(t)
	config := strings.ReplaceAll(fast(lab.Deployed(t, "alertmanager", "alertmanager.yml")), "http://localhost:9095", webhook.URL)
	if !strings.Contains(config, webhook.URL+"/on-call") {
		t.Fatal("alertmanager.yml sends nothing to on-call")
	}
	for name, text := range map[string]string{"alertmanager.yml": config, "plegd.tmpl": lab.Deployed(t, "alertmanager", "plegd.tmpl")} {
		lab.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	lab.StartProgram(t, "alertmanager", "prometheus-alertmanager", "--config.file="+filepath.Join(dir, "alertmanager.yml"),
		"--storage.path="+dir, "--web.listen-address="+manager, "--cluster.listen-address=")
	prometheusYML := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\n"+ruleFiles+
		"alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}\nscrape_configs:\n  - job_name: plegd\n    static_configs:\n", manager)
	for name, address := range nodes {
		prometheusYML += fmt.Sprintf("      - {targets: [%q], labels: {node: %q, cluster: test}}\n", address, name)
	}
	files := withRules(t, prometheusYML)
	for name := range files {
		if strings.HasPrefix(name, "plegd.") {
			files[name] = fast(files[name])
		}
	}
	prometheus := lab.NewPrometheus(t, lab.FreeAddress(t), files)

	began := time.Now()
	kubeletIll.Store(true)
	for name, spec := range faults {
		runtimes[name].Fail(spec)
	}
	for want, page := range map[string]string{
		"on-call firing PLEGUnhealthy hangs":                       "reasons/RuntimeListStall.md",
		"on-call firing PLEGReasonCritical accepts AcceptStalled":  "reasons/AcceptStalled.md",
		"on-call firing PLEGUnhealthy no-net":                      "reasons/NetworkNotReady.md",
		"on-call firing PLEGReasonCritical kubelet KubeletStalled": "reasons/KubeletStalled.md",
		"operator firing PlegdFailing gone":                        "operating.md",
	} {
		got := box.Await(t, 2*time.Minute, want).Annotations
		if !strings.HasSuffix(got["runbook_url"], "/docs/"+page) || got["summary"] == "" || got["description"] == "" {
			t.Errorf("%s: %q, want the runbook %s", want, got, page)
		}
	}
	lab.Report(t, "five faults on six nodes: all alerts there %s after the faults, with times a tenth of the rules'", time.Since(began).Round(time.Second))

	checkSilence(t, box)
	checkDashboard(t, prometheus, "hangs")

	// A plegd that is killed within its fault ends no alert, for longer than one outlives its cause.
	daemons["hangs"].Kill()
	lab.Eventually(t, 2*time.Minute, "Prometheus has missed it for 20 s", func() error {
		missed, err := prometheus.Value(`sum_over_time((up{node="hangs"} == bool 0)[1m:1s])`)
		if err == nil && missed < 20 {
			err = fmt.Errorf("for %g s", missed)
		}
		return err
	})
	for _, a := range box.All() {
		if a.Status == "resolved" && a.Labels["node"] == "hangs" {
			t.Errorf("plegd was killed, and Alertmanager sent %s", a.String())
		}
	}
	daemons["hangs"].Start()

	kubeletIll.Store(false)
	for name := range faults {
		runtimes[name].Fail("")
	}
	for _, want := range []string{
		"on-call resolved PLEGUnhealthy hangs", "on-call resolved PLEGReasonCritical accepts AcceptStalled",
		"on-call resolved PLEGUnhealthy no-net", "on-call resolved PLEGReasonCritical kubelet KubeletStalled",
	} {
		box.Await(t, 2*time.Minute, want)
	}
	checkSilence(t, box)
}

// checkSilence looks for messages that nobody should have been sent.
func checkSilence(t *testing.T, box *lab.Inbox) {
	t.Helper()
	for _, a := range box.All() {
		got := a.String()
		words := strings.Fields(got)
		if words[0] != "on-call" && words[0] != "operator" || len(words) < 3 {
			t.Errorf("a message that is none: %s", got)
			continue
		}
		node := ""
		if len(words) > 3 {
			node = words[3]
		}
		switch alert := words[2]; {
		case node == "well":
			t.Errorf("all is well, and yet: %s", got)
		case alert == "PLEGNodeInhibited":
			t.Errorf("an alert for inhibition only was sent: %s", got)
		case node == "hangs" && !strings.HasPrefix(alert, "PLEGUnhealthy") && alert != "PLEGReasonCritical":
			t.Errorf("a lesser alert beside a greater one: %s", got)
		}
	}
}

// checkDashboard asks Prometheus every query of the dashboards about the last two minutes
// of a node, and wants an answer to each.
func checkDashboard(t *testing.T, p *lab.Prometheus, node string) {
	t.Helper()
	chosen := strings.NewReplacer("$cluster", ".*", "$job", ".*", "$node", node, "$__rate_interval", "30s", "$__range", "5m")
	type target struct{ Expr string }
	asked := 0
	for _, file := range []string{"plegd-overview.json", "plegd-node.json"} {
		var dashboard struct {
			Panels []struct {
				Title   string
				Targets []target
			}
			Annotations struct{ List []target }
		}
		lab.Must(t, json.Unmarshal([]byte(lab.Deployed(t, "grafana", file)), &dashboard))
		targets := dashboard.Annotations.List
		for _, panel := range dashboard.Panels {
			targets = append(targets, panel.Targets...)
		}
		for _, target := range targets {
			// A culprit is not known of every fault, and these faults share no cause.
			if target.Expr == "" || strings.Contains(target.Expr, "pleg_culprit") || strings.Contains(target.Expr, "PLEGFleetFault") {
				continue
			}
			asked++
			if samples, err := p.Range(chosen.Replace(target.Expr), time.Now().Add(-2*time.Minute)); err != nil || len(samples) == 0 {
				t.Errorf("%s: %d samples (%v) for %s", file, len(samples), err, target.Expr)
			}
		}
	}
	if asked < 30 {
		t.Errorf("the dashboards have only %d queries", asked)
	}
	lab.Report(t, "dashboards: %d queries, all answered by a real Prometheus", asked)
}
