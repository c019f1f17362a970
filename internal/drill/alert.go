package drill

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/deploy/prometheus"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
)

const metricsPort = "20290"

// unhealthyAlert is the alert of a node whose kubelet does not manage its pods. It has no reason
// as a label.
const unhealthyAlert = "PLEGUnhealthy"

// classAlerts are the alerts of single nodes that the rules raise for a class of reasons.
var classAlerts = map[string]string{
	"critical": "PLEGReasonCritical",
	"warning":  "PLEGReasonWarning",
	"lasting":  "PLEGReasonLasting",
}

// Options describe a drill.
type Options struct {
	Reason health.Reason
	Node   string
	// Name is the alert's name; empty: the one that the rules raise for the reason at its worst.
	Name string
	// Labels are added, and win.
	Labels map[string]string
	Start  time.Time
	For    time.Duration
}

// AlertName returns the name of the alert that the rules raise for a reason of a severity, "" if
// they raise none.
func AlertName(reason string, severity facts.Severity) (string, error) {
	var classes struct {
		// Soon are the warnings that do not wait for a lasting one.
		Soon []string `json:"soon"`
		// Reasons are those of a class of their own, regardless of their severity.
		Reasons map[string]string `json:"reasons"`
	}
	err := json.Unmarshal(prometheus.Classes, &classes)
	if err != nil {
		return "", fmt.Errorf("reasons.json: %w", err)
	}
	class, moved := classes.Reasons[reason]
	if !moved {
		class = string(severity)
		lasts := severity == facts.SeverityWarning && !slices.Contains(classes.Soon, reason)
		if lasts {
			class = "lasting"
		}
	}
	return classAlerts[class], nil
}

// alertsOf returns the alerts that fire for a reason, that of the reason at its worst first.
func alertsOf(r health.Reason) ([]string, error) {
	var out []string
	for _, severity := range r.Severities() {
		name, err := AlertName(r.ID, severity)
		if err != nil {
			return nil, err
		}
		if name != "" {
			out = append(out, name)
		}
	}
	if out == nil {
		return nil, fmt.Errorf("no alert fires for %s (%s): want a reason that is critical or a warning, as `plegd reasons` lists them",
			r.ID, r.Severity)
	}
	return append(out, unhealthyAlert), nil
}

// NewAlert returns the alert of a drill: what the rules raise for the reason, marked as a drill.
func NewAlert(o Options) (Alert, error) {
	names, err := alertsOf(o.Reason)
	if err != nil {
		return Alert{}, err
	}
	name := cmp.Or(o.Name, names[0])
	if !slices.Contains(names, name) {
		return Alert{}, fmt.Errorf("--alert: %q does not fire for %s: want %s", name, o.Reason.ID, strings.Join(names, " or "))
	}
	r, err := findRule(name)
	if err != nil {
		return Alert{}, err
	}
	labels := map[string]string{
		"alertname": name,
		"job":       "plegd",
		"instance":  o.Node + ":" + metricsPort,
		"node":      o.Node,
	}
	if name != unhealthyAlert {
		labels["reason"] = o.Reason.ID
	}
	maps.Copy(labels, r.Labels)
	labels["drill"] = "true"
	maps.Copy(labels, o.Labels)
	annotations := map[string]string{}
	for key, text := range r.Annotations {
		annotations[key], err = expand(text, labels, o.Reason)
		if err != nil {
			return Alert{}, fmt.Errorf("%s: %s: %w", name, key, err)
		}
	}
	annotations["summary"] = "DRILL: " + annotations["summary"]
	annotations["description"] = "This is a drill: nothing is wrong with " + o.Node + ". " + annotations["description"]
	return Alert{
		Labels:      labels,
		Annotations: annotations,
		StartsAt:    o.Start.UTC(),
		EndsAt:      o.Start.Add(o.For).UTC(),
	}, nil
}

// A rule is an alerting rule, as far as its messages need it.
type rule struct {
	Alert       string
	Labels      map[string]string
	Annotations map[string]string
}

// findRule returns the rule of an alert.
func findRule(name string) (rule, error) {
	var file struct {
		Groups []struct{ Rules []rule }
	}
	err := yaml.Unmarshal(prometheus.Alerts, &file)
	if err != nil {
		return rule{}, fmt.Errorf("plegd.rules.yml: %w", err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == name {
				return r, nil
			}
		}
	}
	return rule{}, fmt.Errorf("plegd.rules.yml has no alert %s", name)
}

// A sample is what a template's query finds.
type sample struct {
	Labels map[string]string
	Value  float64
}

// expand executes a Prometheus template of a rule for a node with this reason, without a predicted
// NotReady.
func expand(text string, labels map[string]string, r health.Reason) (string, error) {
	info := sample{
		Labels: map[string]string{"reason": r.ID, "cause": r.Cause, "next": r.NextLine},
		Value:  1,
	}
	// These rules query nothing but instance:pleg_message:info.
	functions := template.FuncMap{
		"query":  func(string) []sample { return []sample{info} },
		"first":  func(found []sample) sample { return found[0] },
		"label":  func(name string, s sample) string { return s.Labels[name] },
		"toTime": func(seconds float64) time.Time { return time.Unix(int64(seconds), 0).UTC() },
	}
	parsed, err := template.New("rule").Option("missingkey=zero").Funcs(functions).Parse("{{ $labels := . }}" + text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = parsed.Execute(&out, labels)
	return out.String(), err
}
