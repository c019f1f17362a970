//go:build e2e

package prometheus_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMutations spoils one thing in a copy of the files and wants the check
// that is named with it to notice.
func TestMutations(t *testing.T) {
	need(t, "promtool")
	for name, m := range map[string]struct {
		file, old, new string
		check          func(string) error
	}{
		// Alerts too late, too early, or about the wrong node.
		"the node must be old twice":     {alertRules, "pleg_threshold_seconds * 2 / 3", "pleg_threshold_seconds * 4 / 3", checkAlerts},
		"an upgrade pages":               {alertRules, "pleg_threshold_seconds * 2 / 3", "pleg_threshold_seconds / 2", checkQuiet},
		"a boot pages":                   {alertRules, " and on (cluster, job, instance) pleg_verdict{state=\"unhealthy\"} offset 150s", "", checkQuiet},
		"the kubelet's upgrade pages":    {alertRules, "reason=~\"KubeletStalled|KubeletDown\"} offset 3m", "reason=~\"KubeletStalled|KubeletDown\"} offset 1m", checkQuiet},
		"a node that fills will run out": {alertRules, "            and predict_linear(pleg_runtime_process_open_fds[15m], 4 * 3600) > pleg_runtime_process_max_fds\n", "", checkQuiet},
		"any node of this name":          {alertRules, "cluster=''%s'',job=''%s'',instance=''%s''}\" $labels.cluster", "job=''%s'',instance=''%s''}\"", checkAlerts},
		"a reason outlives its series":   {alertRules, "unless on (cluster, job, instance) pleg_threshold_seconds", "unless on (cluster, job, instance) pleg_other", checkAlerts},
		"an expression that is none":     {recordingRules, "sum by (cluster, job, state)", "sum by (cluster, job, state", checkRules},
		// Tests that look at nothing.
		"the rules' test":   {"plegd.rules.test.yml", "alertname: PLEGUnhealthy\n", "alertname: PLEGUnhealthier\n", checkAlerts},
		"the quiet ones":    {"plegd.quiet.test.yml", "pleg_last_seen_seconds{job=\"plegd\", instance=\"n1\"}[30m]", "pleg_last_seen_seconds{job=\"plegd\", instance=\"n2\"}[30m]", checkQuiet},
		"another port":      {"prometheus.static.yml", "node2:20290", "node2:20209", checkStatic},
		"no node's name":    {"prometheus.file.yml", "target_label: node\n", "target_label: name\n", checkFile},
		"a target less":     {"targets.example.yml", "[node3:20290]", "[]", checkFile},
		"the kubelet's own": {kubernetes, "replacement: '$1:20290'", "replacement: '$1:10250'", checkKubernetes},
		"pods, not nodes":   {kubernetes, "role: node\n", "role: pod\n", checkKubernetes},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := copied(".")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, m.file)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			spoilt := strings.ReplaceAll(string(b), m.old, m.new)
			if spoilt == string(b) {
				t.Fatalf("there is no %q in %s to spoil", m.old, m.file)
			}
			if err := os.WriteFile(path, []byte(spoilt), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := m.check(dir); err == nil {
				t.Errorf("nothing notices %q in the place of %q", m.new, m.old)
			}
		})
	}
}
