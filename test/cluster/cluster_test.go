//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/kubelet/record"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

const frozen = "RuntimeFrozen"

// TestWalk is a newcomer's walk: plegd comes into a cluster that has a Prometheus,
// faults are made, and plegd is upgraded and removed.
func TestWalk(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.startMonitoring()
	tag := c.importImage()
	client := c.node.Client(5 * time.Second)

	installed := time.Now()
	c.install(tag, "--set", "kubeletMetrics.servingCertificate="+c.Path("certs/kubelet.crt"))
	ready := time.Since(installed)
	m.selects(t, time.Minute, `pleg_verdict{state="healthy"} == 1`)
	scraped := time.Since(installed)
	lab.Report(t, "chart: ready %s after helm install began, scraped by both jobs after %s", round(ready), round(scraped))
	s := awaitSources(t, client)
	check.Equal(t, s.Endpoint.Path, runtime.DefaultSocket, "plegd found the runtime at")
	check.Contains(t, c.Run("kubectl", "-n", namespace, "exec", c.pod(), "--", "plegd", "status"), "HEALTHY", "plegd status in the pod")
	c.startService()
	// The alerts leave a plegd that has just come in peace for a while.
	m.selects(t, 7*time.Minute, `pleg_threshold_seconds offset 5m`)
	c.freezeAndPage(m)
	c.compare(1, scenario{name: "killed, started again after 45 s", statusRule: true, run: func(x *comparison) {
		x.fault = time.Now()
		x.containerd.Kill()
		x.sleep(45 * time.Second)
		x.containerd.Start()
		x.recovery = time.Now()
	}})
	c.upgrade(client, m)
	c.uninstall()
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// freezeAndPage stops containerd for 150 s: the page must come before the API server
// shows the node NotReady, with the reason and its runbook, and be resolved after
// the recovery.
func (c *cluster) freezeAndPage(m *monitoring) {
	c.t.Helper()
	x := c.compare(0, scenario{name: "SIGSTOP for 150 s", run: func(x *comparison) { x.freeze(150 * time.Second) }})
	page := m.calls.Await(c.t, time.Second, "on-call firing PLEGUnhealthy "+nodeName)
	runbook := "docs/reasons/" + frozen + ".md"
	if !strings.HasSuffix(page.Annotations["runbook_url"], runbook) || !strings.Contains(page.Annotations["summary"], nodeName+": "+frozen) {
		c.t.Errorf("the page: %v", page.Annotations)
	}
	if _, err := os.Stat("../../" + runbook); err != nil {
		c.t.Errorf("the runbook that the page names: %v", err)
	}
	writes := c.ready.Since(x.fault)
	i := slices.IndexFunc(writes, func(w record.Write) bool { return !w.Ready })
	if i < 0 {
		c.t.Fatal("the API server never showed the node NotReady")
	}
	notReady := writes[i]
	if !page.At.Before(notReady.At) {
		c.t.Errorf("the page came %s after the fault, NotReady after %s", page.At.Sub(x.fault), notReady.At.Sub(x.fault))
	}
	resolved := m.calls.Await(c.t, 10*time.Minute, "on-call resolved PLEGUnhealthy "+nodeName)
	lab.Report(c.t, "containerd stopped for 150 s: page with %s and its runbook after %s, NotReady in the API after %s, page resolved %s after the recovery",
		frozen, round(page.At.Sub(x.fault)), round(notReady.At.Sub(x.fault)), round(resolved.At.Sub(x.recovery)))
	c.t.Logf("events of the node:\n%s", c.Run("kubectl", "get", "events", "--all-namespaces", "--field-selector=involvedObject.kind=Node"))
}

// upgrade changes a value of the release: the kubelet's configuration is mounted.
// The incidents recorded before are still there. A rollback takes the value back.
func (c *cluster) upgrade(client *http.Client, m *monitoring) {
	c.t.Helper()
	before := c.pod()
	path, err := filepath.Abs(chart)
	c.must(err)
	began := time.Now()
	c.helmRun("upgrade", "plegd", path, "--namespace", namespace, "--reset-then-reuse-values", "--set", "kubeletConfig="+kubeletConfig, "--wait", "--timeout", "2m")
	took := time.Since(began)
	awaitReason(c.t, client, 30*time.Second, "")
	after := c.pod()
	if after == before {
		c.t.Errorf("the pod is still %s after the upgrade", before)
	}
	s := awaitSources(c.t, client)
	if from := s.Config.From["nodeStatusUpdateFrequency"]; from != kubeletConfig {
		c.t.Errorf("nodeStatusUpdateFrequency comes from %q after the upgrade, want %s: %v", from, kubeletConfig, s.Config.From)
	}
	if incidents := c.Run("kubectl", "-n", namespace, "exec", after, "--", "plegd", "incidents"); !strings.Contains(incidents, frozen) {
		c.t.Errorf("the incident from before the upgrade is gone:\n%s", incidents)
	}
	m.selects(c.t, time.Minute, `pleg_verdict{state="healthy"} == 1 and on (instance) plegd_build_info`)
	lab.Report(c.t, "helm upgrade with another value: %s until the new pod is ready", round(took))
	for _, p := range m.calls.All() {
		if a := p.Labels["alertname"]; p.At.After(began) && p.Status == "firing" && a != "PLEGUnhealthy" {
			c.t.Errorf("the upgrade made a page: %s %s", p.Receiver, a)
		}
	}
	c.helmRun("rollback", "plegd", "--namespace", namespace, "--wait", "--timeout", "2m")
	awaitReason(c.t, client, 30*time.Second, "")
	awaitSources(c.t, client)
	volumes := c.Run("kubectl", "-n", namespace, "get", "daemonset", "plegd", "-o", "jsonpath={.spec.template.spec.volumes[*].name}")
	if strings.Contains(volumes, "kubelet-config") {
		c.t.Errorf("the rollback left the volumes %s", volumes)
	}
}

// uninstall removes the release: nothing of it is left in the API, and no process on
// the node. The directory of the incidents stays, as documented.
func (c *cluster) uninstall() {
	c.t.Helper()
	c.helmRun("uninstall", "plegd", "--namespace", namespace, "--wait", "--timeout", "1m")
	names := strings.Fields(c.Run("kubectl", "api-resources", "--verbs=list", "-o", "name"))
	// The API server warns of these two: they are deprecated.
	names = slices.DeleteFunc(names, func(name string) bool { return name == "componentstatuses" || name == "endpoints" })
	kinds := strings.Join(names, ",")
	lab.Eventually(c.t, 30*time.Second, "nothing of the release is left", func() error {
		left := c.Run("kubectl", "get", kinds, "--all-namespaces", "--ignore-not-found", "-o", "name", "-l", "app.kubernetes.io/instance=plegd")
		if left = strings.TrimSpace(left); left != "" {
			return fmt.Errorf("left: %s", left)
		}
		return nil
	})
	client := c.node.Client(time.Second)
	var refused *net.OpError
	if _, err := lab.GetStatus(client, podURL); err == nil {
		c.t.Error("after helm uninstall something still serves at plegd's port")
	} else if !errors.As(err, &refused) || refused.Op != "dial" {
		c.t.Errorf("plegd's port after helm uninstall: %v", err)
	}
	if _, err := os.Stat(c.node.Path("/var/lib/plegd")); err != nil {
		c.t.Errorf("the incidents on the node: %v", err)
	}
}
