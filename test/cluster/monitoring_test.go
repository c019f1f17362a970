//go:build e2e

package cluster

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/kubernetes"
)

const (
	prometheusAddress = "127.0.0.1:9090"
	managerAddress    = "127.0.0.1:9093"
	// webhookAddress is where deploy/alertmanager/alertmanager.yml sends its messages.
	webhookAddress = "127.0.0.1:9095"
	// nodeJob scrapes the nodes, as deploy/prometheus/prometheus.kubernetes.yml says;
	// podJob scrapes the chart's pods, as its PodMonitor says.
	nodeJob = "plegd"
	podJob  = "plegd/plegd"
)

// account is what prometheus.kubernetes.yml says that Prometheus needs, and what
// prometheus-operator gives it for pods.
const account = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus}
rules:
  - {apiGroups: [""], resources: [nodes, pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}
subjects:
  - {apiGroup: rbac.authorization.k8s.io, kind: User, name: prometheus}
`

// monitoring is the cluster's Prometheus and Alertmanager, and the on-call inbox.
type monitoring struct {
	*lab.Prometheus
	calls *lab.Inbox
}

// startMonitoring starts them with the files of deploy/prometheus.
func (c *cluster) startMonitoring() *monitoring {
	c.t.Helper()
	prometheus, agent := configs(c.t)
	files := map[string]string{
		"prometheus.yml":      prometheus,
		"plegd.rules.yml":     lab.Deployed(c.t, "prometheus", "plegd.rules.yml"),
		"plegd.recording.yml": lab.Deployed(c.t, "prometheus", "plegd.recording.yml"),
	}
	c.apply("account.yml", account)

	m := &monitoring{calls: &lab.Inbox{}}
	webhook := &http.Server{Handler: m.calls, ReadHeaderTimeout: 10 * time.Second}
	listener := c.node.Listen(webhookAddress)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = webhook.Serve(listener) // it ends with Close
	}()
	c.t.Cleanup(func() {
		_ = webhook.Close()
		<-done
	})
	c.must(os.WriteFile(c.Path("alertmanager.yml"), []byte(lab.Deployed(c.t, "alertmanager", "alertmanager.yml")), 0o644))
	c.must(os.WriteFile(c.Path("plegd.tmpl"), []byte(lab.Deployed(c.t, "alertmanager", "plegd.tmpl")), 0o644))
	c.Start("alertmanager", lab.LookPath(c.t, "prometheus-alertmanager"), "--config.file="+c.Path("alertmanager.yml"),
		"--storage.path="+c.Path("alertmanager"), "--web.listen-address="+managerAddress, "--cluster.listen-address=")
	m.Prometheus = lab.NewPrometheusOn(c.node, prometheusAddress, files, "--web.enable-remote-write-receiver")
	c.must(os.WriteFile(c.Path("agent.yml"), []byte(agent), 0o644))
	c.Start("vmagent", lab.LookPath(c.t, "vmagent"), "-promscrape.config="+c.Path("agent.yml"), "-httpListenAddr=127.0.0.1:8429",
		"-remoteWrite.url=http://"+prometheusAddress+"/api/v1/write", "-remoteWrite.tmpDataPath="+c.Path("agent"))
	return m
}

type yamlMap = map[any]any

// configs splits prometheus.kubernetes.yml: Debian's Prometheus is built without the
// discovery of Kubernetes, so vmagent finds and scrapes the targets, by the same
// configuration, and writes to Prometheus. It has a second job, for the chart's
// PodMonitor. An agent in a pod finds the API server itself; this one gets its address.
// Alertmanager is named to Prometheus.
func configs(t testing.TB) (prometheus, agent string) {
	t.Helper()
	var config yamlMap
	lab.Must(t, yaml.Unmarshal([]byte(lab.Deployed(t, "prometheus", "prometheus.kubernetes.yml")), &config))
	jobs, _ := config["scrape_configs"].([]any)
	jobs = append(jobs, operatorJob(renderedMonitor(t)))
	global, _ := config["global"].(yamlMap)
	for _, job := range jobs {
		discovery, _ := job.(yamlMap)["kubernetes_sd_configs"].([]any)
		for _, sd := range discovery {
			maps.Copy(sd.(yamlMap), yamlMap{
				"api_server": kubernetes.APIURL, "authorization": yamlMap{"credentials": kubernetes.PrometheusToken},
				"tls_config": yamlMap{"insecure_skip_verify": true},
			})
		}
	}
	agent = encode(t, yamlMap{"global": yamlMap{"scrape_interval": global["scrape_interval"]}, "scrape_configs": jobs})
	prometheus = encode(t, yamlMap{
		"global": global, "rule_files": config["rule_files"],
		"alerting": yamlMap{"alertmanagers": []any{yamlMap{"static_configs": []any{yamlMap{"targets": []string{managerAddress}}}}}},
	})
	return prometheus, agent
}

func encode(t testing.TB, v any) string {
	t.Helper()
	b, err := yaml.Marshal(v)
	lab.Must(t, err)
	return string(b)
}

// relabeling is one rule of a PodMonitor's.
type relabeling struct {
	SourceLabels []string `yaml:"sourceLabels"`
	TargetLabel  string   `yaml:"targetLabel"`
	Regex        string   `yaml:"regex"`
	Action       string   `yaml:"action"`
}

// podMonitor is as much of one as the chart's has.
type podMonitor struct {
	Metadata struct {
		Name, Namespace string
	} `yaml:"metadata"`
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"selector"`
		PodMetricsEndpoints []struct {
			Port, Path, Interval string
			ScrapeTimeout        string `yaml:"scrapeTimeout"`
			Relabelings          []relabeling
			MetricRelabelings    []relabeling `yaml:"metricRelabelings"`
		} `yaml:"podMetricsEndpoints"`
	} `yaml:"spec"`
}

// renderedMonitor is the chart's PodMonitor.
func renderedMonitor(t testing.TB) *podMonitor {
	t.Helper()
	out, err := exec.Command(helm(t), "template", "plegd", chart, "--namespace=plegd", "--set=podMonitor.enabled=true", "--kube-version="+kubernetesVersion, "--show-only=templates/podmonitor.yaml").Output()
	if err != nil {
		t.Fatalf("helm template: %v", err)
	}
	var p podMonitor
	lab.Must(t, yaml.Unmarshal(out, &p))
	return &p
}

// operatorJob is the scrape configuration that prometheus-operator makes of a PodMonitor
// (pkg/prometheus/promcfg.go, generatePodMonitorConfig).
func operatorJob(p *podMonitor) yamlMap {
	endpoint := p.Spec.PodMetricsEndpoints[0]
	invalid := strings.NewReplacer(".", "_", "/", "_", "-", "_")
	var relabel, metrics []yamlMap
	list := &relabel
	add := func(action, regex, target string, sources ...string) {
		r := yamlMap{"action": cmp.Or(action, "replace")}
		for key, value := range map[string]string{"regex": regex, "target_label": target} {
			if value != "" {
				r[key] = value
			}
		}
		if len(sources) > 0 {
			r["source_labels"] = sources
		}
		*list = append(*list, r)
	}
	add("drop", "(Failed|Succeeded)", "", "__meta_kubernetes_pod_phase")
	for _, label := range slices.Sorted(maps.Keys(p.Spec.Selector.MatchLabels)) {
		add("keep", p.Spec.Selector.MatchLabels[label], "", "__meta_kubernetes_pod_label_"+invalid.Replace(label))
	}
	add("keep", endpoint.Port, "", "__meta_kubernetes_pod_container_port_name")
	for target, source := range map[string]string{"namespace": "namespace", "container": "pod_container_name", "pod": "pod_name"} {
		add("replace", "", target, "__meta_kubernetes_"+source)
	}
	relabel = append(relabel,
		yamlMap{"target_label": "job", "replacement": p.Metadata.Namespace + "/" + p.Metadata.Name},
		yamlMap{"target_label": "endpoint", "replacement": endpoint.Port})
	for _, r := range endpoint.Relabelings {
		add(r.Action, r.Regex, r.TargetLabel, r.SourceLabels...)
	}
	list = &metrics
	for _, r := range endpoint.MetricRelabelings {
		add(r.Action, r.Regex, r.TargetLabel, r.SourceLabels...)
	}
	return yamlMap{
		"job_name":              "podMonitor/" + p.Metadata.Namespace + "/" + p.Metadata.Name + "/0",
		"kubernetes_sd_configs": []any{yamlMap{"role": "pod", "namespaces": yamlMap{"names": []string{p.Metadata.Namespace}}}},
		"scrape_interval":       endpoint.Interval, "scrape_timeout": endpoint.ScrapeTimeout, "metrics_path": endpoint.Path,
		"relabel_configs": relabel, "metric_relabel_configs": metrics,
	}
}

// selects waits until a query selects a series in both jobs.
func (m *monitoring) selects(t testing.TB, limit time.Duration, query string) time.Duration {
	t.Helper()
	return lab.Eventually(t, limit, query, func() error {
		series, err := m.Query(query)
		if err != nil {
			return err
		}
		var jobs []string
		for _, labels := range series {
			if labels["node"] != nodeName {
				return fmt.Errorf("a series without the node's name: %v", labels)
			}
			jobs = append(jobs, labels["job"])
		}
		if slices.Sort(jobs); !slices.Equal(jobs, []string{nodeJob, podJob}) {
			return fmt.Errorf("the jobs that have it: %q", jobs)
		}
		return nil
	})
}
