package family

import (
	"path"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/proc"
)

// NamedShim reports whether a process has the name of a shim or conmon, of which the kernel keeps
// 15 bytes. It may be anybody's: Members proves it.
func NamedShim(p proc.Process) bool {
	return strings.HasPrefix(p.Comm, "containerd-shim") || p.Comm == "conmon" || p.Comm == "conmonrs"
}

// NamedKubelet reports whether a process has the name of a kubelet.
func NamedKubelet(p proc.Process) bool { return kubelets[p.Comm] != nil }

// OpensOutputs reports whether a runtime of this name opens the output of each container, a FIFO, to read it: of one
// that is created and not started for as long as it is so.
func OpensOutputs(runtime string) bool { return runtime == "containerd" || runtime == "dockerd" }

// Runtime answers whether a process, which serves the runtime's socket or one behind it, is
// containerd, crio or dockerd, and which of them: root's, by its executable and not by its name.
func Runtime(p proc.Identity) (program string, answer Answer) {
	if err := p.Unread[proc.ProofUser]; err != nil {
		return "", unproved(err)
	}
	if err := p.Unread[proc.ProofExe]; err != nil {
		return "", unproved(err)
	}
	if !p.IsRoot() {
		return "", refused("it runs as uid %d", lowestUser(p.UIDs))
	}
	program = programOf(p)
	if !slices.Contains([]string{"containerd", "crio", "dockerd"}, program) {
		return "", refused("its executable is %s", p.Exe)
	}
	return program, Answer{}
}

// programOf returns the name of the executable of a process, also after an upgrade has replaced it; ""
// where it is not known.
func programOf(p proc.Identity) string {
	if p.Exe == "" {
		return ""
	}
	return path.Base(proc.WithoutDeleted(p.Exe))
}

// ShimID returns the id of the sandbox or container that a shim or conmon serves, by its
// arguments; "" where they name none.
func ShimID(p proc.Process, args []string) string {
	name := "id"
	if strings.HasPrefix(p.Comm, "conmon") {
		name = "c"
	}
	id := proc.ArgValue(args, name)
	if len(id) > 128 || strings.Trim(id, idChars) != "" {
		return ""
	}
	return id
}

const idChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

// IsShimCommand reports whether the arguments of a shim are those of a command that ends soon:
// it starts the shim, or deletes the rest of an ended one.
func IsShimCommand(args []string) bool {
	if len(args) == 0 {
		return false
	}
	command := args[len(args)-1]
	return command == "start" || command == "delete"
}

// IsExec reports whether the arguments of a conmon are those of a command that is run in a container, with which it ends.
func IsExec(args []string) bool {
	return slices.Contains(args, "-e") || slices.Contains(args, "--exec")
}

// IsOCI reports whether a process has the name of an OCI runtime.
func IsOCI(p proc.Process) bool { return slices.Contains([]string{"runc", "crun", "youki"}, p.Comm) }

// lasting are the names of children that run for long by design: decompressors and port forwarding.
var lasting = []string{
	"unpigz", "pigz", "igzip", "gzip", "zstd", "ctd-decoder", "socat", "nsenter", "docker-proxy", "docker-init",
}

// daemons are the names of children that serve requests, as those that dockerd starts: these have reasons of their own.
var daemons = []string{"containerd", "dockerd", "buildkitd"}

// setup is, in clock ticks, how long after its start a shim starts processes that live
// as long as it does, such as the logger of a container.
const setup = 2 * proc.ClockTicks

// ociCommands are the commands of an OCI runtime that end soon.
var ociCommands = []string{
	"create", "start", "delete", "kill", "state", "update", "pause", "resume", "checkpoint", "restore", "ps",
}

// endsSoon reports whether a child of the runtime or of a shim is to end soon, under any
// name: runc, a CNI plugin, a hook. One that may run for long by design is none: an NRI plugin, or
// an OCI runtime while somebody uses exec. A shim detaches that one, and waits for the process itself.
func endsSoon(p, parent proc.Process, args []string) bool {
	nri := func(arg string) bool { return path.IsAbs(arg) && strings.Contains(arg, "/nri/") }
	attached := slices.Contains(args, "exec") && !slices.Contains(args, "--detach")
	switch {
	case NamedShim(p):
		return IsShimCommand(args) || p.Comm == parent.Comm && p.State == 'D' // it cannot begin its program
	case p.Comm == parent.Comm: // likewise
		return true
	case strings.HasPrefix(p.Comm, "runc:["), slices.Contains(lasting, p.Comm), slices.Contains(daemons, p.Comm),
		attached, slices.ContainsFunc(args[:min(len(args), 2)], nri):
		return false
	case NamedShim(parent) && p.Start <= parent.Start+setup:
		return runsOCI(p, args)
	}
	return true
}

// runsOCI reports whether a process has the name of an OCI runtime, or a command of one among its
// arguments.
func runsOCI(p proc.Process, args []string) bool {
	return IsOCI(p) || slices.ContainsFunc(ociCommands, func(c string) bool { return slices.Contains(args, c) })
}
