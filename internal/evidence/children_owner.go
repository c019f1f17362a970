package evidence

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// The namespaces of containerd in which the CRI plugin and dockerd keep their
// containers.
const (
	criNamespace    = "k8s.io"
	dockerNamespace = "moby"
)

// childrenOwner decides whose a shim or conmon is, by its arguments. They are:
//
//	containerd 1.6 to 2.4  containerd-shim-runc-v2 -namespace k8s.io -id ID -address SOCKET
//	dockerd                the same with -namespace moby
//	CRI-O                  conmon -c ID -n k8s_NAME --exit-dir DIR ..., conmonrs
//	podman                 conmon -c ID -n NAME --exit-command PATH ...
//
// A shim is the runtime's if it was started for the runtime's socket and in its
// namespace: a containerd may serve both the kubelet and dockerd. A conmon is
// CRI-O's if it has a name of the kubelet's and no exit command.
type childrenOwner struct {
	runtime proc.ID
	socket  string   // the path that sockets were taken from
	sockets []string // the paths of the runtime's socket, none: not known
	crio    bool
	docker  bool // behind cri-dockerd
	looker  pathLooker
}

// look takes note of the runtime. The path is resolved once for each process: it
// may lead to another runtime later.
func (o *childrenOwner) look(ctx context.Context, c *childrenSource, runtime int) {
	s, err := c.reader.Stat(c.procfs, runtime)
	if err != nil {
		return
	}
	socket := c.socket()
	if s.ID() == o.runtime && socket == o.socket {
		return
	}
	o.runtime, o.socket, o.sockets = s.ID(), socket, nil
	o.crio = s.Comm == "crio" || path.Base(socket) == "crio.sock"
	o.docker = strings.HasPrefix(s.Comm, "cri-dockerd")
	if socket == "" {
		return
	}
	if o.looker.look == nil {
		o.looker.look = lookAt
	}
	for _, name := range o.looker.at(ctx, socket).names {
		o.sockets = append(o.sockets, plainPath(name))
	}
}

// owns reports whether a shim or conmon is the runtime's. One whose arguments are
// not known is not.
func (o *childrenOwner) owns(comm string, args []string) bool {
	switch {
	case o.socket == "":
		return true // nothing to tell them apart by
	case comm == "conmonrs":
		return o.crio
	case comm == "conmon":
		return o.crio && strings.HasPrefix(proc.ArgValue(args, "n"), "k8s_") && proc.ArgValue(args, "exit-command") == ""
	}
	namespace := criNamespace
	if o.docker {
		namespace = dockerNamespace
	}
	address := proc.ArgValue(args, "address")
	return address != "" && slices.Contains(o.sockets, plainPath(address)) && proc.ArgValue(args, "namespace") == namespace
}
