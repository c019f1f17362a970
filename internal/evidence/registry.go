package evidence

import (
	"time"

	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// Options are what the sources need to know of the daemon. The functions are called by
// several goroutines and never wait.
type Options struct {
	// ProcFS and SysFS are where /proc and /sys are mounted.
	ProcFS, SysFS string
	// Path returns the path of the runtime's socket, "" while there is none.
	Path func() string
	// HeldPeer returns the process behind the held connection, 0 while unknown.
	HeldPeer func() int
	// NewestPeer returns the process that listened when the newest connection was made,
	// and when that was.
	NewestPeer func() (pid int, at time.Time)
	// Changes counts the relists that found a pod changed; nil: not known.
	Changes func() uint64
	// Moved is called when the path leads to another process.
	Moved func()
	// DockerSocket is dockerd's; BehindDocker reports whether the runtime is
	// cri-dockerd.
	DockerSocket string
	BehindDocker func() bool
	// Kubelet configures the requests to the kubelet; without a URL there are none.
	Kubelet kubelet.Options
}

// Registry holds the sources.
type Registry struct {
	*Sampler
	process *Process
	docker  *Docker
}

// NewRegistry returns the sources: one line each. Their order is that in which facts are
// stored. The error is of a wrong option.
func NewRegistry(o Options) (*Registry, error) {
	r := &Registry{}
	table := node.NewTable(o.ProcFS)
	queue := NewQueue(o.Path)
	inode := func() uint64 {
		if q := queue.Value(); q != nil {
			return q.Inode
		}
		return 0
	}
	shimAddress := func() string {
		if socket := r.docker.ContainerdSocket(); socket != "" && o.BehindDocker() {
			return socket
		}
		return o.Path()
	}
	r.process = NewProcess(ProcessOptions{ProcFS: o.ProcFS, Table: table, PeerPID: o.HeldPeer, ListenerInode: inode})
	r.docker = NewDocker(table, o.ProcFS, o.SysFS, func() string { return dockerSocket(table, r.process.PID(), o.DockerSocket) }, o.BehindDocker)
	kubeletProcess := NewKubeletProcess(kubelet.NewProcess(o.ProcFS, table, o.Path, r.process.PID))
	r.Sampler = newSampler(
		queue,
		NewListener(ListenerOptions{
			ProcFS: o.ProcFS, Table: table, Path: o.Path, Queue: queue.Value, Peer: o.NewestPeer,
			Held: r.process.PID, Moved: o.Moved,
		}),
		r.process,
		NewChildren(ChildrenOptions{
			ProcFS: o.ProcFS, SysFS: o.SysFS, Table: table, PID: r.process.PID, Socket: shimAddress, Changes: o.Changes,
			Calm: func() bool { return !r.alert.Load() },
		}),
		NewCgroup(o.ProcFS, o.SysFS, r.process.PID),
		NewStorage(o.ProcFS, o.SysFS, r.storageProcesses),
		NewNode(o.ProcFS),
		kubeletProcess,
		r.docker.Ping,
		r.docker.Processes,
	)
	if o.Kubelet.HealthzURL == "" && o.Kubelet.MetricsURL == "" {
		return r, nil
	}
	o.Kubelet.Process = func() bool { return kubeletProcess.Value() != nil }
	health, err := NewKubelet(o.Kubelet)
	if err != nil {
		return nil, err
	}
	r.sources = append(r.sources, health)
	return r, nil
}

// PID returns the runtime's process, 0 while it is not known or has ended.
func (r *Registry) PID() int { return r.process.PID() }

// Sources returns the sources.
func (r *Registry) Sources() []Source { return r.sources }

// storageProcesses returns the processes that keep containers' data: the runtime, and
// the hops behind it.
func (r *Registry) storageProcesses() []int {
	pids := []int{r.process.PID()}
	if d := r.docker.Processes.Value(); d != nil {
		for _, p := range []*health.DockerProcess{d.Daemon, d.Containerd} {
			if p != nil && p.Process != nil && p.Process.Alive {
				pids = append(pids, p.Process.PID)
			}
		}
	}
	return pids
}

// Facts returns the last samples. It waits for no source.
func (r *Registry) Facts() health.Evidence {
	e := health.Evidence{Sources: map[string]health.Source{}}
	for _, s := range r.sources {
		s.Facts(&e)
		if state, ok := s.Source(); ok {
			e.Sources[s.String()] = state
		}
	}
	return e
}
