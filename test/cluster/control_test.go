//go:build e2e

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/kubernetes"
	"github.com/plegd/plegd/test/lab/runtime"
)

const (
	kubernetesVersion = "1.36"
	nodeName          = "node1"
	startLimit        = 2 * time.Minute
	// kubeletConfig is where a kubelet's configuration is on most nodes.
	kubeletConfig = "/var/lib/kubelet/config.yaml"
)

// cluster is a Kubernetes of one node.
type cluster struct {
	*kubernetes.ControlPlane
	t          testing.TB
	containerd *runtime.Containerd
	node       *lab.Node
	kubelet    *lab.NodeProcess
	ready      *kubernetes.Conditions
}

// newCluster starts one and waits until its node is Ready.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	lab.RequirePrograms(t, "prometheus", "prometheus-alertmanager", "vmagent")
	c := &cluster{t: t, containerd: runtime.NewContainerd(t, runtime.ContainerdOptions{Node: true, AtDefault: true})}
	c.node = c.containerd.Node()
	c.ControlPlane = kubernetes.NewControlPlane(t, c.node, kubernetesVersion, nodeName)
	c.ready = c.WatchReady(t, nodeName)
	c.configureKubelet()
	c.startKubelet()
	took := lab.Eventually(t, startLimit, "the node is Ready", func() error {
		if last := c.ready.Last(); !last.Ready {
			return fmt.Errorf("it is not: %+v\n%s", last, lab.Tail(c.Path("kubelet.log"), 5))
		}
		return nil
	})
	lab.Report(t, "Kubernetes %s: the node is Ready %s after the start of the kubelet", kubernetesVersion, round(took))
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	lab.Must(c.t, err)
}

func (c *cluster) isReady() bool { return c.ready.Last().Ready }

// apply gives the cluster an object.
func (c *cluster) apply(name, text string) {
	c.t.Helper()
	c.must(os.WriteFile(c.Path(name), []byte(text), 0o644))
	c.Run("kubectl", "apply", "-f", c.Path(name))
}

func (c *cluster) configureKubelet() {
	config, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"failCgroupV1":   false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failSwapOn":                  false,
		"evictionHard":                map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"nodeStatusUpdateFrequency": "10s", "makeIPTablesUtilChains": false, "resolvConf": "", "volumePluginDir": c.Path("plugins"),
		"containerRuntimeEndpoint": "unix://" + runtime.DefaultSocket,
	})
	c.must(err)
	c.must(os.MkdirAll(c.node.Path(filepath.Dir(kubeletConfig)), 0o755))
	c.must(os.WriteFile(c.node.Path(kubeletConfig), config, 0o644))
}

// startKubelet starts the kubelet, for the first time or after its end.
func (c *cluster) startKubelet() {
	c.t.Helper()
	c.kubelet = c.Start("kubelet", kubernetes.Kubernetes(c.t, "cluster", kubernetesVersion)+"/kubelet", "--config="+kubeletConfig,
		"--kubeconfig="+c.Kubeconfig(nodeName), "--root-dir=/var/lib/kubelet", "--cert-dir="+c.Path("certs"), "--hostname-override="+nodeName,
		"--node-ip="+kubernetes.NodeAddress, "--v=2")
}
