package evidence

import (
	"cmp"
	"context"
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
	// Moved is called when the path leads to another process, Notify when a source has news.
	Moved, Notify func()
	// DockerSocket is dockerd's where cri-dockerd's arguments name none.
	DockerSocket string
	// Kubelet configures the requests to the kubelet; without a URL there are none.
	Kubelet kubelet.Options
}

// Registry holds the sources.
type Registry struct {
	*Sampler
	// runtime is the first hop, behind are those that its calls pass through after it. parts
	// are the sources of the runtime and of the node.
	runtime *hop
	behind  []*hop
	parts   []Source
}

// NewRegistry returns the sources: one line each. Their order is that in which facts are
// stored.
func NewRegistry(o Options) *Registry {
	table := node.NewTable(o.ProcFS)
	newHop := func(prefix string) *hop {
		return &hop{prefix: prefix, procfs: o.ProcFS, sysfs: o.SysFS, table: table}
	}
	runtime, dockerd, containerd := newHop(""), newHop("dockerd_"), newHop("dockerd_containerd_")
	r := &Registry{runtime: runtime, behind: []*hop{dockerd, containerd}}
	runtime.path, runtime.held, runtime.newest, runtime.moved = o.Path, o.HeldPeer, o.NewestPeer, o.Moved
	runtime.watch()
	d := &docker{table: table, runtime: runtime, dockerd: dockerd, otherwise: o.DockerSocket}
	dockerd.caution = dockerCaution
	dockerd.watchBehind(d.daemonSocket, askPing, o.Notify)
	containerd.watchBehind(d.containerdSocket, askSettings, o.Notify)
	process := &kubelet.Process{ProcFS: o.ProcFS, Table: table, Endpoint: o.Path, Runtime: r.PID}
	kubeletProcess := NewWatch(Spec[health.KubeletProcess]{
		Name: "kubelet_process", Every: 2, Calm: 5, Timeout: 2 * time.Second, Gather: process.Sample,
		Store: func(e *health.Evidence, v *health.KubeletProcess) { e.KubeletProcess = v },
	})
	o.Kubelet.Process = func() bool { return kubeletProcess.Value() != nil }
	client := kubelet.New(o.Kubelet)
	r.parts = append(slices.Clone(runtime.sources),
		newChildren(&childrenSource{
			hop: runtime, socket: r.shimAddress, changes: o.Changes, calm: func() bool { return !r.alert.Load() },
		}),
		newStorage(&storage{procfs: o.ProcFS, sysfs: o.SysFS, table: table, pids: r.hopPIDs}),
		newNode(o.ProcFS),
		kubeletProcess,
		// A kubelet that stops is reported within 15 s: 4 s until the next sample, and 10 s
		// in which it must have failed.
		NewWatch(Spec[health.Kubelet]{
			Name: "kubelet", Every: 4, Timeout: 5 * time.Second, Again: func(v *health.Kubelet) bool { return !v.OK },
			Gather: client.Sample, Store: func(e *health.Evidence, v *health.Kubelet) { e.Kubelet = v },
		}),
	)
	r.Sampler = newSampler(o.Notify, slices.Concat(r.parts, dockerd.sources, containerd.sources)...)
	return r
}

// Run samples until ctx ends, and then returns nil. It waits for no source.
func (r *Registry) Run(ctx context.Context) error {
	for _, h := range r.behind {
		go func() { _ = h.dialer.Run(ctx) }() // it recovers
	}
	return r.Sampler.Run(ctx)
}

// PID returns the runtime's process, 0 while it is not known or has ended.
func (r *Registry) PID() int { return r.runtime.process.PID() }

// hopPIDs returns the processes that calls pass through: they keep containers' data.
func (r *Registry) hopPIDs() []int {
	pids := []int{r.PID()}
	for _, h := range r.behind {
		pids = append(pids, h.process.PID())
	}
	return pids
}

// shimAddress returns the path of the socket by which shims are started: the last hop's.
func (r *Registry) shimAddress() string {
	return cmp.Or(r.behind[1].path(), r.runtime.path())
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
	for _, h := range r.behind {
		h.facts(&e)
	}
	return e
}
