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

// daemonSet is what the kubelet would make of deploy/kubernetes/base. The strict
// test of the manifest is beside it; here it runs.
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

// hostPod reads a manifest, and makes the directories that it wants made.
func hostPod(t *testing.T, s *lab.Systemd, manifest string) (pod lab.HostPod, liveness, readiness string) {
	t.Helper()
	var ds daemonSet
	if err := yaml.Unmarshal([]byte(manifest), &ds); err != nil {
		t.Fatal(err)
	}
	spec := ds.Spec.Template.Spec
	if len(spec.Containers) != 1 {
		t.Fatalf("the manifest has %d containers, want 1", len(spec.Containers))
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
				s.Run("mkdir", "-p", v.HostPath.Path)
			}
			pod.Mounts = append(pod.Mounts, lab.HostMount{
				Host: v.HostPath.Path, Container: m.MountPath, ReadOnly: m.ReadOnly, Follows: m.MountPropagation == "HostToContainer",
			})
		}
	}
	return pod, c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path
}

const podImage = "localhost/plegd:e2e"

// TestPod imports the image into a real containerd and runs it there as the
// DaemonSet specifies: it watches the containerd that runs it. Its privileges are the
// subject of TestPodPrivileges.
func TestPod(t *testing.T) {
	t.Parallel()
	if err := runPod(t, readDeploy(t, "kubernetes/base/daemonset.yaml")); err != nil {
		t.Error(err)
	}
}

// TestChartPod runs the pod of the Helm chart as it comes: nobody tells it which runtime the
// node has.
func TestChartPod(t *testing.T) {
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
		t.Fatal("the chart names a runtime by itself")
	}
	if err := runPod(t, string(out)); err != nil {
		t.Error(err)
	}
}

// runPod returns the first error of plegd in a pod.
func runPod(t *testing.T, manifest string) error {
	t.Helper()
	s := bareSystem(t, append(lab.ContainerdFiles(t), lab.SystemdFile{Path: "/root/plegd.tar", From: lab.PackageFile(t, "plegd.oci.tar")})...)
	r := s.StartContainerd()
	out := s.ImportImage("/root/plegd.tar")
	name, ok := imported(out)
	if !ok {
		t.Fatalf("import the image: %s", out)
	}
	s.Run("ctr", "--namespace", "k8s.io", "images", "tag", name, podImage)
	r.RunPods(2, 1)
	pod, liveness, readiness := hostPod(t, s, manifest)
	_, log := r.RunHostPod(s, pod)
	t.Cleanup(func() {
		if b, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("the log of plegd in its pod:\n%s", b)
		}
	})
	answers := func(path string) error {
		code, body, err := s.Get(path)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	}
	sees := func(limit time.Duration, want string) error {
		return within(limit, func() error {
			code, body, err := s.Get("/metrics")
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("/metrics: %d %w", code, err)
			}
			if !strings.Contains(body, want+" 1\n") {
				return fmt.Errorf("/metrics has no %s 1; active: %s", want, strings.Join(active(body), " "))
			}
			return nil
		})
	}
	if err := within(20*time.Second, func() error { return answers(readiness) }); err != nil {
		return fmt.Errorf("readiness: %w", err)
	}
	if err := sees(20*time.Second, `pleg_verdict{state="healthy"}`); err != nil {
		return err
	}
	// The evidence: what plegd needs of the node it can read; what it may not
	// read shows.
	for _, source := range []string{"dial", "queue", "process", "cgroup", "connections", "children", "node"} {
		if err := sees(15*time.Second, fmt.Sprintf("pleg_evidence_up{source=%q}", source)); err != nil {
			return fmt.Errorf("source %s: %w", source, err)
		}
	}
	_, body, err := s.Get("/metrics")
	if err != nil {
		return err
	}
	for _, gauge := range []string{"pleg_socket_accept_queue_limit ", "pleg_runtime_process_open_fds ", "pleg_runtime_process_max_fds "} {
		if i := strings.Index(body, "\n"+gauge); i < 0 || strings.HasPrefix(body[i+1+len(gauge):], "0\n") {
			return fmt.Errorf("%s is 0 or not there", gauge)
		}
	}

	// A fault of the runtime that runs plegd itself.
	s.Signal("containerd.service", syscall.SIGSTOP)
	if err := sees(20*time.Second, `pleg_primary_reason{reason="`+frozen+`"}`); err != nil {
		return err
	}
	if err := sees(60*time.Second, `pleg_verdict{state="unhealthy"}`); err != nil {
		return err
	}
	// The kubelet would now ask whether plegd is alive.
	if err := answers(liveness); err != nil {
		return fmt.Errorf("liveness while the node is NotReady: %w", err)
	}
	s.Signal("containerd.service", syscall.SIGCONT)
	if err := sees(20*time.Second, `pleg_verdict{state="healthy"}`); err != nil {
		return err
	}

	// A restart makes a new socket; plegd's pod continues.
	s.Run("systemctl", "restart", "containerd.service")
	restarted := time.Now()
	if err := within(20*time.Second, func() error { return seenSince(s, restarted) }); err != nil {
		return fmt.Errorf("after the restart of containerd: %w", err)
	}
	return nil
}

// seenSince reports whether plegd has had an answer since a moment.
func seenSince(s *lab.Systemd, since time.Time) error {
	_, body, err := s.Get("/metrics")
	if err != nil {
		return err
	}
	var seen float64
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, "pleg_last_seen_seconds "); ok {
			if _, err := fmt.Sscan(rest, &seen); err != nil {
				return err
			}
		}
	}
	if seen <= float64(since.UnixMilli())/1000 {
		return errors.New("no relist has succeeded; active: " + strings.Join(active(body), " "))
	}
	return nil
}

// active lists the state sets that are 1, and the evidence that is not.
func active(metrics string) []string {
	var out []string
	for line := range strings.Lines(metrics) {
		line = strings.TrimSpace(line)
		set := strings.HasPrefix(line, "pleg_verdict{") || strings.HasPrefix(line, "pleg_reason{") || strings.HasPrefix(line, "pleg_primary_reason{")
		if set && strings.HasSuffix(line, " 1") || strings.HasPrefix(line, "pleg_evidence_up{") && strings.HasSuffix(line, " 0") {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}

// imported finds the name of the image in what ctr says.
func imported(out string) (name string, ok bool) {
	for word := range strings.FieldsSeq(out) {
		if strings.HasPrefix(word, "localhost/plegd:") {
			return word, true
		}
	}
	return "", false
}
