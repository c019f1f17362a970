package evidence

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// The namespaces of containerd in which the CRI plugin and dockerd keep their
// containers.
const (
	criNamespace    = "k8s.io"
	dockerNamespace = "moby"
)

// childrenOwner decides whose a shim or conmon is, by its arguments:
//
//	containerd 1.6 to 2.4  containerd-shim-runc-v2 -namespace k8s.io -id ID -address SOCKET
//	dockerd                the same with -namespace moby
//	CRI-O                  conmon -c ID -n k8s_NAME --exit-dir DIR ..., conmonrs
//	podman                 conmon -c ID -n NAME --exit-command PATH ...
//
// A shim is the runtime's if it was started for the runtime's socket and in its
// namespace: a containerd may serve both the kubelet and dockerd. A conmon is CRI-O's if
// it has a name of the kubelet's and no exit command.
type childrenOwner struct {
	runtime proc.ID
	socket  string   // the path that sockets were resolved from
	sockets []string // the paths of the runtime's socket
	crio    bool
	docker  bool // behind cri-dockerd
	stat    pathStat
}

// update reads the runtime. The path is resolved once for each process: it may lead to
// another runtime later.
func (o *childrenOwner) update(ctx context.Context, c *childrenSource, all *node.Processes) {
	s, ok := all.ByPID[c.runtime]
	socket := c.opts.Socket()
	if !ok || s.ID() == o.runtime && socket == o.socket {
		return
	}
	o.runtime, o.socket, o.sockets = s.ID(), socket, nil
	o.crio = s.Comm == "crio" || path.Base(socket) == "crio.sock"
	o.docker = strings.HasPrefix(s.Comm, "cri-dockerd")
	if socket == "" {
		return
	}
	for _, name := range o.stat.at(ctx, socket).names {
		o.sockets = append(o.sockets, runPath(name))
	}
}

// owns reports whether a shim or conmon is the runtime's. One whose arguments are not
// known is not.
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
	return address != "" && slices.Contains(o.sockets, runPath(address)) && proc.ArgValue(args, "namespace") == namespace
}

// runPath is the path of a socket for a comparison: /var/run is /run everywhere.
func runPath(p string) string { return strings.Replace(path.Clean(p), "/var/run/", "/run/", 1) }

// sandboxOf returns the id of the sandbox that a shim serves, or of the container or
// sandbox that a conmon does, "" where its arguments do not name one.
func sandboxOf(comm string, args []string) string {
	name := "id"
	if strings.HasPrefix(comm, "conmon") {
		name = "c"
	}
	id := proc.ArgValue(args, name)
	if len(id) > 128 || strings.Trim(id, idChars) != "" {
		return ""
	}
	return id
}

const idChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."
