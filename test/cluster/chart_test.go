//go:build e2e

package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

const (
	chart     = "../../deploy/helm/plegd"
	namespace = "plegd"
	// podURL and serviceURL are where plegd's pod and a plegd beside it serve, to root over loopback.
	podURL     = "http://127.0.0.1:20290"
	serviceURL = "http://127.0.0.1:20291"
)

// helm is the path of helm.
func helm(t testing.TB) string {
	t.Helper()
	path := os.Getenv("HELM")
	if path == "" {
		t.Fatal("HELM names no helm: make e2e-cluster builds it")
	}
	return path
}

// importImage imports plegd's image and returns its tag.
func (c *cluster) importImage() (tag string) {
	c.t.Helper()
	c.containerd.ImportTar(lab.PackageFile(c.t, "plegd.oci.tar"))
	names := c.containerd.Images()
	for _, name := range names {
		if tag, ok := strings.CutPrefix(name, "localhost/plegd:"); ok {
			return tag
		}
	}
	c.t.Fatalf("no image is plegd: %q", names)
	return ""
}

// helmRun runs helm with a command on the release.
func (c *cluster) helmRun(args ...string) string {
	c.t.Helper()
	return c.Run(append([]string{helm(c.t)}, args...)...)
}

// install installs the chart as a newcomer would, and waits until it is ready.
func (c *cluster) install(tag string, more ...string) {
	c.t.Helper()
	path, err := filepath.Abs(chart)
	c.must(err)
	c.helmRun(append([]string{"install", "plegd", path, "--namespace", namespace, "--create-namespace", "--set", "image.tag=" + tag, "--wait", "--timeout", "2m"}, more...)...)
}

// pod returns the name of plegd's pod.
func (c *cluster) pod() string {
	c.t.Helper()
	return strings.TrimSpace(c.Run("kubectl", "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name=plegd", "-o", "jsonpath={.items[*].metadata.name}"))
}

// awaitReason waits until plegd's primary reason is this one; "": it is healthy.
func awaitReason(t testing.TB, client *http.Client, limit time.Duration, reason string) time.Duration {
	t.Helper()
	return lab.Eventually(t, limit, fmt.Sprintf("plegd's reason is %q", reason), func() error {
		s, err := lab.GetStatus(client, podURL)
		if err == nil && (s.Reason != reason || reason == "" && s.State != "healthy") {
			err = fmt.Errorf("it says %s %s", s.State, s.Reason)
		}
		return err
	})
}

// awaitSources waits until every source of evidence is up.
func awaitSources(t testing.TB, client *http.Client) (s lab.Status) {
	t.Helper()
	lab.AwaitSources(t, 30*time.Second, func() (_ lab.Status, err error) {
		s, err = lab.GetStatus(client, podURL)
		return s, err
	}, true, "queue", "process", "children", "cgroup", "node", "kubelet", "kubelet_process")
	for name, source := range s.Evidence.Sources {
		if !source.Up {
			t.Errorf("source %s is not up: %s", name, source.Err)
		}
	}
	return s
}

// startService starts plegd as its unit does, beside the pod: with other paths.
func (c *cluster) startService() {
	c.t.Helper()
	c.must(os.MkdirAll(c.node.Path("/var/lib/plegd-service"), 0o755))
	c.Start("plegd-service", lab.Binary(c.t), "run", "--state-dir=/var/lib/plegd-service",
		"--control-socket=/run/plegd-service.sock", "--web.listen-address="+strings.TrimPrefix(serviceURL, "http://"))
}
