package family

import (
	"path"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/proc"
)

// Shim classifies a process that is a child of the runtime, or of a process from which the
// runtime descends, as a shim or conmon of the runtime: it has the user of the runtime, root
// outside of tests, and is in the runtime's user and pid namespace.
func Shim(p, runtime proc.Identity) Answer {
	if p.Kind() != proc.KindShim {
		return refused("%q is not the name of a shim", p.Comm)
	}
	if err := p.Unread[proc.ProofUser]; err != nil {
		return refused("its user could not be read (%s)", proc.OutcomeOf(err))
	}
	if !slices.Equal(p.UIDs, runtime.UIDs) {
		return refused("it runs as uid %d, and the runtime does not", lowestUser(p.UIDs))
	}
	if differ(p.UserNS, runtime.UserNS) {
		return refused("it is in another user namespace than the runtime")
	}
	if differ(p.PIDNS, runtime.PIDNS) || p.PIDDepth != runtime.PIDDepth {
		return refused("it is in another pid namespace than the runtime")
	}
	return Answer{Unproven: unproven(p, proc.ProofUserNS, proc.ProofPIDNS)}
}

// Serves reports whether a shim or conmon is that of the runtime at a socket with these
// names, by its arguments; one whose arguments are not known is not:
//
//	containerd 1.6 to 2.4  containerd-shim-runc-v2 -namespace k8s.io -id ID -address SOCKET
//	dockerd                the same with -namespace moby
//	CRI-O                  conmon -c ID -n k8s_NAME --exit-dir DIR ..., conmonrs
//	podman                 conmon -c ID -n NAME --exit-command PATH ...
//
// A containerd may serve both the kubelet and dockerd.
func Serves(runtime string, sockets []string, shim string, args []string) bool {
	if sockets[0] == "" {
		return true // nothing to tell them apart by
	}
	crio := runtime == "crio" || path.Base(sockets[0]) == "crio.sock"
	switch shim {
	case "conmonrs":
		return crio
	case "conmon":
		ofPod := strings.HasPrefix(proc.ArgValue(args, "n"), "k8s_")
		return crio && ofPod && proc.ArgValue(args, "exit-command") == ""
	}
	namespace := "k8s.io" // of containerd, in which the CRI plugin keeps its containers
	if strings.HasPrefix(runtime, "cri-dockerd") {
		namespace = "moby"
	}
	address := runPath(proc.ArgValue(args, "address"))
	served := slices.ContainsFunc(sockets, func(socket string) bool { return runPath(socket) == address })
	return served && proc.ArgValue(args, "namespace") == namespace
}

// runPath is the path of a socket for a comparison: /var/run is /run everywhere.
func runPath(socket string) string {
	return strings.Replace(path.Clean(socket), "/var/run/", "/run/", 1)
}
