package node

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// A helper is a child of the runtime or of a shim that shares the runtime's namespaces,
// whatever its name: runc, a CNI plugin, a hook. A container's own process never is one.

// SharesNamespaces reports whether a process is in the PID and mount namespaces of
// another. A container's process has a mount namespace of its own, also in a pod with
// the node's PIDs. Without CAP_SYS_PTRACE only the depth of the PID namespace is known.
func SharesNamespaces(procfs string, pid, other int) bool {
	if namespaceDepth(procfs, pid) != namespaceDepth(procfs, other) {
		return false
	}
	for _, ns := range []string{"pid", "mnt"} {
		a, err := os.Readlink(proc.Path(procfs, pid, "ns/"+ns))
		b, err2 := os.Readlink(proc.Path(procfs, other, "ns/"+ns))
		if err == nil && err2 == nil && a != b {
			return false
		}
	}
	return true
}

// SharesNetwork reports whether a process is in the network namespace of another.
// Without CAP_SYS_PTRACE only the depth of the PID namespace is compared.
func SharesNetwork(procfs string, pid, other int) bool {
	a, err := os.Readlink(proc.Path(procfs, pid, "ns/net"))
	b, err2 := os.Readlink(proc.Path(procfs, other, "ns/net"))
	if err == nil && err2 == nil {
		return a == b
	}
	return namespaceDepth(procfs, pid) == namespaceDepth(procfs, other)
}

// namespaceDepth is the number of PID namespaces that a process is seen in, 0 where
// that is not known.
func namespaceDepth(procfs string, pid int) int {
	b, err := proc.ReadFile(procfs, strconv.Itoa(pid), "status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return len(strings.Fields(pids))
		}
	}
	return 0
}

// lasting are the names of children that run for long by design: decompressors, port
// forwarding, and daemons that dockerd starts.
var lasting = []string{
	"unpigz", "pigz", "igzip", "gzip", "zstd", "ctd-decoder", "socat", "nsenter", "docker-proxy", "docker-init",
	"containerd", "dockerd", "buildkitd",
}

// RunsLong reports whether a child of the runtime may run for long by design: those
// above, NRI plugins, and an OCI runtime while somebody uses exec.
func RunsLong(comm string, args []string) bool {
	if slices.Contains(lasting, comm) || slices.Contains(args, "exec") {
		return true
	}
	for _, arg := range args[:min(len(args), 2)] {
		if path.IsAbs(arg) && strings.Contains(arg, "/nri/") {
			return true
		}
	}
	return false
}

// setup is, in clock ticks, how long after its start a shim starts processes that live
// as long as it does, such as the logger of a container.
const setup = 2 * proc.ClockTicks

// ociCommands are the commands of an OCI runtime that end soon.
var ociCommands = []string{"create", "start", "delete", "kill", "state", "update", "pause", "resume", "checkpoint", "restore", "ps"}

// IsHelper reports whether a child of the runtime or of a shim is to end soon, by what
// it is; whether it shares their namespaces is checked besides.
func IsHelper(s, parent proc.Stat, args []string) bool {
	if KindOf(s.Comm) == KindOCI {
		return !slices.Contains(args, "exec")
	}
	if KindOf(s.Comm) == KindShim || strings.HasPrefix(s.Comm, "runc:[") || RunsLong(s.Comm, args) {
		return false
	}
	if KindOf(parent.Comm) == KindShim && s.Start <= parent.Start+setup {
		return slices.ContainsFunc(ociCommands, func(c string) bool { return slices.Contains(args, c) })
	}
	return true
}
