package evidence

import (
	"context"
	"errors"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// DockerProcesses are dockerd and its containerd; a part is nil while it has not
// been found.
type DockerProcesses struct {
	Daemon, Containerd *health.DockerProcess
}

// dockerProcesses looks at dockerd and at its containerd.
type dockerProcesses struct {
	socket func() string
	daemon *dockerHop
	finder *containerdFinder
	third  *dockerHop
}

// newDockerProcesses returns the source. socket is dockerd's, "" while the
// runtime is not cri-dockerd; peer is the process that listens there by
// SO_PEERCRED, 0 while that is not known.
func newDockerProcesses(table *node.Table, procfs, sysfs string, socket func() string, peer func() int) *dockerProcesses {
	d := &dockerProcesses{socket: socket, finder: newContainerdFinder(table, procfs)}
	d.daemon = newDockerHop(table, procfs, sysfs, socket, peer)
	d.third = newDockerHop(table, procfs, sysfs, d.finder.socket, d.finder.pid)
	return d
}

// watchDockerProcesses returns the watch of both processes. It looks every
// second, and four times a second while one of them accepts nobody or does not
// run. /proc/PID/fd, by which dockerd's connection to its containerd is found,
// needs CAP_SYS_PTRACE; the rest no privilege.
func watchDockerProcesses(d *dockerProcesses) *Watch[DockerProcesses] {
	return NewWatch(Spec[DockerProcesses]{
		Name: "docker_process", Every: 1, Timeout: time.Second,
		Again:  func(v *DockerProcesses) bool { return inTrouble(v.Daemon) || inTrouble(v.Containerd) },
		Gather: d.gather,
		// They are part of what the ping says of dockerd, which is stored first.
		Store: func(e *health.Evidence, v *DockerProcesses) {
			if e.Docker != nil {
				whole := *e.Docker
				whole.Daemon, whole.Containerd = v.Daemon, v.Containerd
				e.Docker = &whole
			}
		},
	})
}

// inTrouble reports whether the end of a process's fault may come any moment.
func inTrouble(p *health.DockerProcess) bool {
	switch {
	case p == nil:
		return false
	case !p.DownSince.IsZero(), p.Queue != nil && p.Queue.Length > 0:
		return true
	}
	return p.Process != nil && p.Process.FDsExhausted()
}

// containerdSocket is the address of dockerd's containerd, "" while it is not
// known.
func (d *dockerProcesses) containerdSocket() string { return d.finder.socket() }

func (d *dockerProcesses) gather(ctx context.Context) (*DockerProcesses, error) {
	if d.socket() == "" {
		d.finder.forget()
		return nil, ErrNoData
	}
	daemon, err := d.daemon.look(ctx)
	if err != nil {
		return nil, err
	}
	v := &DockerProcesses{Daemon: daemon}
	if daemon.Process != nil && daemon.Process.Alive {
		d.finder.find(ctx, d.daemon.process.PID())
	}
	if d.finder.socket() != "" {
		// That it cannot be looked at takes nothing from what is known of dockerd.
		v.Containerd, _ = d.third.look(ctx)
	}
	return v, nil
}

// dockerHop is a process behind cri-dockerd with its socket.
type dockerHop struct {
	socket  func() string
	queue   *queueSource
	process *Process
	tree    cgroup.Tree
	inode   uint64

	down proc.ID
	at   time.Time
}

func newDockerHop(table *node.Table, procfs, sysfs string, socket func() string, pid func() int) *dockerHop {
	h := &dockerHop{socket: socket, queue: newQueueSource(socket), tree: cgroup.NewTree(procfs, sysfs)}
	h.process = NewProcess(ProcessOptions{ProcFS: procfs, Table: table, PeerPID: pid, ListenerInode: func() uint64 { return h.inode }})
	return h
}

// look returns what the node shows of the process and its queue; an error when
// it shows neither.
func (h *dockerHop) look(ctx context.Context) (*health.DockerProcess, error) {
	v := &health.DockerProcess{Socket: h.socket()}
	queue, noQueue := h.queue.gather(ctx)
	h.inode = 0
	if noQueue == nil {
		v.Queue, h.inode = queue, queue.Inode
	}
	process, noProcess := h.process.gather(ctx)
	if noProcess != nil {
		if noQueue != nil && !errors.Is(noProcess, ErrNoData) {
			return nil, noProcess
		}
		if noQueue != nil {
			return nil, noQueue
		}
		return v, nil
	}
	v.Process = process
	if process.Alive {
		if groups, err := h.tree.Of(process.PID); err == nil {
			_, v.Frozen = h.tree.Frozen(groups)
		}
	}
	if !process.Alive || v.Frozen || process.Stopped() {
		if h.at.IsZero() || h.down != h.process.lastID {
			h.down, h.at = h.process.lastID, time.Now()
		}
	} else {
		h.at = time.Time{}
	}
	v.DownSince = h.at
	return v, nil
}
