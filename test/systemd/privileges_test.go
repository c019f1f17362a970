//go:build e2e

package systemd

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
	"github.com/plegd/plegd/test/lab/systemd"
)

// restart starts plegd again with a drop-in and empty directories.
func (n *node) restart(dropIn string) error {
	_, _ = n.TryRun("systemctl", "stop", plegdUnit)
	_, _ = n.TryRun("systemctl", "reset-failed", plegdUnit)
	n.Run("sh", "-c", `mkdir -p "$1" && printf %s "$2" >"$1/privilege.conf" && rm -rf /var/lib/plegd /var/lib/private/plegd /run/plegd`,
		"sh", "/etc/systemd/system/"+plegdUnit+".d", dropIn)
	n.Run("systemctl", "daemon-reload")
	out, err := n.TryRun("systemctl", "start", plegdUnit)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// TestUnitPrivileges takes each privilege that the unit leaves to plegd from it, one at a
// time, and shows what breaks: none of them is there for nothing.
func TestUnitPrivileges(t *testing.T) {
	t.Parallel()
	// A runtime's socket that systemd holds. By the kernel its connections are systemd's,
	// so its process is found only in the descriptors of all processes: CAP_SYS_PTRACE.
	n := newNode(t, unitFile(t), endpoint,
		systemd.File{Path: "/etc/systemd/system/activated.socket", Text: "[Socket]\nListenStream=/run/fake/activated.sock\nSocketMode=0660\n"},
		systemd.File{Path: "/etc/systemd/system/activated.service", Text: "[Service]\nExecStart=/lib/systemd/systemd-socket-proxyd " + fakeRuntime + "\n"})
	const watchActivated = "[Service]\nEnvironmentFile=\nEnvironment=PLEGD_RUNTIME_ENDPOINT=unix:///run/fake/activated.sock\n"
	n.startFake("fake")
	n.Run("systemctl", "start", "activated.socket")
	n.Run("mknod", "/dev/kmsg", "c", "1", "11") // systemd itself boots without the kernel's log
	start := func(dropIn string) {
		t.Helper()
		lab.Must(t, n.restart(dropIn))
	}
	start("")
	n.awaitText(healthy)
	n.awaitSources(true, "queue", "cgroup", "children", "node", "process", "state", "kernel_log")
	n.Run("curl", "-sSf", "-o", "/dev/null", "http://127.0.0.1:20290/metrics")
	n.Run("curl", "-sSf", "-o", "/dev/null", "http://[::1]:20290/metrics")
	start(watchActivated)
	n.awaitSources(true, "process")

	families := func(left string) string { return "RestrictAddressFamilies=\nRestrictAddressFamilies=" + left + "\n" }
	source := func(name string) func() { return func() { n.awaitSources(false, name) } }
	for _, tt := range []struct {
		name, dropIn string
		breaks       func() // nil: the start
	}{
		{"root", "User=nobody\n", func() { n.awaitText("RuntimeSocketPermissionDenied") }},
		{"the view into other processes", watchActivated + "CapabilityBoundingSet=\n", source("process")},
		{"the kernel's log", "ProtectKernelLogs=yes\n", func() { n.awaitKernelLog(false, "") }},
		{"CAP_SYSLOG", "CapabilityBoundingSet=\nCapabilityBoundingSet=CAP_SYS_PTRACE\n", func() { n.awaitKernelLog(true, n.withoutSyslog()) }},
		{"unix sockets", families("AF_INET AF_INET6 AF_NETLINK"), nil},
		{"internet sockets", families("AF_UNIX AF_NETLINK"), func() {
			n.await("the journal has it", func() error {
				if out := n.journal("--lines=30"); !strings.Contains(out, "the web address cannot be served") {
					return errors.New(out)
				}
				return nil
			})
		}},
		{"netlink sockets", families("AF_UNIX AF_INET AF_INET6"), source("queue")},
		{"its state directory", "StateDirectory=\n", source("state")},
		{"execution of plegd", "ExecPaths=\n", nil},
		{"the rest of /proc", "ProcSubset=pid\n", source("node")},
		{"the node's network namespace", "PrivateNetwork=yes\n", func() { n.awaitListening(false) }},
		{"system calls on files", "SystemCallFilter=~@file-system\n", nil},
		{"system calls on the network", "SystemCallFilter=~@network-io\n", nil},
		{"system calls on events", "SystemCallFilter=~@io-event\n", nil},
		{"threads", "SystemCallFilter=~@process\n", nil},
	} {
		err := n.restart("[Service]\nRestart=no\n" + tt.dropIn)
		switch {
		case tt.breaks == nil && err == nil:
			t.Errorf("without %s plegd starts", tt.name)
		case tt.breaks != nil && err != nil:
			t.Errorf("without %s plegd does not start: %v", tt.name, err)
		case tt.breaks != nil:
			t.Log("without", tt.name)
			tt.breaks()
		}
	}
	start("")
	n.awaitListening(true)
}

// awaitKernelLog waits until plegd has sampled the kernel's log, if it has one: what it could not read.
func (n *node) awaitKernelLog(exists bool, unread string) {
	n.t.Helper()
	n.await("the kernel's log is sampled", func() error {
		s, err := n.status()
		got, ok := s.Evidence.Sources["kernel_log"]
		sampled := s.Evidence.Sources["node"].Up && s.Evidence.Sources["process"].Up
		if err == nil && (!sampled || ok != exists || got.Unread["messages"] != unread) {
			err = fmt.Errorf("it is there: %t, %+v", ok, got)
		}
		return err
	})
}

// withoutSyslog is what plegd may not read of the kernel's log without CAP_SYSLOG, by the machine's setting.
func (n *node) withoutSyslog() string {
	if strings.TrimSpace(n.Run("cat", "/proc/sys/kernel/dmesg_restrict")) == "0" {
		return ""
	}
	return "denied"
}

func (n *node) awaitListening(want bool) {
	n.t.Helper()
	n.await(fmt.Sprintf("the runtime's listener is seen: %t", want), func() error {
		s, err := n.status()
		if err == nil && s.Evidence.Queue.Listening != want {
			err = fmt.Errorf("it is not: %+v", s.Evidence)
		}
		return err
	})
}

// nobody is a user of the node that owns nothing.
const nobody = 65534

// podPlugin stands in for the network plugin that a pod outside the node's network needs.
// It makes no network, and says that it has.
const podPlugin = `#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion": "0.3.1", "supportedVersions": ["0.3.1"]}' ;;
ADD) echo '{"cniVersion": "0.3.1", "interfaces": [{"name": "'"$CNI_IFNAME"'", "sandbox": "'"$CNI_NETNS"'"}], "ips": [{"version": "4", "interface": 0, "address": "192.0.2.2/24"}]}' ;;
esac
`

// podTry takes a privilege from the pod; breaks must be in the error.
type podTry struct {
	name   string
	take   func(*runtime.HostPod)
	breaks string
}

// TestPodPrivileges does the same to the DaemonSet's pod. Not tried is the SELinux type
// spc_t, which needs a node with SELinux. What only takes something away (no capability,
// a group that is not root's, read-only mounts, seccomp) is no privilege.
func TestPodPrivileges(t *testing.T) {
	t.Parallel()
	n, r := newPodNode(t, systemd.File{Path: "/usr/local/bin/plegd", From: lab.Binary(t), Mode: 0o755},
		systemd.File{Path: "/opt/cni/bin/loopback", Text: podPlugin, Mode: 0o755})
	own := n.hostPod(readFile(t, "deploy/kubernetes/base/daemonset.yaml"))
	if own.Group == 0 {
		t.Error("the pod has root's group, which it does not need")
	}
	tries := []podTry{
		{"the node's pid namespace", func(pod *runtime.HostPod) { pod.HostPID = false }, "source process"},
		{"the node's network namespace", func(pod *runtime.HostPod) { pod.HostNetwork = false }, "listener"},
		{"root", func(pod *runtime.HostPod) { pod.User = nobody }, "RuntimeSocketPermissionDenied"},
		// The socket is open to root's group as well, the directories are not.
		{"root, with root's group", func(pod *runtime.HostPod) { pod.User, pod.Group = nobody, 0 }, "control socket"},
	}
	breaks := map[string]string{ // of each mount that the manifest gives
		"mount /run/containerd": "RuntimeSocketMissing", "follow /run/containerd": "busy",
		"mount /host/sys/fs/cgroup": "source cgroup",
		"mount /var/lib/plegd":      "source state", "write /var/lib/plegd": "source state",
		"mount /run/plegd": "control socket", "write /run/plegd": "control socket",
	}
	for i, m := range own.Mounts {
		if m.Container == "/etc/plegd-kubelet" {
			continue // this node has no kubelet, and so no token
		}
		add := func(kind string, take func(*runtime.HostPod)) {
			name := kind + " " + m.Container
			if breaks[name] == "" {
				t.Errorf("this test does not say what breaks without: %s", name)
			}
			tries = append(tries, podTry{name, take, breaks[name]})
		}
		add("mount", func(pod *runtime.HostPod) { pod.Mounts = slices.Delete(pod.Mounts, i, i+1) })
		if !m.ReadOnly {
			add("write", func(pod *runtime.HostPod) { pod.Mounts[i].ReadOnly = true })
		}
		if m.Follows {
			add("follow", func(pod *runtime.HostPod) { pod.Mounts[i].Follows = false })
		}
	}
	if err := n.tryPod(r, own, "nothing"); err != nil {
		t.Fatalf("the pod as it is: %v", err)
	}
	for _, try := range tries {
		pod := own
		pod.Mounts = slices.Clone(own.Mounts)
		try.take(&pod)
		if err := n.tryPod(r, pod, try.breaks); err == nil || !strings.Contains(err.Error(), try.breaks) {
			t.Errorf("without %s the error is %v, want %q", try.name, err, try.breaks)
		}
	}
}

// tryPod makes the pod, returns its first failure, and removes it. A failure that has the
// expected text is one if it lasts, any other after a minute only.
func (n *node) tryPod(r *runtime.CRI, pod runtime.HostPod, expected string) error {
	n.t.Helper()
	n.Run("sh", "-c", "rm -rf /var/lib/plegd/* /run/plegd/*")
	doomed := r.RunPod()
	doomed.RunContainer("app")
	defer doomed.Remove()
	c, log := r.RunHostPod(n.Systemd, pod)
	defer func() {
		logsOf(n.t, log)
		c.Pod.Stop()
		c.Pod.Remove()
		_ = os.Remove(log)
	}()
	type check struct {
		name string
		is   func() error
	}
	var checks []check
	if pod.HostNetwork { // over the network: the control socket is among what may be missing
		checks = append(checks, check{"metrics", n.isHealthy})
	}
	checks = append(checks, check{"control socket", func() error { _, err := n.status(); return err }})
	for _, source := range []string{"dial", "process", "cgroup", "children", "node", "state", "queue"} {
		checks = append(checks, check{"source " + source, func() error {
			s, err := n.status()
			if got, ok := s.Evidence.Sources[source]; err == nil && !got.Up {
				err = fmt.Errorf("it is there: %t, %s", ok, got.Err)
			}
			return err
		}})
	}
	checks = append(checks, check{"the runtime's listener", func() error {
		s, err := n.status()
		if err == nil && !s.Evidence.Queue.Listening {
			err = errors.New("it is not seen")
		}
		return err
	}}, check{"the node's /var/lib/plegd", func() error { // where the next pod finds it
		out, err := n.TryRun("find", "/var/lib/plegd", "-type", "f", "-size", "+0")
		if err == nil && strings.TrimSpace(out) == "" {
			err = errors.New("it is empty")
		}
		return err
	}})
	for _, c := range checks {
		if err := settled(c.name, c.is, expected); err != nil {
			return err
		}
	}
	// A container ends while plegd runs: its file system must not live on in plegd's view.
	doomed.Stop()
	return n.holds(c, doomed)
}

// settled polls a check until it succeeds, and else returns its error: once the expected one
// has lasted, any other after a minute.
func settled(name string, is func() error, expected string) error {
	const lasting = 12 * time.Second
	began := time.Now()
	other := began // when another error than the expected one was last returned
	for {
		err := is()
		if err == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", name, err)
		if !strings.Contains(err.Error(), expected) {
			other = time.Now()
		}
		if time.Since(other) > lasting || time.Since(began) > time.Minute {
			return err
		}
		time.Sleep(lab.PollInterval)
	}
}

// holds returns an error if a container sees a mount of a pod that has ended.
func (n *node) holds(c *runtime.Container, dead *runtime.Pod) error {
	n.t.Helper()
	out := n.Run("ctr", "--namespace", "k8s.io", "tasks", "ls")
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != c.ID {
			continue
		}
		for mount := range strings.Lines(n.Run("cat", "/proc/"+fields[1]+"/mountinfo")) {
			if strings.Contains(mount, dead.ID) {
				return fmt.Errorf("plegd's view keeps the file system of a dead container busy: %s", mount)
			}
		}
		return nil
	}
	return fmt.Errorf("the task of plegd's container %s is not there: %s", c.ID, out)
}
