package proc

import (
	"path"
	"slices"
	"strings"
)

// Kind is what a process is, by its name.
type Kind string

// The kinds of processes; "" is any other.
const (
	KindShim    Kind = "shim"    // containerd's shims, conmon
	KindOCI     Kind = "oci"     // runc, crun, youki
	KindKubelet Kind = "kubelet" // also k3s and microk8s, which have it built in
)

// kinds are the kinds by name, of which the kernel keeps 15 bytes.
var kinds = map[string]Kind{
	"conmon": KindShim, "conmonrs": KindShim,
	"runc": KindOCI, "crun": KindOCI, "youki": KindOCI,
	"kubelet": KindKubelet, "k3s-server": KindKubelet, "k3s-agent": KindKubelet, "kubelite": KindKubelet,
}

// Kind returns the kind of the process.
func (p Process) Kind() Kind {
	if strings.HasPrefix(p.Comm, "containerd-shim") {
		return KindShim
	}
	return kinds[p.Comm]
}

// ShimID returns the id of the sandbox or container that a shim or conmon serves, by its
// arguments; "" where they name none.
func (p Process) ShimID(args []string) string {
	name := "id"
	if strings.HasPrefix(p.Comm, "conmon") {
		name = "c"
	}
	id := ArgValue(args, name)
	if len(id) > 128 || strings.Trim(id, idChars) != "" {
		return ""
	}
	return id
}

const idChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

// lasting are the names of children that run for long by design: decompressors, port
// forwarding, and daemons that dockerd starts.
var lasting = []string{
	"unpigz", "pigz", "igzip", "gzip", "zstd", "ctd-decoder", "socat", "nsenter", "docker-proxy", "docker-init",
	"containerd", "dockerd", "buildkitd",
}

// setup is, in clock ticks, how long after its start a shim starts processes that live
// as long as it does, such as the logger of a container.
const setup = 2 * ClockTicks

// ociCommands are the commands of an OCI runtime that end soon.
var ociCommands = []string{
	"create", "start", "delete", "kill", "state", "update", "pause", "resume", "checkpoint", "restore", "ps",
}

// IsShimCommand reports whether the arguments of a shim are those of a command that ends soon:
// it starts the shim, or deletes what is left of one.
func IsShimCommand(args []string) bool {
	if len(args) == 0 {
		return false
	}
	command := args[len(args)-1]
	return command == "start" || command == "delete"
}

// IsHelper reports whether a child of the runtime or of a shim is to end soon, under any
// name: runc, a CNI plugin, a hook. A container's own process is none: whether it shares their
// namespaces is checked besides. Nor is one that may run for long by design: an NRI plugin, or
// an OCI runtime while somebody uses exec.
func IsHelper(p, parent Process, args []string) bool {
	nri := func(arg string) bool { return path.IsAbs(arg) && strings.Contains(arg, "/nri/") }
	switch {
	case p.Kind() == KindShim:
		return IsShimCommand(args) || p.Comm == parent.Comm && p.State == 'D' // it cannot begin its program
	case p.Comm == parent.Comm: // likewise
		return true
	case strings.HasPrefix(p.Comm, "runc:["), slices.Contains(lasting, p.Comm),
		slices.Contains(args, "exec"), slices.ContainsFunc(args[:min(len(args), 2)], nri):
		return false
	case p.Kind() != KindOCI && parent.Kind() == KindShim && p.Start <= parent.Start+setup:
		return slices.ContainsFunc(ociCommands, func(c string) bool { return slices.Contains(args, c) })
	}
	return true
}
