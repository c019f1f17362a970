package evidence

import (
	"context"
	"os"
	"path"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
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

// dockerPing is a request that every Docker daemon answers without doing anything.
var dockerPing = exchange{
	request: "GET /_ping HTTP/1.1\r\nHost: docker\r\nUser-Agent: plegd\r\nConnection: close\r\n\r\n",
	check: func(answer []byte) (complete bool, cause health.Cause, detail string) {
		line, _, complete := strings.Cut(string(answer), "\n")
		rest, ok := strings.CutPrefix(line, "HTTP/1.")
		switch ok = ok && len(rest) >= 5 && rest[1] == ' '; {
		case !ok:
			return complete, health.CauseProtocol, "the other end does not speak HTTP"
		case rest[2:5] != "200":
			return complete, health.CauseError, cut("/_ping was answered with" + strings.TrimSpace(rest[1:]))
		}
		return complete, health.CauseNone, ""
	},
}

// grpcHello begins an HTTP/2 connection, which every gRPC server answers with its
// SETTINGS. It calls nothing: the CRI plugin of dockerd's containerd may be off.
var grpcHello = exchange{
	request: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	check: func(answer []byte) (complete bool, cause health.Cause, detail string) {
		const header, settings = 9, 4 // RFC 9113, 4.1 and 6.5
		if complete = len(answer) >= header; !complete || answer[3] != settings {
			return complete, health.CauseProtocol, "the other end does not speak HTTP/2"
		}
		return true, health.CauseNone, ""
	},
}

// docker finds the sockets of the hops behind cri-dockerd.
type docker struct {
	table *node.Table
	// runtime returns the runtime's process and path is that of its socket; daemon
	// returns dockerd's process. Each is 0 while it is not known.
	runtime, daemon func() int
	path            func() string
	// otherwise is dockerd's socket where no argument names it.
	otherwise string
}

// behind reports whether the runtime is cri-dockerd.
func (d *docker) behind() bool {
	if p, err := d.table.Alive(d.runtime()); err == nil {
		return strings.HasPrefix(p.Comm, "cri-dockerd")
	}
	return path.Base(d.path()) == "cri-dockerd.sock"
}

// daemonSocket returns the path of dockerd's socket: that of cri-dockerd's
// --docker-endpoint, else the default; "" where the runtime is another one.
func (d *docker) daemonSocket(context.Context) string {
	if !d.behind() {
		return ""
	}
	return socketArg(d.table, d.runtime(), "docker-endpoint", d.otherwise)
}

// containerdSocket returns the path of the socket of dockerd's containerd: that of
// dockerd's --containerd; else of the containerd that dockerd has started, whose socket
// is beside its configuration; else the system's. It is "" while dockerd is not seen.
func (d *docker) containerdSocket(ctx context.Context) string {
	p, err := d.table.Alive(d.daemon())
	if err != nil || p.Comm != "dockerd" {
		return ""
	}
	if socket := socketArg(d.table, p.PID, "containerd", ""); socket != "" {
		return socket
	}
	if all, err := d.table.Processes(ctx, searchInterval); err == nil {
		for _, child := range all.Children(p.PID) {
			config := proc.ArgValue(d.table.Args(child.ID()), "config")
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
	socket := strings.TrimPrefix(proc.ArgValue(table.Args(p.ID()), name), "unix://")
	if !path.IsAbs(socket) {
		return otherwise
	}
	return path.Clean(socket)
}
