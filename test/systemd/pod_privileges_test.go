//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// nobody is a user of the node that owns nothing.
const nobody = 65534

// podPlugin stands in for the network plugin that a pod outside the node's
// network needs. It makes no network, and says that it has.
const podPlugin = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "0.3.1", "supportedVersions": ["0.3.1"]}' ;;
ADD) echo '{"cniVersion": "0.3.1", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"version": "4", "interface": 0, "address": "192.0.2.2/24"}]}' ;;
esac
`

// TestPodPrivileges takes each privilege that the DaemonSet gives to plegd from
// it, one at a time, and shows what breaks: none of them is there for nothing.
// Not tried is the SELinux type spc_t, which needs a node with SELinux. What
// only takes something away (no capability, a group that is not root's,
// read-only mounts, seccomp) is no privilege.
func TestPodPrivileges(t *testing.T) {
	t.Parallel()
	files := append(lab.ContainerdFiles(t),
		lab.SystemdFile{Path: "/root/plegd.tar", From: lab.PackageFile(t, "plegd.oci.tar")},
		lab.SystemdFile{Path: "/usr/local/bin/plegd", From: lab.Binary(t), Mode: 0o755},
		lab.SystemdFile{Path: "/opt/cni/bin/loopback", Text: podPlugin, Mode: 0o755},
	)
	s := bareSystem(t, files...)
	r := s.StartContainerd()
	name, ok := imported(s.ImportImage("/root/plegd.tar"))
	if !ok {
		t.Fatal("no image is imported")
	}
	s.Run("ctr", "--namespace", "k8s.io", "images", "tag", name, podImage)
	r.RunPods(2, 1)
	own, _, _ := hostPod(t, s, readDeploy(t, "kubernetes/base/daemonset.yaml"))
	p := &podPrivileges{privileges: privileges{s}, r: r}

	without := func(path string) func(*lab.HostPod) {
		return func(pod *lab.HostPod) {
			pod.Mounts = slices.DeleteFunc(pod.Mounts, func(m lab.HostMount) bool { return m.Container == path })
		}
	}
	change := func(path string, f func(*lab.HostMount)) func(*lab.HostPod) {
		return func(pod *lab.HostPod) {
			for i := range pod.Mounts {
				if pod.Mounts[i].Container == path {
					f(&pod.Mounts[i])
				}
			}
		}
	}
	readOnly := func(m *lab.HostMount) { m.ReadOnly = true }
	alone := func(m *lab.HostMount) { m.Follows = false }
	tries := []struct {
		name  string
		take  func(*lab.HostPod)
		found string
	}{
		{"the node's pid namespace", func(pod *lab.HostPod) { pod.HostPID = false }, "source process"},
		{"the node's network namespace", func(pod *lab.HostPod) { pod.HostNetwork = false }, "listener"},
		{"root", func(pod *lab.HostPod) { pod.User = nobody }, "RuntimeSocketPermissionDenied"},
		// The socket is open to root's group as well, the directories are not.
		{"root, with root's group", func(pod *lab.HostPod) { pod.User, pod.Group = nobody, 0 }, "control socket"},
		{"mount /run/containerd", without("/run/containerd"), "RuntimeSocketMissing"},
		{"follow /run/containerd", change("/run/containerd", alone), "busy"},
		{"mount /host/sys/fs/cgroup", without("/host/sys/fs/cgroup"), "source cgroup"},
		{"mount /var/lib/plegd", without("/var/lib/plegd"), "source state"},
		{"write /var/lib/plegd", change("/var/lib/plegd", readOnly), "source state"},
		{"mount /run/plegd", without("/run/plegd"), "control socket"},
		{"write /run/plegd", change("/run/plegd", readOnly), "control socket"},
	}
	// Nobody gives the pod another one without a line above.
	var given, tried []string
	for _, m := range own.Mounts {
		given = append(given, "mount "+m.Container)
		if !m.ReadOnly {
			given = append(given, "write "+m.Container)
		}
		if m.Follows {
			given = append(given, "follow "+m.Container)
		}
	}
	for _, try := range tries {
		if strings.Contains(try.name, " /") {
			tried = append(tried, try.name)
		}
	}
	slices.Sort(given)
	slices.Sort(tried)
	if !slices.Equal(given, tried) {
		t.Errorf("the manifest gives the mounts\n%q, taken away here are\n%q", given, tried)
	}

	if own.Group == 0 {
		t.Error("the pod has root's group, which it does not need")
	}
	if err := p.try(t, own); err != nil {
		t.Fatalf("the pod as it is: %v", err)
	}
	for _, try := range tries {
		pod := own
		pod.Mounts = slices.Clone(own.Mounts)
		try.take(&pod)
		if err := p.try(t, pod); err == nil || !strings.Contains(err.Error(), try.found) {
			t.Errorf("without %s the error is %v, want %q", try.name, err, try.found)
		} else {
			t.Logf("without %s: %v", try.name, err)
		}
	}
}

// podPrivileges is a node whose plegd pod is made again and again with other
// settings.
type podPrivileges struct {
	privileges
	r *lab.CRI
}

// try makes the pod, returns what is wrong with it, and removes it.
func (p *podPrivileges) try(t *testing.T, pod lab.HostPod) error {
	t.Helper()
	p.Run("sh", "-c", "rm -rf /var/lib/plegd/* /run/plegd/*")
	doomed := p.r.RunPod()
	doomed.RunContainer("app")
	defer doomed.Remove()
	c, log := p.r.RunHostPod(p.Systemd, pod)
	defer func() {
		if b, err := os.ReadFile(log); err == nil && t.Failed() {
			t.Logf("the log of plegd in its pod:\n%s", b)
		}
		c.Pod.Stop()
		c.Pod.Remove()
		_ = os.Remove(log)
	}()
	const limit = 12 * time.Second
	if pod.HostNetwork {
		// Over the network: the control socket is among what may be missing.
		if err := within(limit, func() error {
			code, body, err := p.Get("/metrics")
			switch {
			case err != nil:
				return err
			case code != http.StatusOK:
				return fmt.Errorf("/metrics: %d", code)
			case !strings.Contains(body, `pleg_verdict{state="healthy"} 1`+"\n"):
				return errors.New("active: " + strings.Join(active(body), " "))
			}
			return nil
		}); err != nil {
			return err
		}
	}
	if err := within(limit, func() error {
		_, err := p.evidence()
		return err
	}); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	for _, source := range []string{"dial", "process", "cgroup", "connections", "children", "node", "state", "queue"} {
		if err := within(limit, func() error {
			e, err := p.evidence()
			if s, ok := e.Sources[source]; err == nil && (!ok || !s.Up) {
				err = fmt.Errorf("it is there %t, and %+v", ok, s)
			}
			return err
		}); err != nil {
			return fmt.Errorf("source %s: %w", source, err)
		}
	}
	if err := within(limit, func() error {
		e, err := p.evidence()
		if err == nil && (e.Queue == nil || !e.Queue.Listening) {
			err = fmt.Errorf("the runtime's listener is not seen: %+v", e.Queue)
		}
		return err
	}); err != nil {
		return err
	}
	// On the node, where the next pod finds it.
	if err := within(limit, func() error {
		out, err := p.TryRun("find", "/var/lib/plegd", "-type", "f", "-size", "+0")
		if err == nil && strings.TrimSpace(out) == "" {
			err = errors.New("nothing is in it")
		}
		return err
	}); err != nil {
		return fmt.Errorf("the node's /var/lib/plegd: %w", err)
	}
	// A container ends while plegd runs: its file system must not live on in
	// plegd's view.
	doomed.Stop()
	if held := p.holds(t, c, doomed); held != "" {
		return fmt.Errorf("plegd's view keeps the file system of a dead container busy: %s", held)
	}
	return nil
}

// holds returns the mount of a pod that a container sees.
func (p *podPrivileges) holds(t *testing.T, c *lab.Container, dead *lab.Pod) string {
	t.Helper()
	out := p.Run("ctr", "--namespace", "k8s.io", "tasks", "ls")
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != c.ID {
			continue
		}
		for mount := range strings.Lines(p.Run("cat", "/proc/"+fields[1]+"/mountinfo")) {
			if strings.Contains(mount, dead.ID) {
				return strings.TrimSpace(mount)
			}
		}
		return ""
	}
	t.Fatalf("the task of plegd's container %s is not there: %s", c.ID, out)
	return ""
}
