// Package prometheus_test checks the rules and configurations beside it with
// promtool, and beyond it: that each metric and reason exists, and that each alert
// has its texts.
package prometheus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/drill"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/test/must"
)

const (
	alertRules     = "plegd.rules.yml"
	recordingRules = "plegd.recording.yml"

	// docs is where a runbook's link leads.
	docs = "https://github.com/plegd/plegd/blob/main/docs/"
)

// ruleFile is a file of rules.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Alert, Record, Expr, For string
	KeepFiringFor            string `yaml:"keep_firing_for"`
	Labels, Annotations      map[string]string
}

// run runs a checker and returns its output as an error if it fails.
func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return errors.New(name + " " + strings.Join(args, " ") + ":\n" + string(out))
	}
	return nil
}

func rules(t *testing.T, name string) []rule {
	t.Helper()
	var f ruleFile
	must.Do(t, yaml.UnmarshalStrict([]byte(contents(t, name)), &f))
	var out []rule
	for _, g := range f.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

func TestRules(t *testing.T) {
	must.Programs(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", alertRules, recordingRules},
		{"test", "rules", "plegd.rules.test.yml"}, {"test", "rules", "plegd.quiet.test.yml"},
		{"test", "rules", "plegd.kubelet.test.yml"}, // metrics that plegd exported beside a real kubelet
	} {
		if err := run(".", "promtool", args...); err != nil {
			t.Error(err)
		}
	}
}

// TestDrill has Prometheus raise the alerts of every reason in each of its severities: they are what
// plegd drill posts, but for the marks of a drill.
func TestDrill(t *testing.T) {
	must.Programs(t, "promtool")
	var text strings.Builder
	text.WriteString("rule_files: [plegd.rules.yml, plegd.recording.yml]\nevaluation_interval: 1m\ntests:\n")
	raised := map[string]int{}
	for _, r := range health.Reasons() {
		for _, severity := range r.Severities() {
			name, err := drill.AlertName(r.ID, severity)
			must.Do(t, err)
			raised[name]++
			state := "unhealthy"
			if name == "" { // no alert fires
				state = "starting"
			}
			node := fmt.Sprintf(`job="plegd", instance=%q, node=%q`, r.ID+":20290", r.ID)
			fmt.Fprintf(&text, "  - name: %s %s\n    interval: 1m\n    input_series:\n", r.ID, severity)
			for _, series := range []string{
				"pleg_threshold_seconds{" + node,
				fmt.Sprintf("pleg_verdict{%s, state=%q", node, state),
				fmt.Sprintf("pleg_primary_reason{%s, reason=%q", node, r.ID),
				fmt.Sprintf("pleg_reason{%s, reason=%q, severity=%q", node, r.ID, severity),
				fmt.Sprintf("pleg_primary_reason_info{%s, reason=%q, cause=%q, next=%q, culprit=\"\"", node, r.ID, r.Cause, r.NextLine),
			} {
				fmt.Fprintf(&text, "      - {series: %s, values: 1x30}\n", quoted(t, series+"}"))
			}
			text.WriteString("    alert_rule_test:\n")
			for _, alert := range []string{"PLEGUnhealthy", "PLEGReasonCritical", "PLEGReasonWarning", "PLEGReasonLasting"} {
				fmt.Fprintf(&text, "      - eval_time: 25m\n        alertname: %s\n", alert)
				if name != "" && (alert == name || alert == "PLEGUnhealthy") {
					fmt.Fprintf(&text, "        exp_alerts: [%s]\n", drilled(t, drill.Options{Reason: r, Node: r.ID, Name: alert}))
				}
			}
		}
	}
	for _, alert := range []string{"", "PLEGReasonCritical", "PLEGReasonWarning", "PLEGReasonLasting"} {
		if raised[alert] == 0 {
			t.Errorf("no reason raises %q", alert)
		}
	}
	dir := t.TempDir()
	for name, content := range map[string]string{alertRules: contents(t, alertRules), recordingRules: contents(t, recordingRules), "test.yml": text.String()} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if err := run(dir, "promtool", "test", "rules", "test.yml"); err != nil {
		t.Error(err)
	}
}

// drilled returns the alert of a drill without the marks of one, as promtool expects alerts.
func drilled(t *testing.T, o drill.Options) string {
	t.Helper()
	a, err := drill.NewAlert(o)
	must.Do(t, err)
	delete(a.Labels, "alertname")
	delete(a.Labels, "drill")
	_, a.Annotations["summary"], _ = strings.Cut(a.Annotations["summary"], "DRILL: ")
	_, a.Annotations["description"], _ = strings.Cut(a.Annotations["description"], "nothing is wrong with "+o.Node+". ")
	return quoted(t, map[string]any{"exp_labels": a.Labels, "exp_annotations": a.Annotations})
}

// quoted returns a value as JSON, which is YAML.
func quoted(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must.Do(t, err)
	return string(b)
}

// TestAlertsSay looks at what every alert has to say, and that the unit tests
// have each of them fire.
func TestAlertsSay(t *testing.T) {
	tests := contents(t, "plegd.rules.test.yml")
	for _, r := range rules(t, alertRules) {
		if r.Alert == "" {
			continue // what the texts look up
		}
		for _, want := range []string{"summary", "description", "runbook_url"} {
			if strings.TrimSpace(r.Annotations[want]) == "" {
				t.Errorf("%s has no %s", r.Alert, want)
			}
		}
		url := r.Annotations["runbook_url"]
		link, ok := strings.CutPrefix(url[max(0, strings.Index(url, "https://")):], docs) // a template may stand before it
		if !ok {
			t.Errorf("%s: its runbook is at %q, want a page below %s", r.Alert, r.Annotations["runbook_url"], docs)
		} else if !strings.Contains(link, "{{") {
			if _, err := os.Stat(filepath.Join("..", "..", "docs", link)); err != nil {
				t.Errorf("%s: its runbook is not there: %v", r.Alert, err)
			}
		}
		if s := r.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "none"}, s) {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if r.Alert == "PLEGFleetFault" {
			continue // deploy/mixin has their tests
		}
		fires := regexp.MustCompile(`alertname: ` + r.Alert + `\n\s+exp_alerts:`)
		if !fires.MatchString(tests) {
			t.Errorf("no unit test has %s fire", r.Alert)
		}
	}
	if n := strings.Count(contents(t, alertRules), "- alert:"); n > 8 {
		t.Errorf("%d alerts, want at most 8", n)
	}
	contents(t, "../../docs/troubleshooting.md") // the runbook of an alert without a reason
}

// TestNamesExist compares the metrics and reasons that the rules speak of with
// those that plegd has.
func TestNamesExist(t *testing.T) {
	metrics := contents(t, "../../docs/metrics.md")
	var ids []string
	for _, r := range health.Reasons() {
		ids = append(ids, r.ID)
	}
	metric := regexp.MustCompile(`\b(?:[a-z]+:)?pleg_[a-z_]+(?::[a-z0-9_]+)?`)
	recorded := map[string]bool{}
	for _, r := range append(rules(t, recordingRules), rules(t, alertRules)...) {
		recorded[r.Record] = true
	}
	for _, file := range []string{alertRules, recordingRules} {
		for _, r := range rules(t, file) {
			for _, name := range metric.FindAllString(r.Expr, -1) {
				base := strings.TrimSuffix(name, "_bucket")
				if !recorded[name] && !strings.Contains(metrics, "`"+base+"`") {
					t.Errorf("%s %s%s: there is no %s", file, r.Alert, r.Record, name)
				}
			}
			for _, m := range regexp.MustCompile(`reason[!=]~?"([^"]+)"`).FindAllStringSubmatch(r.Expr, -1) {
				for id := range strings.SplitSeq(m[1], "|") {
					if !slices.Contains(ids, id) {
						t.Errorf("%s %s: there is no reason %s", file, r.Alert, id)
					}
				}
			}
		}
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	must.Do(t, err)
	return string(b)
}
