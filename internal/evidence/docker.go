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
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/plain"
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

// ping asks the Docker daemon at the other end of a connection for /_ping, which it answers
// without doing anything.
func ping(ctx context.Context, conn net.Conn) error {
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
	table              *proc.Table
	runtime, dockerd   *hop   // the latter is the next one
	otherwise          string // dockerd's socket where no argument names it
	daemon, containerd search
}

// search is how the socket of one hop is found: by the process of the hop before. It belongs to the
// goroutine of the hop's dialer.
type search struct {
	members *family.Members
	socket  string // by the arguments of the last process that has proved to be the hop before
	// doubt is the state of the hop's sources while a process is not believed to be the hop before.
	doubt atomic.Pointer[facts.Source]
}

// prove answers whether a process is the daemon that it is named after, behind its owner.
func (s *search) prove(p proc.Process, owner int) family.Answer {
	answer := s.members.Hop(context.Background(), p, owner)
	var doubt *facts.Source
	if !answer.Proven() {
		why := fmt.Sprintf("pid %d is not taken for %s: %s", p.PID, plain.Text(p.Comm), answer.Refused)
		doubt = &facts.Source{At: time.Now(), Err: why}
	}
	s.doubt.Store(doubt)
	return answer
}

// follow returns the socket that a process names which proves to be the hop before. It is lost where
// the process is refused, and stays where its identity cannot be read.
func (s *search) follow(p proc.Process, owner int, socketOf func(proc.Process) string) string {
	answer := s.prove(p, owner)
	switch {
	case answer.Proven():
		s.socket = socketOf(p)
	case answer.Err == nil:
		s.socket = ""
	}
	return s.socket
}

// daemonSocket returns the path of dockerd's socket, "" where the runtime is not cri-dockerd. It
// stays while the runtime has no process, or one whose identity cannot be read.
func (d *docker) daemonSocket() string {
	p := d.runtime.process.sampled()
	if strings.HasPrefix(p.Comm, "cri-dockerd") {
		return d.daemon.follow(p, 1, func(p proc.Process) string { return d.socketArg(p, "docker-endpoint", d.otherwise) })
	}
	d.daemon.doubt.Store(nil)
	switch {
	case p.PID != 0:
		d.daemon.socket = ""
	case d.daemon.socket == "" && path.Base(d.runtime.path()) == "cri-dockerd.sock":
		return d.otherwise
	}
	return d.daemon.socket
}

// containerdSocket returns the path of the socket of dockerd's containerd: that of
// dockerd's --containerd; else of the containerd that dockerd has started, whose socket
// is beside its configuration; else the system's. It is "" while dockerd is not seen.
func (d *docker) containerdSocket() string {
	p := d.dockerd.process.sampled()
	if p.Comm != "dockerd" {
		d.containerd.doubt.Store(nil)
		return ""
	}
	return d.containerd.follow(p, d.runtime.process.PID(), d.containerdOf)
}

// containerdOf returns the socket of the containerd of a dockerd.
func (d *docker) containerdOf(p proc.Process) string {
	if socket := d.socketArg(p, "containerd", ""); socket != "" {
		return socket
	}
	if all, err := d.table.Processes(context.Background(), searchInterval); err == nil {
		for _, child := range all.Children(p.PID) {
			config := proc.ArgValue(d.table.Args(child.ID()), "config")
			isContainerd := child.Comm == "containerd" && d.containerd.prove(child, p.PID).Proven()
			if isContainerd && path.IsAbs(config) {
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
