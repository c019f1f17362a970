package evidence

import (
	"context"
	"os"
	"path"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node"
)

const (
	// DefaultDockerSocket is where dockerd listens unless cri-dockerd's arguments name
	// another path.
	DefaultDockerSocket = "/run/docker.sock"
	// systemContainerd is the containerd that dockerd uses where it runs and nothing
	// else is configured.
	systemContainerd = "/run/containerd/containerd.sock"
	// dockerCaution is what a restart of dockerd does.
	dockerCaution = "A restart of dockerd ends every container of the node " +
		"unless \"live-restore\": true is in /etc/docker/daemon.json."
)

// docker finds the sockets of the hops behind cri-dockerd.
type docker struct {
	table *node.Table
	// runtime returns the runtime's process and path is that of its socket; daemon
	// returns dockerd's process. Each is 0 while it is not known.
	runtime, daemon func() int
	path            func() string
	// otherwise is dockerd's socket where no argument names it.
	otherwise string
	// socket is dockerd's by the arguments of the last cri-dockerd; it belongs to
	// daemonSocket.
	socket string
}

// daemonSocket returns the path of dockerd's socket: that of cri-dockerd's
// --docker-endpoint, else the default; "" where the runtime is another one. While the
// runtime has no process it is the path of before.
func (d *docker) daemonSocket() string {
	p, err := d.table.Alive(d.runtime())
	switch {
	case err == nil && strings.HasPrefix(p.Comm, "cri-dockerd"):
		d.socket = socketArg(d.table, p.PID, "docker-endpoint", d.otherwise)
	case err == nil:
		d.socket = ""
	case d.socket == "" && path.Base(d.path()) == "cri-dockerd.sock":
		return d.otherwise
	}
	return d.socket
}

// containerdSocket returns the path of the socket of dockerd's containerd: that of
// dockerd's --containerd; else of the containerd that dockerd has started, whose socket
// is beside its configuration; else the system's. It is "" while dockerd is not seen.
func (d *docker) containerdSocket() string {
	p, err := d.table.Alive(d.daemon())
	if err != nil || p.Comm != "dockerd" {
		return ""
	}
	if socket := socketArg(d.table, p.PID, "containerd", ""); socket != "" {
		return socket
	}
	if all, err := d.table.Processes(context.Background(), searchInterval); err == nil {
		for _, child := range all.Children(p.PID) {
			config := node.ArgValue(d.table.Args(child.ID()), "config")
			if child.Comm == "containerd" && path.IsAbs(config) {
				return path.Join(path.Dir(config), "containerd.sock")
			}
		}
	}
	if info, err := os.Stat(systemContainerd); err == nil && info.Mode()&os.ModeSocket != 0 {
		return systemContainerd
	}
	return ""
}

// socketArg returns the path of a unix socket that an argument of a process names, or
// otherwise.
func socketArg(table *node.Table, pid int, name, otherwise string) string {
	p, err := table.Alive(pid)
	if err != nil || pid == 0 {
		return otherwise
	}
	socket := strings.TrimPrefix(node.ArgValue(table.Args(p.ID()), name), "unix://")
	if !path.IsAbs(socket) {
		return otherwise
	}
	return path.Clean(socket)
}
