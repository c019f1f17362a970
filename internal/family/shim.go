package family

import (
	"path"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/proc"
)

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
	if len(sockets) == 0 {
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
	address := RunPath(proc.ArgValue(args, "address"))
	served := slices.ContainsFunc(sockets, func(socket string) bool { return RunPath(socket) == address })
	return served && proc.ArgValue(args, "namespace") == namespace
}

// RunPath is a path for a comparison: /var/run is /run everywhere.
func RunPath(place string) string {
	place = path.Clean(place)
	rest, found := strings.CutPrefix(place, "/var/run/")
	if found {
		return "/run/" + rest
	}
	return place
}
