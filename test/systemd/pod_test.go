//go:build e2e

package systemd

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
	"github.com/plegd/plegd/test/lab/systemd"
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
					Env             []runtime.EnvVar
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

const podImage = "localhost/plegd:e2e"

// hostPod reads a manifest, and makes the directories that it wants made.
func (n *node) hostPod(manifest string) (pod runtime.HostPod) {
	n.t.Helper()
	var ds daemonSet
	lab.Must(n.t, yaml.Unmarshal([]byte(manifest), &ds))
	spec := ds.Spec.Template.Spec
	if len(spec.Containers) != 1 {
		n.t.Fatalf("the manifest has %d containers, want 1", len(spec.Containers))
	}
	c := spec.Containers[0]
	pod = runtime.HostPod{
		Name: "plegd", Image: podImage, Args: c.Args, Env: c.Env,
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
			switch {
			case v.HostPath.Path == "": // of the pod alone, and as empty as a Secret or token that the kubelet has yet to write
				v.HostPath.Path = "/var/lib/kubelet-volumes/" + v.Name
				n.Run("mkdir", "-p", v.HostPath.Path)
			case v.HostPath.Type == "DirectoryOrCreate":
				n.Run("mkdir", "-p", v.HostPath.Path)
			}
			pod.Mounts = append(pod.Mounts, runtime.HostMount{
				Host: v.HostPath.Path, Container: m.MountPath, ReadOnly: m.ReadOnly, Follows: m.MountPropagation == "HostToContainer",
			})
		}
	}
	return pod
}

// newPodNode boots a node with a containerd that has plegd's image and two pods.
func newPodNode(t *testing.T, files ...systemd.File) (*node, *runtime.CRI) {
	t.Helper()
	files = append(files, systemd.File{Path: "/root/plegd.tar", From: lab.PackageFile(t, "plegd.oci.tar")})
	n := bareNode(t, append(systemd.ContainerdFiles(t), files...)...)
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

// sees returns an error unless a line of /metrics is there with the value 1.
func (n *node) sees(line string) error {
	code, body, err := n.Get("/metrics")
	if err == nil && (code != http.StatusOK || !strings.Contains(body, line+" 1\n")) {
		err = fmt.Errorf("/metrics: %d without %s", code, line)
	}
	return err
}
