//go:build e2e

package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	kubernetesVersion = "1.36"
	nodeName          = "node1"
	// nodeAddress is the node's only address besides the loopback's.
	nodeAddress = "192.0.2.1"
	apiURL      = "https://127.0.0.1:6443"
	startLimit  = 2 * time.Minute
)

// The clients of the API server, by bearer token.
const (
	adminToken      = "token-admin"
	prometheusToken = "token-prometheus"
)

const tokens = adminToken + `,admin,1,"system:masters"
token-node,system:node:` + nodeName + `,2,"system:nodes"
token-controllers,system:kube-controller-manager,3
token-scheduler,system:kube-scheduler,4
` + prometheusToken + `,prometheus,5
`

// cluster is a Kubernetes of one node.
type cluster struct {
	t          testing.TB
	dir        string
	programs   string // the directory of Kubernetes' own
	containerd *lab.Containerd
	node       *lab.Node
	kubelet    *lab.NodeProcess
	api        *http.Client
}

// newCluster starts one and waits until its node is Ready.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	lab.RequirePrograms(t, "etcd", "ip", "prometheus", "prometheus-alertmanager", "vmagent")
	c := &cluster{t: t, dir: lab.Dir(t), programs: kubernetesPrograms(t)}
	c.containerd = lab.NewContainerd(t, lab.ContainerdOptions{Node: true, AtDefault: true})
	c.node = c.containerd.Node()
	c.api = c.node.Client(0)
	c.run("ip", "addr", "add", nodeAddress+"/32", "dev", "lo")
	for _, dir := range []string{"certs", "plugins"} {
		c.must(os.Mkdir(c.path(dir), 0o755))
	}
	c.must(os.WriteFile(c.path("tokens.csv"), []byte(tokens), 0o600))
	c.writeKeys()
	for name, token := range map[string]string{"admin": adminToken, "node": "token-node", "controllers": "token-controllers", "scheduler": "token-scheduler"} {
		c.writeKubeconfig(name, token)
	}
	began := time.Now()
	c.startControlPlane()
	c.configureKubelet()
	c.startKubelet()
	lab.Eventually(t, startLimit, "the node is Ready", func() error {
		n, err := c.getNode()
		if err == nil && n.ready().Status != "True" {
			err = fmt.Errorf("it is not: %+v\n%s", n.ready(), lab.Tail(c.path("kubelet.log"), 5))
		}
		return err
	})
	lab.Report(t, "Kubernetes %s: the node is Ready %s after the start of etcd", kubernetesVersion, time.Since(began).Round(100*time.Millisecond))
	return c
}

// kubernetesPrograms builds Kubernetes, once, and returns where its programs are.
func kubernetesPrograms(t testing.TB) string {
	t.Helper()
	cmd := exec.Command("bash", "../lab/kubernetes.sh", "cluster", kubernetesVersion)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build Kubernetes %s: %v", kubernetesVersion, err)
	}
	return strings.TrimSpace(string(out))
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) startControlPlane() {
	c.start("etcd", lab.LookPath(c.t, "etcd"), "--data-dir=/var/lib/etcd", "--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380")
	c.start("kube-apiserver", c.program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=127.0.0.1", "--secure-port=6443", "--advertise-address="+nodeAddress, "--cert-dir="+c.path("apiserver"),
		"--token-auth-file="+c.path("tokens.csv"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--service-cluster-ip-range=10.96.0.0/24", "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.path("accounts.key"), "--service-account-signing-key-file="+c.path("accounts.key"))
	lab.Eventually(c.t, startLimit, "the API server is ready", func() error {
		b, err := c.request(http.MethodGet, "/readyz")
		if err == nil && string(b) != "ok" {
			err = errors.New(string(b))
		}
		return err
	})
	common := func(name string) []string {
		config := c.path(name + ".kubeconfig")
		return []string{
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--bind-address=127.0.0.1", "--leader-elect=false",
		}
	}
	c.start("kube-controller-manager", append([]string{
		c.program("kube-controller-manager"), "--flex-volume-plugin-dir=" + c.path("plugins"),
		"--use-service-account-credentials=true", "--service-account-private-key-file=" + c.path("accounts.key"),
		"--root-ca-file=" + c.path("apiserver/apiserver.crt"),
	}, common("controllers")...)...)
	c.start("kube-scheduler", append([]string{c.program("kube-scheduler")}, common("scheduler")...)...)
}

// kubeletConfig is where a kubelet's configuration is on most nodes.
const kubeletConfig = "/var/lib/kubelet/config.yaml"

func (c *cluster) configureKubelet() {
	config, err := json.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"failCgroupV1":   false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failSwapOn":                  false,
		"evictionHard":                map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"nodeStatusUpdateFrequency": "10s", "makeIPTablesUtilChains": false, "resolvConf": "", "volumePluginDir": c.path("plugins"),
		"containerRuntimeEndpoint": "unix://" + lab.DefaultSocket,
	})
	c.must(err)
	c.must(os.MkdirAll(c.node.Path(filepath.Dir(kubeletConfig)), 0o755))
	c.must(os.WriteFile(c.node.Path(kubeletConfig), config, 0o644))
}

// startKubelet starts the kubelet, for the first time or after its end.
func (c *cluster) startKubelet() {
	c.t.Helper()
	c.kubelet = c.start("kubelet", c.program("kubelet"), "--config="+kubeletConfig, "--kubeconfig="+c.path("node.kubeconfig"),
		"--root-dir=/var/lib/kubelet", "--cert-dir="+c.path("certs"), "--hostname-override="+nodeName, "--node-ip="+nodeAddress, "--v=2")
}

func (c *cluster) program(name string) string { return filepath.Join(c.programs, name) }

// start starts a program on the node.
func (c *cluster) start(name string, argv ...string) *lab.NodeProcess {
	c.t.Helper()
	log := c.path(name + ".log")
	c.t.Cleanup(func() { lab.KeepLog(c.t, log, name) })
	return c.node.Start(log, argv...)
}

// run runs a command on the node, which must succeed, and returns its output. The
// environment is that of a cluster's administrator.
func (c *cluster) run(argv ...string) string {
	c.t.Helper()
	if path := c.program(argv[0]); argv[0] == "kubectl" {
		argv[0] = path
	} else if !filepath.IsAbs(argv[0]) {
		argv[0] = lab.LookPath(c.t, argv[0])
	}
	env := append(os.Environ(), "KUBECONFIG="+c.path("admin.kubeconfig"), "HOME="+c.dir)
	out, status := c.node.Run(env, argv...)
	if status != 0 {
		c.t.Fatalf("%s: exit status %d\n%s", strings.Join(argv, " "), status, out)
	}
	return out
}

// writeKeys writes the key that signs service accounts' tokens.
func (c *cluster) writeKeys() {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	c.must(err)
	b := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	c.must(os.WriteFile(c.path("accounts.key"), b, 0o600))
}

func (c *cluster) writeKubeconfig(name, token string) {
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "lab",
		"clusters": []any{map[string]any{"name": "lab", "cluster": map[string]any{
			"server": apiURL, "certificate-authority": c.path("apiserver/apiserver.crt"),
		}}},
		"users":    []any{map[string]any{"name": "lab", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "lab", "context": map[string]any{"cluster": "lab", "user": "lab"}}},
	})
	c.must(err)
	c.must(os.WriteFile(c.path(name+".kubeconfig"), config, 0o600))
}

// open sends a request to the API server as its administrator.
func (c *cluster) open(method, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, apiURL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := c.api.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp.Body, nil
}

func (c *cluster) request(method, path string) ([]byte, error) {
	body, err := c.open(method, path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return io.ReadAll(body)
}
