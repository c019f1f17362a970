//go:build e2e

package kubernetes

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	// APIURL is where the API server listens on its node, and on those that it is forwarded to.
	APIURL = "https://" + apiAddress
	// APIPort is its port.
	APIPort    = "6443"
	apiAddress = "127.0.0.1:" + APIPort
	// NodeAddress is the node's only address besides the loopback's.
	NodeAddress = "192.0.2.1"

	adminToken = "token-admin"
	// MetricsToken is the token of a client that may read a kubelet's metrics.
	MetricsToken = "token-metrics"
	// PrometheusToken is the token of the user prometheus, without any rights yet.
	PrometheusToken = "token-prometheus"
)

const tokens = adminToken + `,admin,1,"system:masters"
token-controllers,system:kube-controller-manager,2
token-scheduler,system:kube-scheduler,3
` + PrometheusToken + `,prometheus,4
` + MetricsToken + `,metrics,5,"system:masters"
`

// ControlPlane is etcd, API server, controllers and scheduler of a Kubernetes, unmodified, on a node of the lab's.
type ControlPlane struct {
	t             testing.TB
	node          *lab.Node
	dir, programs string
	http          *http.Client
	ca            *x509.Certificate // of the clients that have a certificate
	key           *rsa.PrivateKey   // of the CA and the tokens of service accounts
}

// Kubernetes builds programs of a Kubernetes version, once, as kubernetes.sh says, and returns their path.
func Kubernetes(t testing.TB, what, version string) string {
	t.Helper()
	cmd := exec.Command("bash", "../lab/kubernetes.sh", what, version)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build the %s of Kubernetes %s: %v", what, version, err)
	}
	return strings.TrimSpace(string(out))
}

// NewControlPlane starts one on a node. The kubelets of these nodes may join it.
func NewControlPlane(t testing.TB, n *lab.Node, version string, nodes ...string) *ControlPlane {
	t.Helper()
	lab.RequirePrograms(t, "etcd", "ip")
	c := &ControlPlane{t: t, node: n, dir: lab.Dir(t), programs: Kubernetes(t, "cluster", version), http: n.Client(0)}
	c.Run("ip", "addr", "add", NodeAddress+"/32", "dev", "lo")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	lab.Must(t, err)
	c.key = key
	c.ca = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	ca := c.write("clients.crt", c.sign(c.ca))
	keys := c.write("accounts.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	users := bytes.NewBufferString(tokens)
	for i, node := range nodes {
		fmt.Fprintf(users, "token-%s,system:node:%s,%d,\"system:nodes\"\n", node, node, 100+i)
	}
	c.Start("etcd", lab.LookPath(t, "etcd"), "--data-dir=/var/lib/etcd", "--unsafe-no-fsync",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
		"--initial-cluster=default=http://127.0.0.1:2380")
	c.Start("kube-apiserver", c.program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=127.0.0.1", "--secure-port="+APIPort, "--advertise-address="+NodeAddress, "--cert-dir="+c.Path("apiserver"),
		"--token-auth-file="+c.write("tokens.csv", users.Bytes()), "--client-ca-file="+ca, "--enable-bootstrap-token-auth", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--service-cluster-ip-range=10.96.0.0/24", "--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+keys, "--service-account-signing-key-file="+keys)
	lab.Eventually(t, 2*time.Minute, "the API server is ready", func() error {
		b, err := c.Request(http.MethodGet, "/readyz")
		if err == nil && string(b) != "ok" {
			err = errors.New(string(b))
		}
		return err
	})
	component := func(name, user string, flags ...string) {
		config := c.Kubeconfig(user)
		c.Start(name, append([]string{
			c.program(name), "--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--bind-address=127.0.0.1", "--leader-elect=false",
		}, flags...)...)
	}
	lab.Must(t, os.Mkdir(c.Path("plugins"), 0o755))
	component("kube-controller-manager", "controllers", "--flex-volume-plugin-dir="+c.Path("plugins"), "--use-service-account-credentials=true",
		"--service-account-private-key-file="+keys, "--root-ca-file="+c.Path("apiserver/apiserver.crt"))
	component("kube-scheduler", "scheduler")
	return c
}

// Path is the path of a file of the control plane's.
func (c *ControlPlane) Path(name string) string { return filepath.Join(c.dir, name) }

func (c *ControlPlane) program(name string) string { return filepath.Join(c.programs, name) }

func (c *ControlPlane) write(name string, b []byte) string {
	c.t.Helper()
	lab.Must(c.t, os.WriteFile(c.Path(name), b, 0o600))
	return c.Path(name)
}

// Start starts a program on the node.
func (c *ControlPlane) Start(name string, argv ...string) *lab.NodeProcess {
	c.t.Helper()
	log := c.Path(name + ".log")
	c.t.Cleanup(func() { lab.KeepLog(c.t, log, name) })
	return c.node.Start(log, argv...)
}

// Run runs a command on the node, which must succeed, as an administrator of the cluster, and returns its output.
func (c *ControlPlane) Run(argv ...string) string {
	c.t.Helper()
	if argv[0] == "kubectl" {
		argv[0] = c.program("kubectl")
	} else if !filepath.IsAbs(argv[0]) {
		argv[0] = lab.LookPath(c.t, argv[0])
	}
	out, status := c.node.Run(append(os.Environ(), "HOME="+c.dir, "KUBECONFIG="+c.Kubeconfig("admin")), argv...)
	if status != 0 {
		c.t.Fatalf("%s: exit status %d\n%s", strings.Join(argv, " "), status, out)
	}
	return out
}

// sign returns a certificate of the CA in PEM, for its key.
func (c *ControlPlane) sign(template *x509.Certificate) []byte {
	c.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, c.ca, c.key.Public(), c.key)
	lab.Must(c.t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// NodeCertificate returns the credentials of a node's kubelet that has a client certificate, valid until notAfter.
func (c *ControlPlane) NodeCertificate(node string, notAfter time.Time) map[string]any {
	c.t.Helper()
	certificate := c.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Minute), NotAfter: notAfter,
		Subject:  pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return map[string]any{"client-certificate": c.write(node+".crt", certificate), "client-key": c.Path("accounts.key")}
}

// Kubeconfig writes the kubeconfig of a user that has a token.
func (c *ControlPlane) Kubeconfig(user string) (path string) {
	c.t.Helper()
	return c.KubeconfigWith(user, map[string]any{"token": "token-" + user})
}

// KubeconfigWith writes the kubeconfig of a user with credentials.
func (c *ControlPlane) KubeconfigWith(user string, credentials map[string]any) (path string) {
	c.t.Helper()
	config, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "lab",
		"clusters": []any{map[string]any{"name": "lab", "cluster": map[string]any{
			"server": APIURL, "certificate-authority": c.Path("apiserver/apiserver.crt"),
		}}},
		"users":    []any{map[string]any{"name": "lab", "user": credentials}},
		"contexts": []any{map[string]any{"name": "lab", "context": map[string]any{"cluster": "lab", "user": "lab"}}},
	})
	lab.Must(c.t, err)
	return c.write(user+".kubeconfig", config)
}

// ForwardTo has the API server listen on another node too. cut closes the connections to it so far.
func (c *ControlPlane) ForwardTo(n *lab.Node) (cut func()) {
	c.t.Helper()
	l := n.Listen(apiAddress)
	c.t.Cleanup(func() { lab.Close(l) })
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, in)
			mu.Unlock()
			go c.forward(in)
		}
	}()
	return func() {
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			_ = conn.Close() // or closed already
		}
		conns = nil
	}
}

func (c *ControlPlane) forward(in net.Conn) {
	defer lab.Close(in)
	var out net.Conn
	if err := c.node.InNetwork(func() (err error) {
		out, err = net.DialTimeout("tcp", apiAddress, lab.DialLimit)
		return err
	}); err != nil {
		return
	}
	defer lab.Close(out)
	go func() {
		_, _ = io.Copy(out, in)
		lab.Close(out)
	}()
	_, _ = io.Copy(in, out)
}

// open sends a request to the API server as its administrator.
func (c *ControlPlane) open(method, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(c.t.Context(), method, APIURL+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		lab.Close(resp.Body)
		return nil, fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	return resp.Body, nil
}

// Request sends a request to the API server as its administrator.
func (c *ControlPlane) Request(method, path string) ([]byte, error) {
	body, err := c.open(method, path)
	if err != nil {
		return nil, err
	}
	defer lab.Close(body)
	return io.ReadAll(body)
}
