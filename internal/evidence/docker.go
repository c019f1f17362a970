package evidence

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/proc"
)

const (
	// DefaultDockerSocket is dockerd's where cri-dockerd's arguments name none.
	DefaultDockerSocket = "/run/docker.sock"
	// systemContainerd is what dockerd uses where it is there and nothing else is configured.
	systemContainerd = "/run/containerd/containerd.sock"
	dockerCaution    = "Look at live-restore first: without it a restart of dockerd ends every container of the node."

	maxPong = 16 << 10 // bytes of an answer that are read
)

// ping makes a connection and asks the Docker daemon at its other end for /_ping, which it
// answers without doing anything.
func ping(ctx context.Context, dial func(context.Context) (net.Conn, error)) error {
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing more is written
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	request := "GET /_ping HTTP/1.1\r\nHost: docker\r\nUser-Agent: plegd\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, maxPong)), nil)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // the status is the answer
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/_ping was answered with %s", answer.Status)
	}
	return nil
}

// docker finds the sockets of the hops behind cri-dockerd.
type docker struct {
	table            *proc.Table
	runtime, dockerd *hop   // the latter is the next one
	otherwise        string // dockerd's socket where no argument names it
	socket           string // dockerd's by the arguments of the last cri-dockerd
}

// daemonSocket returns the path of dockerd's socket, "" where the runtime is not cri-dockerd. It
// stays while the runtime has no process.
func (d *docker) daemonSocket() string {
	p := d.runtime.process.sampled()
	switch {
	case strings.HasPrefix(p.Comm, "cri-dockerd"):
		d.socket = d.socketArg(p, "docker-endpoint", d.otherwise)
	case p.PID != 0:
		d.socket = ""
	case d.socket == "" && path.Base(d.runtime.path()) == "cri-dockerd.sock":
		return d.otherwise
	}
	return d.socket
}

// containerdSocket returns the path of the socket of dockerd's containerd: that of
// dockerd's --containerd; else of the containerd that dockerd has started, whose socket
// is beside its configuration; else the system's. It is "" while dockerd is not seen.
func (d *docker) containerdSocket() string {
	p := d.dockerd.process.sampled()
	if p.Comm != "dockerd" {
		return ""
	}
	if socket := d.socketArg(p, "containerd", ""); socket != "" {
		return socket
	}
	if all, err := d.table.Processes(context.Background(), searchInterval); err == nil {
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

// socketArg returns the path of a unix socket that an argument names, or otherwise.
func (d *docker) socketArg(p proc.Process, name, otherwise string) string {
	socket := strings.TrimPrefix(proc.ArgValue(d.table.Args(p.ID()), name), "unix://")
	if !path.IsAbs(socket) {
		return otherwise
	}
	return path.Clean(socket)
}
