//go:build e2e

package systemd

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
	"github.com/plegd/plegd/test/lab/systemd"
)

// chartValues are values of the chart under each of which the pod must work on a node.
var chartValues = map[string][]string{
	"the defaults":            nil,
	"a named runtime":         {"runtime.name=containerd"},
	"an endpoint":             {"runtime.endpoint=/run/containerd/containerd.sock"},
	"another control socket":  {"controlDir=/var/lib/plegd-control"},
	"a control socket in run": {"controlDir=/run/plegd-other", "runtime.name=containerd"},
	"an IPv6 address":         {"web.nodeAddressOnly=true"},
	"another port":            {"web.port=20999"},
	"a password":              {"web.auth.enabled=true", "web.auth.config.basic_auth_users.prometheus=$2y$10$abc"},
	"the binary on the node":  {"installBinary=/opt/plegd/bin"},
	"no metrics":              {"kubeletMetrics.enabled=false", "stateDir=/var/lib/plegd-other"},
}

// nodeFault is a fault of containerd, its end, and its reason.
type nodeFault struct {
	begin, end func(n *node)
	reason     string
}

var chartFaults = []nodeFault{
	{
		begin:  func(n *node) { n.Signal("containerd.service", syscall.SIGSTOP) },
		end:    func(n *node) { n.Signal("containerd.service", syscall.SIGCONT) },
		reason: "RuntimeFrozen",
	},
	{
		begin:  func(n *node) { n.limitFiles("8") },
		end:    func(n *node) { n.limitFiles("$(prlimit --pid=$0 --nofile --output=HARD --noheadings | tr -d ' ')") },
		reason: "AcceptFDExhausted",
	},
	{
		begin:  func(n *node) { n.Run("mv", containerdSocket, containerdSocket+".away") },
		end:    func(n *node) { n.Run("mv", containerdSocket+".away", containerdSocket) },
		reason: "RuntimeSocketUnlinked",
	},
}

// webConfig is the content of the Secret.
const webConfig = "{basic_auth_users: {prometheus: $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi}}"

const containerdSocket = "/run/containerd/containerd.sock"

// limitFiles sets the soft limit of containerd's open files; a shell expands it, with $0 as the pid.
func (n *node) limitFiles(soft string) {
	n.t.Helper()
	n.Run("sh", "-c", "prlimit --pid=$0 --nofile="+soft+":", n.Property("containerd.service", "MainPID"))
}

// TestChartPod runs the chart's pod on a real containerd under each set of values: it names three
// faults as the service does.
func TestChartPod(t *testing.T) {
	t.Parallel()
	n, r := newPodNode(t, systemd.File{Path: "/usr/local/bin/plegd", From: lab.Binary(t), Mode: 0o755},
		systemd.File{Path: "/opt/cni/bin/loopback", Text: podPlugin, Mode: 0o755})
	for name, values := range chartValues {
		pod := n.hostPod(chartDaemonSet(t, values))
		n.Run("sh", "-c", "mkdir -p /var/lib/kubelet-volumes/web && echo '"+webConfig+"' >/var/lib/kubelet-volumes/web/web.yml")
		if err := n.tryChart(r, pod); err != nil {
			t.Errorf("with %s: %v", name, err)
		}
	}
}

// chartDaemonSet renders the chart's DaemonSet.
func chartDaemonSet(t *testing.T, values []string) string {
	t.Helper()
	args := []string{"template", "plegd", "../../deploy/helm/plegd", "--kube-version=1.36.0", "--show-only=templates/daemonset.yaml"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, err := exec.Command(os.Getenv("HELM"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("HELM=%s: %v\n%s", os.Getenv("HELM"), err, out)
	}
	return string(out)
}

// tryChart runs a pod of the chart beside each fault, and returns the first one that it misses.
func (n *node) tryChart(r *runtime.CRI, pod runtime.HostPod) error {
	n.t.Helper()
	i := slices.IndexFunc(pod.Mounts, func(m runtime.HostMount) bool { return m.Container == "/run/plegd" || m.Container == "/control" })
	socket := pod.Mounts[i].Host + "/plegd.sock"
	n.Run("sh", "-c", "rm -rf /var/lib/plegd/*")
	c, log := r.RunHostPod(n.Systemd, pod)
	defer func() {
		logsOf(n.t, log)
		c.Pod.Stop()
		c.Pod.Remove()
		_ = os.Remove(log)
	}()
	if err := n.awaitReason(socket, ""); err != nil {
		return err
	}
	for _, fault := range chartFaults {
		fault.begin(n)
		err := n.awaitReason(socket, fault.reason)
		fault.end(n)
		if err != nil {
			return err
		}
		if err := n.awaitReason(socket, ""); err != nil {
			return fmt.Errorf("after %s: %w", fault.reason, err)
		}
	}
	return nil
}

// awaitReason waits until plegd names a reason; "": until all is well.
func (n *node) awaitReason(socket, reason string) error {
	n.t.Helper()
	last := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		out, _ := n.TryRun("plegd", "status", "-o", "json", "--control-socket="+socket)
		var s lab.Status
		if err := facts.Unmarshal([]byte(out), &s); err != nil {
			last = out
			continue
		}
		last = fmt.Sprintf("%s %q", s.State, s.Reason)
		if s.Reason == reason && (reason != "" || s.State == "healthy") {
			return nil
		}
	}
	return fmt.Errorf("not %q but %s", reason, last)
}

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
	for i, arg := range pod.Args {
		pod.Args[i] = strings.ReplaceAll(arg, "$(HOST_IP)", "::1") // as the kubelet
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

var primaryReason = regexp.MustCompile(`(?m)^pleg_primary_reason\{.*`)

// isHealthy returns an error, with the primary reason, unless /metrics has a healthy verdict.
func (n *node) isHealthy() error {
	code, body, err := n.Get("/metrics")
	if err == nil && (code != http.StatusOK || !strings.Contains(body, "pleg_verdict{state=\"healthy\"} 1\n")) {
		err = fmt.Errorf("/metrics: %d, %s", code, primaryReason.FindString(body))
	}
	return err
}
