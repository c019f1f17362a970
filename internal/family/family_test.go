package family

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
)

const (
	someID  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	somePod = "pod7d1f0a2e-1c5b-4b7e-9c53-3f1f7f3b1a00"
)

// identity returns a process that proves to be root of the node.
func identity(comm, exe string) proc.Identity {
	return proc.Identity{
		Process: proc.Process{PID: 9, PPID: 1, Comm: comm}, Exe: exe, UIDs: []int{0, 0, 0, 0}, PIDDepth: 1,
		MountNS: "mnt:[1]", UserNS: "user:[1]", PIDNS: "pid:[1]",
		Cgroups: proc.Cgroups{"": "/system.slice/" + comm + ".service"}, Unread: map[proc.Proof]error{},
	}
}

func initProcess() proc.Identity {
	first := identity("systemd", "/usr/lib/systemd/systemd")
	first.PID, first.Cgroups = 1, proc.Cgroups{"": "/init.scope"}
	return first
}

func TestKubelet(t *testing.T) {
	denied := &proc.ReadError{Path: "x", Outcome: proc.Denied}
	for name, tt := range map[string]struct {
		change   func(p *proc.Identity)
		refused  string // "" where it is a kubelet
		unproven int
	}{
		"a service": {change: func(*proc.Identity) {}},
		"k3s": {change: func(p *proc.Identity) {
			p.Comm, p.Exe = "k3s-server", "/var/lib/rancher/k3s/data/0f/bin/k3s"
		}},
		"upgraded while it runs": {change: func(p *proc.Identity) { p.Exe += " (deleted)" }},
		"microk8s, in the mounts of its snap": {change: func(p *proc.Identity) {
			p.Comm, p.Exe, p.MountNS = "kubelite", "/snap/microk8s/7/kubelite", "mnt:[2]"
			p.Cgroups[""] = "/system.slice/snap.microk8s.daemon-kubelite.service"
		}},
		"a service with PrivateTmp": {change: func(p *proc.Identity) { p.MountNS, p.ExeOnNode = "mnt:[2]", true }},
		"nothing but user and cgroup readable": {unproven: 4, change: func(p *proc.Identity) {
			p.Exe, p.MountNS, p.UserNS, p.PIDNS = "", "", "", ""
			for _, part := range []proc.Proof{proc.ProofExe, proc.ProofMountNS, proc.ProofUserNS, proc.ProofPIDNS} {
				p.Unread[part] = denied
			}
		}},
		"another user":              {func(p *proc.Identity) { p.UIDs = []int{65534, 65534, 65534, 65534} }, "uid 65534", 0},
		"set-user-ID, by a link":    {func(p *proc.Identity) { p.UIDs, p.Exe = []int{1000, 0, 0, 0}, "/usr/bin/su" }, "uid 1000", 0},
		"a wrapper script":          {func(p *proc.Identity) { p.Exe = "/usr/bin/bash" }, "/usr/bin/bash", 0},
		"root of a user namespace":  {func(p *proc.Identity) { p.UserNS = "user:[2]" }, "user namespace", 0},
		"in a pid namespace":        {func(p *proc.Identity) { p.PIDDepth = 2 }, "pid namespace", 0},
		"an image's kubelet":        {func(p *proc.Identity) { p.MountNS = "mnt:[2]" }, "mount namespace", 0},
		"a user that is not shown":  {func(p *proc.Identity) { p.UIDs, p.Unread[proc.ProofUser] = nil, denied }, "denied", 0},
		"a cgroup that is not read": {func(p *proc.Identity) { p.Cgroups, p.Unread[proc.ProofCgroup] = nil, denied }, "denied", 0},
		"a privileged pod": {func(p *proc.Identity) {
			p.Cgroups = proc.Cgroups{"memory": "/", "": "/kubepods/" + somePod + "/" + someID}
		}, "container's", 0},
		"another program": {func(p *proc.Identity) { p.Comm = "kubelet-x" }, "name", 0},
	} {
		p := identity("kubelet", "/usr/bin/kubelet")
		tt.change(&p)
		got := Kubelet(p, initProcess())
		fits := got.Proven() == (tt.refused == "") && strings.Contains(got.Refused, tt.refused)
		if !fits || len(got.Unproven) != tt.unproven {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestContainerCgroup has each layout: as the node sees it, and as a plegd in a pod does.
func TestContainerCgroup(t *testing.T) {
	const service = "/system.slice/kubelet.service"
	for i, tt := range []struct {
		path, first string
		want        bool
	}{
		{"/", "/", false},
		{service, "/init.scope", false},
		{"/podruntime/kubelet", "/init", false},
		{"/kubelet.slice/kubelet.service", "/init.scope", false},
		{"/kubepods/besteffort/" + somePod + "/" + someID, "/", true},
		{"/kubepods.slice/kubepods-pod7d1f0a2e_1c5b.slice/cri-containerd-" + someID + ".scope", "/init.scope", true},
		{"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/x", "/init.scope", true},
		{"/system.slice/docker-" + someID + ".scope", "/init.scope", true},
		{"/docker/" + someID, "/init.scope", true},
		{"/machine.slice/libpod-" + someID + ".scope/container", "/init.scope", true},
		{"/system.slice/crio-conmon-" + someID + ".scope", "/init.scope", false},
		// The node is a container.
		{"/docker/" + someID + "/kubelet.slice/kubelet.service", "/docker/" + someID + "/init.scope", false},
		{"/docker/" + someID + "/kubelet/kubepods/x", "/docker/" + someID + "/init.scope", true},
		{"/docker/" + someID + "/init", "/docker/" + someID + "/init", false},
		// plegd is in a pod with a cgroup namespace of its own.
		{"/../../../.." + service, "/../../../../init.scope", false},
		{"/../../../besteffort/podB/c2", "/../../../../..", true},
		{"/../../podB/c2", "/../../../..", true},
		{"/../" + someID, "/../../../..", true},
		{"/../../kubepods-besteffort.slice/kubepods-besteffort-podB.slice/cri-2.scope", "/../../../../init.scope", true},
		{"/../../../../kubelet.service", "/../../../../../init.scope", false}, // kind's
		{"/", "/../../../../init.scope", true},                                // beside plegd in its own container
	} {
		check.Equal(t, isContainer(tt.path, tt.first), tt.want, "%d: %s beside %s", i, tt.path, tt.first)
	}
}

// TestKubeletWithoutInit: without the identity of pid 1 the user and the cgroup still count.
func TestKubeletWithoutInit(t *testing.T) {
	for _, comm := range []string{"systemd", "kubelet"} {
		if got := Kubelet(identity(comm, "/usr/bin/kubelet"), proc.Identity{}); got.Proven() {
			t.Errorf("%q beside a pid 1 that is not shown: %+v", comm, got)
		}
	}
}
