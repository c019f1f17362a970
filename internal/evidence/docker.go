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
// the process is refused, and stays where its identity, or its arguments, cannot be read.
func (s *search) follow(p proc.Process, owner int, socketOf func(proc.Process) (string, error)) string {
	answer := s.prove(p, owner)
	switch {
	case answer.Proven():
		socket, err := socketOf(p)
		if err != nil {
			s.doubt.Store(&facts.Source{At: time.Now(), Err: err.Error()})
			break
		}
		s.socket = socket
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
		return d.daemon.follow(p, 1, func(p proc.Process) (string, error) {
			return d.socketArg(p, "docker-endpoint", d.otherwise)
		})
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

// containerdOf returns the socket of the containerd of a dockerd. The error is why it is not known
// whether dockerd has started one itself.
func (d *docker) containerdOf(p proc.Process) (string, error) {
	socket, err := d.socketArg(p, "containerd", "")
	if socket != "" || err != nil {
		return socket, err
	}
	all, err := d.table.Processes(context.Background(), searchInterval)
	if err != nil {
		return "", err
	}
	for _, child := range all.Children(p.PID) {
		socket, err := d.startedSocket(child, p.PID)
		if socket != "" || err != nil {
			return socket, err
		}
	}
	if info, err := os.Stat(systemContainerd); err == nil && info.Mode()&os.ModeSocket != 0 {
		return systemContainerd, nil
	}
	return "", nil
}

// startedSocket returns the socket of a child of dockerd that is its containerd, "" for another one.
func (d *docker) startedSocket(child proc.Process, dockerd int) (string, error) {
	if child.Comm != "containerd" {
		return "", nil
	}
	answer := d.containerd.prove(child, dockerd)
	if answer.Err != nil {
		return "", fmt.Errorf("whether pid %d is the containerd of dockerd could not be read: %w", child.PID, answer.Err)
	}
	config, err := d.arg(child, "config")
	if err != nil || !answer.Proven() || !path.IsAbs(config) {
		return "", err
	}
	return path.Join(path.Dir(config), "containerd.sock"), nil
}

// socketArg returns the path of a unix socket that an argument names, or otherwise.
func (d *docker) socketArg(p proc.Process, name, otherwise string) (string, error) {
	value, err := d.arg(p, name)
	if err != nil {
		return "", err
	}
	socket := strings.TrimPrefix(value, "unix://")
	if !path.IsAbs(socket) {
		return otherwise, nil
	}
	return path.Clean(socket), nil
}

// arg returns the value of an argument of a process, "" where it is not given.
func (d *docker) arg(p proc.Process, name string) (string, error) {
	args := d.table.Args(p.ID())
	if args == nil {
		return "", fmt.Errorf("the arguments of pid %d (%s) could not be read", p.PID, plain.Text(p.Comm))
	}
	return proc.ArgValue(args, name), nil
}
