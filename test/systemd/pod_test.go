//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/test/lab"
)

// daemonSet is as much of deploy/kubernetes/base as the kubelet hands to the runtime. The
// strict test of the manifest is beside it; here it runs.
type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				HostNetwork bool `yaml:"hostNetwork"`
				HostPID     bool `yaml:"hostPID"`
				Containers  []struct {
					Args            []string `yaml:"args"`
					LivenessProbe   probe    `yaml:"livenessProbe"`
					ReadinessProbe  probe    `yaml:"readinessProbe"`
					SecurityContext struct {
						RunAsUser                int64 `yaml:"runAsUser"`
						RunAsGroup               int64 `yaml:"runAsGroup"`
						AllowPrivilegeEscalation bool  `yaml:"allowPrivilegeEscalation"`
						ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
						Capabilities             struct {
							Drop, Add []string
						} `yaml:"capabilities"`
					} `yaml:"securityContext"`
					VolumeMounts []struct {
						Name             string `yaml:"name"`
						MountPath        string `yaml:"mountPath"`
						ReadOnly         bool   `yaml:"readOnly"`
						MountPropagation string `yaml:"mountPropagation"`
					} `yaml:"volumeMounts"`
				} `yaml:"containers"`
				Volumes []struct {
					Name     string `yaml:"name"`
					HostPath struct {
						Path string `yaml:"path"`
						Type string `yaml:"type"`
					} `yaml:"hostPath"`
				} `yaml:"volumes"`
			} `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
	} `yaml:"httpGet"`
}

const podImage = "localhost/plegd:e2e"

// hostPod reads a manifest, and makes the directories that it wants made.
func (n *node) hostPod(manifest string) (pod lab.HostPod, liveness, readiness string) {
	n.t.Helper()
	var ds daemonSet
	if err := yaml.Unmarshal([]byte(manifest), &ds); err != nil {
		n.t.Fatal(err)
	}
	spec := ds.Spec.Template.Spec
	if len(spec.Containers) != 1 {
		n.t.Fatalf("the manifest has %d containers, want 1", len(spec.Containers))
	}
	c := spec.Containers[0]
	pod = lab.HostPod{
		Name: "plegd", Image: podImage, Args: c.Args,
		HostNetwork: spec.HostNetwork, HostPID: spec.HostPID,
		User: c.SecurityContext.RunAsUser, Group: c.SecurityContext.RunAsGroup,
		DropCapabilities: c.SecurityContext.Capabilities.Drop,
		AddCapabilities:  c.SecurityContext.Capabilities.Add,
		ReadOnlyRoot:     c.SecurityContext.ReadOnlyRootFilesystem,
		NoPrivileges:     !c.SecurityContext.AllowPrivilegeEscalation,
		MemoryLimit:      256 << 20,
	}
	for _, m := range c.VolumeMounts {
		for _, v := range spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			if v.HostPath.Type == "DirectoryOrCreate" {
				n.Run("mkdir", "-p", v.HostPath.Path)
			}
			pod.Mounts = append(pod.Mounts, lab.HostMount{
				Host: v.HostPath.Path, Container: m.MountPath, ReadOnly: m.ReadOnly, Follows: m.MountPropagation == "HostToContainer",
			})
		}
	}
	return pod, c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path
}

// newPodNode boots a node with a containerd that has plegd's image and two pods.
func newPodNode(t *testing.T, files ...lab.SystemdFile) (*node, *lab.CRI) {
	t.Helper()
	files = append(files, lab.SystemdFile{Path: "/root/plegd.tar", From: lab.PackageFile(t, "plegd.oci.tar")})
	n := bareNode(t, append(lab.ContainerdFiles(t), files...)...)
	r := n.StartContainerd()
	words := strings.Fields(n.ImportImage("/root/plegd.tar"))
	i := slices.IndexFunc(words, func(s string) bool { return strings.HasPrefix(s, "localhost/plegd:") })
	if i < 0 {
		t.Fatalf("no image is imported: %q", words)
	}
	n.Run("ctr", "--namespace", "k8s.io", "images", "tag", words[i], podImage)
	r.RunPods(2, 1)
	return n, r
}

// logsOf shows the log of a pod when the test has failed.
func logsOf(t *testing.T, log string) {
	if b, err := os.ReadFile(log); err == nil && t.Failed() {
		t.Logf("the log of plegd in its pod:\n%s", b)
	}
}

// seesWithin waits until a line of /metrics is there with the value 1.
func (n *node) seesWithin(limit time.Duration, line string) {
	n.t.Helper()
	lab.Eventually(n.t, limit, line+" is 1", func() error { return n.sees(line) })
}

func (n *node) sees(line string) error {
	code, body, err := n.Get("/metrics")
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("/metrics: %d %w", code, err)
	}
	if !strings.Contains(body, line+" 1\n") {
		return errors.New("active: " + strings.Join(active(body), " "))
	}
	return nil
}

// active lists the state sets that are 1, and the evidence that is not.
func active(metrics string) (out []string) {
	for line := range strings.Lines(metrics) {
		line = strings.TrimSpace(line)
		set := strings.HasPrefix(line, "pleg_verdict{") || strings.HasPrefix(line, "pleg_reason{") || strings.HasPrefix(line, "pleg_primary_reason{")
		if set && strings.HasSuffix(line, " 1") || strings.HasPrefix(line, "pleg_evidence_up{") && strings.HasSuffix(line, " 0") {
			out = append(out, line)
		}
	}
	return out
}

// TestPod runs the image in a real containerd as the DaemonSet says, and as the Helm chart
// does as it comes, without a runtime's name: it watches the containerd that runs it.
func TestPod(t *testing.T) {
	t.Parallel()
	program := os.Getenv("HELM")
	if program == "" {
		t.Fatal("HELM names no helm: make e2e-systemd builds it")
	}
	out, err := exec.Command(program, "template", "plegd", "../../deploy/helm/plegd", "--kube-version=1.36.0", "--show-only=templates/daemonset.yaml").Output()
	if err != nil {
		t.Fatalf("%s template: %v", program, err)
	}
	if strings.Contains(string(out), "--runtime-endpoint") {
		t.Error("the chart names a runtime by itself")
	}
	for name, manifest := range map[string]string{"DaemonSet": readFile(t, "deploy/kubernetes/base/daemonset.yaml"), "chart": string(out)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runPod(t, manifest)
		})
	}
}

func runPod(t *testing.T, manifest string) {
	n, r := newPodNode(t)
	pod, liveness, readiness := n.hostPod(manifest)
	_, log := r.RunHostPod(n.Systemd, pod)
	t.Cleanup(func() { logsOf(t, log) })
	answers := func(path string) error {
		code, body, err := n.Get(path)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%s: %d %s", path, code, body)
		}
		return err
	}
	n.await("readiness", func() error { return answers(readiness) })
	n.seesWithin(20*time.Second, `pleg_verdict{state="healthy"}`)
	for _, source := range []string{"dial", "queue", "process", "cgroup", "children", "node"} {
		n.seesWithin(15*time.Second, fmt.Sprintf("pleg_evidence_up{source=%q}", source))
	}
	_, body, err := n.Get("/metrics")
	for _, gauge := range []string{"pleg_socket_accept_queue_limit ", "pleg_runtime_process_open_fds ", "pleg_runtime_process_max_fds "} {
		if i := strings.Index(body, "\n"+gauge); i < 0 || strings.HasPrefix(body[i+1+len(gauge):], "0\n") {
			t.Errorf("%s is 0 or not there (%v)", gauge, err)
		}
	}

	// A fault of the runtime that runs plegd itself. A kubelet would restart a pod that
	// is not alive.
	n.Signal("containerd.service", syscall.SIGSTOP)
	n.seesWithin(20*time.Second, `pleg_primary_reason{reason="`+frozen+`"}`)
	n.seesWithin(60*time.Second, `pleg_verdict{state="unhealthy"}`)
	if err := answers(liveness); err != nil {
		t.Errorf("liveness while the node is NotReady: %v", err)
	}
	n.Signal("containerd.service", syscall.SIGCONT)
	n.seesWithin(20*time.Second, `pleg_verdict{state="healthy"}`)

	// A restart makes a new socket; plegd's pod continues.
	n.Run("systemctl", "restart", "containerd.service")
	restarted := time.Now()
	n.await("a relist has succeeded after the restart of containerd", func() error {
		s, err := lab.GetStatus(n.HTTP(), "http://127.0.0.1:20290")
		if err == nil && (s.LastSeen == nil || s.LastSeen.Before(restarted)) {
			err = fmt.Errorf("%s %s, last seen %v", s.State, s.Reason, s.LastSeen)
		}
		return err
	})
	n.seesWithin(20*time.Second, `pleg_verdict{state="healthy"}`)
}
