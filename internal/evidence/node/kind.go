package node

import "strings"

// Kind is what a process is, by its name.
type Kind string

// The kinds of processes.
const (
	KindOther   Kind = ""
	KindRuntime Kind = "runtime" // containerd, CRI-O, cri-dockerd, dockerd
	KindShim    Kind = "shim"    // containerd's shims, conmon
	KindOCI     Kind = "oci"     // runc, crun, youki
	KindKubelet Kind = "kubelet" // also k3s and microk8s, which have it built in
)

// kinds are the kinds by name, of which the kernel keeps 15 bytes.
var kinds = map[string]Kind{
	"containerd": KindRuntime, "crio": KindRuntime, "cri-dockerd": KindRuntime, "dockerd": KindRuntime,
	"conmon": KindShim, "conmonrs": KindShim,
	"runc": KindOCI, "crun": KindOCI, "youki": KindOCI,
	"kubelet": KindKubelet, "k3s-server": KindKubelet, "k3s-agent": KindKubelet, "kubelite": KindKubelet,
}

// KindOf returns the kind of a process with this name.
func KindOf(comm string) Kind {
	if strings.HasPrefix(comm, "containerd-shim") {
		return KindShim
	}
	return kinds[comm]
}
