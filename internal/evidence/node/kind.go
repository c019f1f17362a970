package node

import (
	"os"
	"path"
	"slices"
	"strconv"
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

// KindOf returns the kind of a process with this name.
func KindOf(comm string) Kind {
	if strings.HasPrefix(comm, "containerd-shim") {
		return KindShim
	}
	return kinds[comm]
}

// SharesNamespaces reports whether a process is in the PID and mount namespaces of
// another. A container's process has a mount namespace of its own, also in a pod with
// the node's PIDs.
func SharesNamespaces(procfs string, pid, other int) bool {
	return shares(procfs, pid, other, "pid", "mnt")
}

// SharesNetwork reports whether a process is in the network namespace of another.
func SharesNetwork(procfs string, pid, other int) bool { return shares(procfs, pid, other, "net") }

// shares compares namespaces of two processes. Without CAP_SYS_PTRACE only the depth of
// the PID namespace is known.
func shares(procfs string, pid, other int, kinds ...string) bool {
	for _, kind := range kinds {
		a, errA := os.Readlink(Path(procfs, pid, "ns/"+kind))
		b, errB := os.Readlink(Path(procfs, other, "ns/"+kind))
		if known := errA == nil && errB == nil; known && a != b ||
			!known && namespaceDepth(procfs, pid) != namespaceDepth(procfs, other) {
			return false
		}
	}
	return true
}

// namespaceDepth is the number of PID namespaces that a process is seen in, 0 where
// that is not known.
func namespaceDepth(procfs string, pid int) int {
	b, err := ReadFile(procfs, strconv.Itoa(pid), "status")
	if err != nil {
		return 0
	}
	return len(strings.Fields(Value(b, "NSpid")))
}

// A helper is a child of the runtime or of a shim that shares the runtime's namespaces,
// under any name: runc, a CNI plugin, a hook. A container's own process never is one.

// lasting are the names of children that run for long by design: decompressors, port
// forwarding, and daemons that dockerd starts.
var lasting = []string{
	"unpigz", "pigz", "igzip", "gzip", "zstd", "ctd-decoder", "socat", "nsenter", "docker-proxy", "docker-init",
	"containerd", "dockerd", "buildkitd",
}

// runsLong reports whether a child of the runtime may run for long by design: those
// above, NRI plugins, and an OCI runtime while somebody uses exec.
func runsLong(comm string, args []string) bool {
	return slices.Contains(lasting, comm) || slices.Contains(args, "exec") ||
		slices.ContainsFunc(args[:min(len(args), 2)], func(arg string) bool {
			return path.IsAbs(arg) && strings.Contains(arg, "/nri/")
		})
}

// setup is, in clock ticks, how long after its start a shim starts processes that live
// as long as it does, such as the logger of a container.
const setup = 2 * ClockTicks

// ociCommands are the commands of an OCI runtime that end soon.
var ociCommands = []string{
	"create", "start", "delete", "kill", "state", "update", "pause", "resume", "checkpoint", "restore", "ps",
}

// IsHelper reports whether a child of the runtime or of a shim is to end soon, by what
// it is; whether it shares their namespaces is checked besides.
func IsHelper(s, parent Stat, args []string) bool {
	if KindOf(s.Comm) == KindOCI {
		return !slices.Contains(args, "exec")
	}
	if KindOf(s.Comm) == KindShim || strings.HasPrefix(s.Comm, "runc:[") || runsLong(s.Comm, args) {
		return false
	}
	if KindOf(parent.Comm) == KindShim && s.Start <= parent.Start+setup {
		return slices.ContainsFunc(ociCommands, func(c string) bool { return slices.Contains(args, c) })
	}
	return true
}
