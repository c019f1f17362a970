// Command mixin writes what the mixin beside it makes: the rules for Prometheus, the
// dashboards for Grafana, and the copies of both in the Helm chart.
//
// It is a module of its own: plegd does not depend on jsonnet.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-jsonnet"
	"go.yaml.in/yaml/v3"
)

func main() {
	dir := flag.String("dir", "..", "`directory` deploy, below which the files are written")
	config := flag.String("config", "", "jsonnet `object` that overrides the configuration, as in {nodeLabel: 'kubernetes_node'}")
	check := flag.Bool("check", false, "write nothing; fail if a file is not what the mixin makes")
	flag.Parse()
	if err := run(*dir, *config, *check); err != nil {
		fmt.Fprintln(os.Stderr, "mixin:", err)
		os.Exit(1)
	}
}

func run(dir, config string, check bool) error {
	files, err := render(config)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if check {
			old, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if !bytes.Equal(old, files[name]) {
				return fmt.Errorf("%s is not what the mixin makes: run make generate", path)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A groups is what a file of rules holds.
type groups struct {
	Groups []group `json:"groups" yaml:"groups"`
}

type group struct {
	Name     string `json:"name" yaml:"name"`
	Interval string `json:"interval" yaml:"interval,omitempty"`
	Rules    []rule `json:"rules" yaml:"rules"`
}

// A rule has its fields in the order in which people write them.
type rule struct {
	Record        string            `json:"record" yaml:"record,omitempty"`
	Alert         string            `json:"alert" yaml:"alert,omitempty"`
	Expr          string            `json:"expr" yaml:"expr"`
	For           string            `json:"for" yaml:"for,omitempty"`
	KeepFiringFor string            `json:"keep_firing_for" yaml:"keep_firing_for,omitempty"`
	Labels        map[string]string `json:"labels" yaml:"labels,omitempty"`
	Annotations   map[string]string `json:"annotations" yaml:"annotations,omitempty"`
}

// A mixin is what mixin.libsonnet makes, by the names that mixins have in common.
type mixin struct {
	Alerts     groups                     `json:"prometheusAlerts"`
	Rules      groups                     `json:"prometheusRules"`
	Dashboards map[string]json.RawMessage `json:"grafanaDashboards"`
	// Classes say which alert a reason raises, for the chart and for plegd drill.
	Classes json.RawMessage `json:"reasonClasses"`
}

// render evaluates the mixin and returns the files, by their names below deploy/.
func render(config string) (map[string][]byte, error) {
	m, err := evaluate(config)
	if err != nil {
		return nil, err
	}
	alerts, err := encode(m.Alerts, "plegd's alerts, and what they need. keep_firing_for needs Prometheus 2.42.")
	if err != nil {
		return nil, err
	}
	recording, err := encode(m.Rules, "The series of a fleet's view. instance: one series a node; cluster: a handful a cluster,\n"+
		"independent of its size. Keep the cluster: ones for long, and send only them to a Prometheus that\nlooks at many clusters. The label of the cluster may be missing: then all nodes are one cluster.")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"prometheus/plegd.rules.yml":     alerts,
		"prometheus/plegd.recording.yml": recording,
	}
	documents := map[string]json.RawMessage{"prometheus/reasons.json": m.Classes}
	for name, dashboard := range m.Dashboards {
		documents["grafana/"+name] = dashboard
	}
	for name, document := range documents {
		var b bytes.Buffer
		if err := json.Indent(&b, document, "", "  "); err != nil {
			return nil, err
		}
		b.WriteByte('\n')
		files[name] = b.Bytes()
	}
	// The chart can read only files inside the chart.
	chart := map[string][]byte{}
	for name, b := range files {
		chart["helm/plegd/files/"+filepath.Base(name)] = b
	}
	maps.Copy(files, chart)
	return files, nil
}

func evaluate(config string) (mixin, error) {
	if config == "" {
		config = "{}"
	}
	vm := jsonnet.MakeVM()
	text, err := vm.EvaluateAnonymousSnippet("mixin", `
local m = (import 'mixin.libsonnet') + {_config+:: `+config+`};
{prometheusAlerts: m.prometheusAlerts, prometheusRules: m.prometheusRules, grafanaDashboards: m.grafanaDashboards, reasonClasses: m.reasonClasses}`)
	if err != nil {
		return mixin{}, err
	}
	var m mixin
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	return m, decoder.Decode(&m)
}

// encode returns a file of rules with a comment at its head.
func encode(g groups, comment string) ([]byte, error) {
	var doc yaml.Node
	if err := doc.Encode(g); err != nil {
		return nil, err
	}
	doc.HeadComment = "Generated from deploy/mixin by make generate: change it there, or configure it (deploy/mixin/README.md).\n\n" + comment
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&doc); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
