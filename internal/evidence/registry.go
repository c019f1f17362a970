package evidence

import (
	"cmp"
	"slices"
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
	// Changes counts the relists that found a pod changed.
	Changes func() uint64
	// Moved is called when the path leads to another process.
	Moved func()
	// DockerSocket is dockerd's where cri-dockerd's arguments name none.
	DockerSocket string
	// Kubelet configures the requests to the kubelet; without a URL there are none.
	Kubelet kubelet.Options
}

// Registry holds the sources.
type Registry struct {
	*Sampler
	// hops are the runtime and those that its calls pass through behind it. parts are
	// the sources of the runtime and of the node.
	hops  []*hop
	parts []Source
}

// NewRegistry returns the sources: one line each. Their order is that in which facts are
// stored. The error is of a wrong option.
func NewRegistry(o Options) (*Registry, error) {
	r := &Registry{}
	table := node.NewTable(o.ProcFS)
	newHop := func() *hop { return &hop{procfs: o.ProcFS, sysfs: o.SysFS, table: table} }
	runtime, dockerd, containerd := newHop(), newHop(), newHop()
	r.hops = []*hop{runtime, dockerd, containerd}
	runtime.path, runtime.held, runtime.newest, runtime.moved = o.Path, o.HeldPeer, o.NewestPeer, o.Moved
	runtime.watch()
	dockerd.prefix, dockerd.caution, containerd.prefix = "dockerd_", dockerCaution, "dockerd_containerd_"
	d := &docker{
		table: table, path: o.Path, otherwise: o.DockerSocket,
		runtime: r.PID, daemon: func() int { return dockerd.process.PID() },
	}
	dockerd.watchBehind(d.daemonSocket, &dockerPing)
	containerd.watchBehind(d.containerdSocket, &grpcHello)
	kubeletProcess := newKubeletProcess(kubelet.NewProcess(o.ProcFS, table, o.Path, r.PID))
	r.parts = append(slices.Clone(runtime.sources),
		newChildren(childrenOptions{
			ProcFS: o.ProcFS, SysFS: o.SysFS, Table: table, PID: r.PID, Socket: r.shimAddress, Changes: o.Changes,
			Calm: func() bool { return !r.alert.Load() },
		}),
		newStorage(o.ProcFS, o.SysFS, table, r.hopPIDs),
		newNode(o.ProcFS),
		kubeletProcess,
	)
	if o.Kubelet.HealthzURL != "" || o.Kubelet.MetricsURL != "" {
		o.Kubelet.Process = func() bool { return kubeletProcess.Value() != nil }
		health, err := newKubelet(o.Kubelet)
		if err != nil {
			return nil, err
		}
		r.parts = append(r.parts, health)
	}
	r.Sampler = newSampler(slices.Concat(r.parts, dockerd.sources, containerd.sources)...)
	return r, nil
}

// PID returns the runtime's process, 0 while it is not known or has ended.
func (r *Registry) PID() int { return r.hops[0].process.PID() }

// Sources returns the sources.
func (r *Registry) Sources() []Source { return r.sources }

// hopPIDs returns the processes that calls pass through: they keep containers' data.
func (r *Registry) hopPIDs() (pids []int) {
	for _, h := range r.hops {
		pids = append(pids, h.process.PID())
	}
	return pids
}

// shimAddress returns the path of the socket by which shims are started: the last hop's.
func (r *Registry) shimAddress() string {
	return cmp.Or(r.hops[2].path(), r.hops[0].path())
}

// Facts returns the last samples. It waits for no source.
func (r *Registry) Facts() health.Evidence {
	e := health.Evidence{Sources: map[string]health.Source{}}
	for _, s := range r.parts {
		s.Facts(&e)
		if state, ok := s.Source(); ok {
			e.Sources[s.String()] = state
		}
	}
	for _, h := range r.hops {
		h.facts(&e)
	}
	return e
}
