//go:build e2e

package cluster

import (
	"encoding/json"
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
	// podURL and serviceURL are where plegd's pod and a plegd beside it serve.
	podURL     = "http://" + nodeAddress + ":20290"
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
	return c.run(append([]string{helm(c.t)}, args...)...)
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
	return strings.TrimSpace(c.run("kubectl", "-n", namespace, "get", "pods", "-l", "app.kubernetes.io/name=plegd", "-o", "jsonpath={.items[*].metadata.name}"))
}

// status is as much of /api/v1/status as the tests look at.
type status struct {
	State    string   `json:"state"`
	Reason   string   `json:"reason"`
	NotReady *float64 `json:"not_ready_in_seconds"`
	Facts    struct {
		Config struct {
			From map[string]string `json:"from"`
		} `json:"config"`
		Endpoint struct {
			Path string `json:"path"`
		} `json:"endpoint"`
		Evidence struct {
			Sources map[string]struct {
				Up  bool   `json:"up"`
				Err string `json:"error"`
			} `json:"sources"`
		} `json:"evidence"`
	} `json:"facts"`
}

func getStatus(client *http.Client, url string) (*status, error) {
	resp, err := client.Get(url + "/api/v1/status")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("/api/v1/status: %s", resp.Status)
	}
	var s status
	return &s, json.NewDecoder(resp.Body).Decode(&s)
}

// awaitReason waits until plegd's primary reason is this one; "": it is healthy.
func awaitReason(t testing.TB, client *http.Client, limit time.Duration, reason string) time.Duration {
	t.Helper()
	return lab.Eventually(t, limit, fmt.Sprintf("plegd's reason is %q", reason), func() error {
		s, err := getStatus(client, podURL)
		if err == nil && (s.Reason != reason || reason == "" && s.State != "healthy") {
			err = fmt.Errorf("it says %s %s", s.State, s.Reason)
		}
		return err
	})
}

// awaitSources waits until every source of evidence is up.
func awaitSources(t testing.TB, client *http.Client) *status {
	t.Helper()
	var s *status
	lab.Eventually(t, 30*time.Second, "every source of evidence is up", func() (err error) {
		if s, err = getStatus(client, podURL); err != nil {
			return err
		}
		sources := s.Facts.Evidence.Sources
		for _, name := range []string{"queue", "connections", "process", "children", "cgroup", "node", "kubelet", "kubelet_process"} {
			if _, ok := sources[name]; !ok {
				return fmt.Errorf("source %s has nothing to say", name)
			}
		}
		for name, source := range sources {
			if !source.Up {
				return fmt.Errorf("source %s is not up: %s", name, source.Err)
			}
		}
		return nil
	})
	return s
}

// startService starts plegd as its unit does, beside the pod: with other paths.
func (c *cluster) startService() {
	c.t.Helper()
	c.must(os.MkdirAll(c.node.Path("/var/lib/plegd-service"), 0o755))
	c.start("plegd-service", lab.Binary(c.t), "run", "--state-dir=/var/lib/plegd-service",
		"--control-socket=/run/plegd-service.sock", "--web.listen-address="+strings.TrimPrefix(serviceURL, "http://"))
}
