package evidence

import (
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

// Options are what the sources need to know of the daemon. The functions are called by
// several goroutines and never wait.
type Options struct {
	ProcFS, SysFS string // where /proc and /sys are mounted
	// Dialer makes fresh connections to the runtime's socket; it is run by the caller. Dialed
	// returns the last connect(2) of the held connection, nil before the first.
	Dialer       *Dialer
	Dialed       func() *cri.DialResult
	Client       *cri.Client   // the held connection
	Changes      func() uint64 // counts the relists that found a pod changed
	Notify       func()        // is called when a source has news
	Pulse        Pulse
	DockerSocket string          // dockerd's where cri-dockerd's arguments name none
	Kubelet      kubelet.Options // without a URL there are no requests to it
	Pinned       bool            // the user has named the runtime's socket
}

// Registry holds the sources.
type Registry struct {
	*Sampler
	Table *proc.Table // of the node's processes
	Shims *family.Shims
	hops  []*hop   // the runtime, and those that its calls pass through after it
	parts []Source // of the runtime and of the node

	kubelet *Watch[facts.KubeletProcess]
}

// NewRegistry returns the sources.
func NewRegistry(o Options) *Registry {
	r := &Registry{Table: proc.NewTable(o.ProcFS)}
	r.Shims = family.NewShims(r.Table)
	runtime := r.newHop(o, "", o.Dialer, o.Dialer.opts.Path)
	runtime.dialed = o.Dialed
	d := &docker{table: r.Table, runtime: runtime, otherwise: o.DockerSocket}
	d.daemon.members = family.NewMembers(r.Table)
	d.containerd.members = family.NewMembers(r.Table)
	d.dockerd = r.newHopBehind(o, "dockerd_", d.daemonSocket, true)
	d.dockerd.caution = dockerCaution
	d.dockerd.doubt = &d.daemon.doubt
	containerd := r.newHopBehind(o, "dockerd_containerd_", d.containerdSocket, false)
	containerd.doubt = &d.containerd.doubt
	r.hops = []*hop{runtime, d.dockerd, containerd}
	r.parts = append(slices.Clone(runtime.sources),
		newChildren(&childrenSource{
			hop:     runtime,
			family:  r.Shims,
			changes: o.Changes,
			sockets: r.Sockets,
		}),
		newStorage(&storage{
			procfs:  o.ProcFS,
			sysfs:   o.SysFS,
			table:   r.Table,
			pids:    r.PIDs,
			isCalm:  runtime.isCalm,
			sockets: r.Sockets,
		}),
		newNode(o.ProcFS),
		newSandboxImage(&sandboxImage{client: o.Client, process: runtime.process.Value}),
	)
	r.parts = append(r.parts, r.newKubelet(o)...)
	r.parts = append(r.parts, r.newKernelLog(o.ProcFS))
	r.Sampler = newSampler(o.Notify, slices.Concat(r.parts, d.dockerd.sources, containerd.sources)...)
	r.Sampler.pulse = o.Pulse
	return r
}

// newHop returns the sources of one process that serves a socket.
func (r *Registry) newHop(o Options, prefix string, d *Dialer, path func() string) *hop {
	h := &hop{
		prefix: prefix,
		procfs: o.ProcFS,
		sysfs:  o.SysFS,
		table:  r.Table,
		dialer: d,
		path:   path,
		dialed: func() *cri.DialResult { return nil },
		calm:   func() bool { return !r.IsAlert() },
	}
	return h.watch()
}

// newHopBehind returns the sources of a hop behind the runtime, with a dialer of its own.
func (r *Registry) newHopBehind(o Options, prefix string, find func() string, ping bool) *hop {
	d := NewDialer(DialOptions{
		Path:    find,
		Period:  probePeriod,
		Timeout: probePeriod,
		ping:    ping,
		anyGRPC: true,
		Pulse:   o.Pulse,
		Done: func(p facts.Probe) {
			if !p.OK {
				o.Notify()
			}
		},
	})
	return r.newHop(o, prefix, d, func() string { return *d.path.Load() })
}

// newKubelet returns the sources about the kubelet.
func (r *Registry) newKubelet(o Options) []Source {
	process := &kubelet.Process{
		ProcFS:   o.ProcFS,
		Table:    r.Table,
		Endpoint: r.hops[0].path,
		Runtime:  r.PID,
		Pinned:   o.Pinned,
	}
	r.kubelet = NewWatch(Spec[facts.KubeletProcess]{
		Name:    "kubelet_process",
		Every:   2,
		Calm:    4,
		Timeout: 2 * time.Second,
		Gather:  process.Sample,
		Unread:  process.Unread,
		Store:   func(e *facts.Evidence, v *facts.KubeletProcess) { e.KubeletProcess = v },
	})
	api := &kubelet.API{ProcFS: o.ProcFS, Process: process}
	connection := NewWatch(Spec[facts.KubeletAPI]{
		Name:     "kubelet_api",
		Every:    2,
		Calm:     4,
		Timeout:  3 * time.Second,
		Gather:   api.Sample,
		Resample: func(v *facts.KubeletAPI) bool { return !v.LostSince.IsZero() },
		Store:    func(e *facts.Evidence, v *facts.KubeletAPI) { e.KubeletAPI = v },
	})
	o.Kubelet.Process = r.kubelet.Sampled
	client := kubelet.New(o.Kubelet)
	// A kubelet that stops is reported within 15 s: 4 s until the next sample, and 10 s
	// in which it must have failed.
	report := NewWatch(Spec[facts.Kubelet]{
		Name:     "kubelet",
		Every:    4,
		Timeout:  5 * time.Second,
		Resample: func(v *facts.Kubelet) bool { return !v.OK || v.API.Refused != "" },
		Gather:   client.Sample,
		Store: func(e *facts.Evidence, v *facts.Kubelet) {
			e.Kubelet = v
			e.KubeletUnit = process.Unit()
		},
	})
	return []Source{r.kubelet, connection, report}
}

// probePeriod is that of a hop behind the runtime, and the limit of a stage of a probe.
const probePeriod = time.Second

// Run samples, and probes the hops behind the runtime, until ctx ends, and then returns nil.
// It waits for no source.
func (r *Registry) Run(ctx context.Context) error {
	for _, h := range r.hops[1:] {
		go func() { _ = h.dialer.Run(ctx) }()
	}
	return r.Sampler.Run(ctx)
}

// PID returns the runtime's process, 0 while it is not known or has ended.
func (r *Registry) PID() int { return r.hops[0].process.PID() }

// KubeletProcess returns the node's kubelet, nil while none is known.
func (r *Registry) KubeletProcess() *facts.KubeletProcess { return r.kubelet.Value() }

// PIDs returns the processes that calls pass through, the runtime's first, 0 for an unknown
// one: they keep containers' data.
func (r *Registry) PIDs() []int {
	var out []int
	for _, h := range r.hops {
		out = append(out, h.process.PID())
	}
	return out
}

// Sockets returns the sockets at which the processes of PIDs answer calls, under each of their names.
func (r *Registry) Sockets() []string {
	var out []string
	for _, h := range r.hops {
		if path := h.path(); path != "" {
			out = append(out, spellings(path)...)
		}
	}
	return out
}

// Facts returns the last samples. It waits for no source.
func (r *Registry) Facts() facts.Evidence {
	e := facts.Evidence{Sources: make(map[string]facts.Source, len(r.parts))}
	for _, s := range r.parts {
		if state, ok := s.report(&e); ok {
			e.Sources[s.String()] = state
		}
	}
	for _, h := range r.hops[1:] {
		h.facts(&e)
	}
	return e
}
