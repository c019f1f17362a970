//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/test/lab"
)

// operatorTypes are names of prometheus-operator's types, so that the API server takes
// the chart's objects. The operator itself does not run.
const operatorTypes = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "%[1]ss.monitoring.coreos.com"}, "spec": {
  "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": "%[2]s", "plural": "%[1]ss"},
  "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}
`

// receiverAddress is where the engine that a fleet sends to takes remote writes.
const receiverAddress = "127.0.0.1:9190"

// TestFleet is the walk of an operator of thousands of nodes: the chart with its values for
// a fleet, and a cluster that sends its view to an engine elsewhere. Scrape targets and
// rules are read from the objects that the chart made.
func TestFleet(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var types strings.Builder
	for _, kind := range []string{"PodMonitor", "PrometheusRule"} {
		fmt.Fprintf(&types, operatorTypes, strings.ToLower(kind), kind)
	}
	c.apply("types.json", types.String())
	c.Run("kubectl", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	tag := c.importImage()
	values, err := filepath.Abs(filepath.Join(chart, "values-fleet.yaml"))
	c.must(err)

	began := time.Now()
	c.install(tag, "--values", values)
	receiver := lab.NewPrometheusOn(c.node, receiverAddress, map[string]string{"prometheus.yml": "global: {}\n"}, "--web.enable-remote-write-receiver")
	m := c.monitorFleet()
	awaitSeries(t, receiver, 2*time.Minute, `cluster:plegd_nodes:count{cluster="lab"} == 1`)
	seen := time.Since(began)
	// The alerts leave a plegd that has just come in peace for a while.
	awaitSeries(t, m.Prometheus, 5*time.Minute, `pleg_verdict{state="unhealthy"} offset 150s == 0`)

	fault := time.Now()
	c.containerd.Freeze()
	page := m.calls.Await(t, 3*time.Minute, "on-call firing PLEGUnhealthy "+nodeName)
	if !strings.Contains(page.Annotations["description"], frozen) || !strings.HasSuffix(page.Annotations["runbook_url"], "docs/reasons/"+frozen+".md") {
		t.Errorf("the page: %v", page.Annotations)
	}
	awaitSeries(t, receiver, time.Minute, `cluster:pleg_primary_reason:sum{cluster="lab", reason="`+frozen+`"} == 1`)
	awaitSeries(t, receiver, time.Minute, `ALERTS{alertname="PLEGUnhealthy", alertstate="firing", cluster="lab", node="`+nodeName+`"}`)
	away := time.Since(fault)
	c.containerd.Thaw()
	m.calls.Await(t, 10*time.Minute, "on-call resolved PLEGUnhealthy "+nodeName)

	names := map[string]bool{}
	series, err := receiver.Query(`{__name__=~".+"}`)
	c.must(err)
	for _, labels := range series {
		names[labels["__name__"]] = true
		if name := labels["__name__"]; name != "ALERTS" && !strings.HasPrefix(name, "cluster:pleg") {
			t.Errorf("a single node's series is sent: %v", labels)
		}
	}
	perNode, err := m.Query(`{job="` + podJob + `", __name__!~"cluster:.*|instance:.*|ALERTS.*|scrape_.*|up"}`)
	c.must(err)
	if slices.ContainsFunc(perNode, func(labels map[string]string) bool { return strings.HasPrefix(labels["__name__"], "go_") }) {
		t.Error("what the values for a fleet drop is stored")
	}
	lab.Report(t, "chart with its values for a fleet: the cluster's view has arrived elsewhere %s after helm install began; containerd stopped: page with %s after %s, the reason and the alert elsewhere after %s; %d series of the node here, %d of the cluster there",
		round(seen), frozen, round(page.At.Sub(fault)), round(away), len(perNode), len(series))
}

// monitorFleet starts Prometheus with the rules of the chart's PrometheusRule, an agent
// with the targets of its PodMonitor, and sends the view of the cluster away.
func (c *cluster) monitorFleet() *monitoring {
	c.t.Helper()
	var p podMonitor
	c.must(yaml.Unmarshal([]byte(c.Run("kubectl", "-n", namespace, "get", "podmonitor", "plegd", "-o", "yaml")), &p))
	var rule struct{ Spec yamlMap }
	c.must(yaml.Unmarshal([]byte(c.Run("kubectl", "-n", namespace, "get", "prometheusrule", "plegd", "-o", "yaml")), &rule))
	interval := p.Spec.PodMetricsEndpoints[0].Interval
	return c.monitorBy(scraping(c.t, interval, []any{operatorJob(&p)}), map[string]string{
		"plegd.rules.yml": encode(c.t, rule.Spec),
		"prometheus.yml": encode(c.t, yamlMap{
			"global":     yamlMap{"evaluation_interval": interval, "external_labels": yamlMap{"cluster": "lab"}},
			"rule_files": []string{"plegd.rules.yml"},
			"alerting":   yamlMap{"alertmanagers": []any{yamlMap{"static_configs": []any{yamlMap{"targets": []string{managerAddress}}}}}},
			"remote_write": []any{yamlMap{
				"url": "http://" + receiverAddress + "/api/v1/write",
				"write_relabel_configs": []any{yamlMap{
					"source_labels": []string{"__name__"}, "regex": "cluster:pleg.*|ALERTS", "action": "keep",
				}},
			}},
		}),
	})
}

// awaitSeries waits until a query selects something.
func awaitSeries(t testing.TB, p *lab.Prometheus, limit time.Duration, query string) {
	t.Helper()
	lab.Eventually(t, limit, query, func() error {
		series, err := p.Query(query)
		if err == nil && len(series) == 0 {
			err = errors.New("it selects nothing")
		}
		return err
	})
}
