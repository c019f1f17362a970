package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFiles compares the files in the repository with what the mixin makes.
func TestFiles(t *testing.T) {
	if err := run("..", "", true); err != nil {
		t.Error(err)
	}
}

// TestNoRunbookElsewhere: every link comes from the configuration.
func TestNoRunbookElsewhere(t *testing.T) {
	files, err := render(`{runbookBaseURL: 'https://wiki.example.org/plegd/', runbookSuffix: ''}`)
	must(t, err)
	links := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, url := range regexp.MustCompile(`https?://[^\s"'\\]*`).FindAllString(string(files[name]), -1) {
			if !strings.HasPrefix(url, "https://wiki.example.org/plegd/") {
				t.Errorf("%s links to %s", name, url)
			}
			links++
		}
		if strings.Contains(string(files[name]), ".md\"") || strings.Contains(string(files[name]), ".md'") {
			t.Errorf("%s has a link with a suffix of its own", name)
		}
	}
	if links == 0 {
		t.Error("nothing links to a runbook")
	}
}

// promtool skips the test where it is not installed; in CI it must be.
func promtool(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if ci := os.Getenv("CI"); ci != "" && ci != "false" && ci != "0" {
			t.Fatal("promtool is not installed; see test/e2e/install-deps.sh")
		}
		t.Skip("SKIPPED: promtool is not installed; see test/e2e/install-deps.sh")
	}
}

// unitTests are promtool's tests of the rules.
var unitTests = []string{"plegd.rules.test.yml", "plegd.quiet.test.yml", "plegd.kubelet.test.yml"}

// A replacement rewrites a test for another configuration.
type replacement struct{ old, new string }

// TestOtherLabels runs all unit tests of the rules with other labels and other links, rewritten
// accordingly.
func TestOtherLabels(t *testing.T) {
	promtool(t)
	stackJob := []replacement{
		{`job="plegd"`, `job="plegd/plegd"`},
		{`job: plegd\b([^/])`, `job: plegd/plegd$1`},
	}
	for name, c := range map[string]struct {
		config  string
		rewrite []replacement
		// tests are the unit tests; nil: all.
		tests []string
	}{
		// The slowest that the documentation allows. A page may come later then, and still
		// nothing may fire without cause.
		"evaluated every 30 s": {"", []replacement{{`(?m)^evaluation_interval: 15s`, `evaluation_interval: 30s`}}, []string{"plegd.quiet.test.yml"}},
		// Without a relabelling of its own a PodMonitor has these labels, and no node.
		"a PodMonitor without relabelling": {"", append([]replacement{
			{`((?:pleg_|up|process_)[a-z_]*)\{job=`, `$1{namespace="plegd", container="plegd", endpoint="metrics", job=`},
		}, stackJob...), nil},
		"other labels": {
			`{clusterLabel: 'k8s_cluster', nodeLabel: 'kubernetes_node', plegdSelector: 'env="prod"', runbookBaseURL: 'https://wiki.example.org/', runbookSuffix: '', alertLabels: {team: 'nodes'}, interval: '15s'}`,
			[]replacement{
				{`([{ ])cluster="`, `${1}k8s_cluster="`},
				{`([{ ])cluster: `, `${1}k8s_cluster: `},
				{`([{ ])node="`, `${1}kubernetes_node="`},
				{`([{ ])node: `, `${1}kubernetes_node: `},
				{`series: '((?:pleg_|process_)[a-z_]*)\{`, `series: '$1{env="prod", `},
				{`exp_labels: \{`, `exp_labels: {team: nodes, `},
				{`https://github.com/plegd/plegd/blob/main/docs/`, `https://wiki.example.org/`},
				{`(runbook_url: .*)\.md`, `$1`},
			},
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := render(c.config)
			must(t, err)
			dir := t.TempDir()
			for _, name := range []string{"plegd.rules.yml", "plegd.recording.yml"} {
				must(t, os.WriteFile(filepath.Join(dir, name), files["prometheus/"+name], 0o644))
			}
			tests := c.tests
			if tests == nil {
				tests = unitTests
			}
			for _, name := range tests {
				b, err := os.ReadFile(filepath.Join("..", "prometheus", name))
				must(t, err)
				for _, r := range c.rewrite {
					b = regexp.MustCompile(r.old).ReplaceAll(b, []byte(r.new))
				}
				must(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
			}
			cmd := exec.Command("promtool", append([]string{"test", "rules"}, tests...)...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("promtool: %v\n%s", err, out)
			}
		})
	}
}

// TestSettings: labels, thresholds, classes and delays of the configuration reach dashboards and
// rules.
func TestSettings(t *testing.T) {
	m, err := evaluate(`{clusterLabel: 'k8s_cluster', nodeLabel: 'kubernetes_node', notReadySoonSeconds: 45, alertLabels: {team: 'nodes', severity: 'x'},
		reasons+: {RelistSlow: 'critical', ShimStuck: 'none'}, delays+: {PLEGUnhealthy: '30s'}, severities+: {PLEGUnhealthy: 'page'}}`)
	must(t, err)
	for name, text := range m.Dashboards {
		if regexp.MustCompile(`[{ ](cluster=~|node=)`).Match(text) || !json.Valid(text) {
			t.Errorf("%s selects by another label, or is no JSON", name)
		}
	}
	rules := map[string]rule{}
	for _, g := range m.Alerts.Groups {
		for _, r := range g.Rules {
			rules[r.Alert+r.Record] = r
		}
	}
	unhealthy := rules["PLEGUnhealthy"]
	if unhealthy.For != "30s" || unhealthy.Labels["severity"] != "page" || unhealthy.Labels["team"] != "nodes" {
		t.Errorf("PLEGUnhealthy is %+v", unhealthy)
	}
	if expr := rules["instance:pleg_unhealthy:active"].Expr; !strings.Contains(expr, "< 45") {
		t.Errorf("the time left is not 45 s: %s", expr)
	}
	// What is moved is selected by none of the other classes.
	for name, more := range map[string]string{"PLEGReasonCritical": ` or instance:pleg_primary_reason:active{reason=~"RelistSlow"})`, "PLEGReasonWarning": ` or instance:pleg_primary_reason:active{reason=~"RelistLoopStalled"})`, "PLEGReasonLasting": ")"} {
		if expr := rules[name].Expr; !strings.Contains(expr, `, reason!~"RelistLoopStalled|RelistSlow|ShimStuck"}`+more+"\n") {
			t.Errorf("%s: the reasons are not in their classes: %s", name, expr)
		}
	}
}

// TestShort: an alert is at most three lines of PromQL, and each of its texts looks up one series.
func TestShort(t *testing.T) {
	m, err := evaluate("")
	must(t, err)
	for _, g := range m.Alerts.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			if n := strings.Count(strings.TrimSpace(r.Expr), "\n"); n > 2 {
				t.Errorf("%s has %d lines", r.Alert, n+1)
			}
			for name, text := range r.Annotations {
				if n := strings.Count(text, "| query"); n > 1 {
					t.Errorf("%s: %s has %d lookups", r.Alert, name, n)
				}
			}
		}
	}
}

// must ends the test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
