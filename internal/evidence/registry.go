package evidence

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/health"
)

// keptFiles is how many files of /proc and of cgroups a source keeps open that looks at
// the same ones each time: one of each shim. keptThreads is how many that of the runtime's
// threads does, two of each: containerd 1.7 has 250 of them with 60 pods.
const (
	keptFiles   = 512
	keptThreads = 1024
)

// keepOpen bounds what one source keeps open: by a quarter of the descriptors that plegd may
// have, since two or three do.
func keepOpen(most int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(uint64(most), limit.Cur/4))
}

// Source is one source of evidence, whatever its answer is.
type Source interface {
	// Run asks until ctx ends.
	Run(ctx context.Context) error
	// String names the source, as pleg_evidence_up labels it.
	String() string
	// Source reports how the source is; ok is false while it has nothing to say.
	Source() (s health.Source, ok bool)
	// Facts stores the last answer.
	Facts(e *health.Evidence)
	// Alert says whether something may be wrong: see Watch.Alert.
	Alert(on bool)
	// Notify has f called when the source has news: see Watch.Notify.
	Notify(f func())
}

// Options are what the sources need to know of the daemon. The functions are
// called by several goroutines and never wait.
type Options struct {
	// ProcFS and SysFS are where /proc and /sys are mounted.
	ProcFS, SysFS string
	// Path returns the path of the runtime's socket, "" while there is none.
	Path func() string
	// HeldPeer returns the process behind the held connection, 0 while unknown.
	HeldPeer func() int
	// NewestPeer returns the process that listened when the newest connection was
	// made, and when that was.
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
	Kubelet KubeletOptions
}

// Registry holds the sources.
type Registry struct {
	All []Source

	process *Process
	docker  *Docker
}

// NewRegistry returns the sources: one line each. Their order is that in which
// facts are stored. The error is of a wrong option.
func NewRegistry(o Options) (*Registry, error) {
	r := &Registry{}
	queue := NewQueue(o.ProcFS, o.Path)
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
	r.process = NewProcess(ProcessOptions{ProcFS: o.ProcFS, PeerPID: o.HeldPeer, ListenerInode: inode})
	r.docker = NewDocker(o.ProcFS, o.SysFS, func() string { return o.DockerSocket }, o.BehindDocker)
	kubeletProcess := NewKubeletProcess(o.ProcFS, o.Path)
	r.All = []Source{
		queue,
		NewListener(ListenerOptions{ProcFS: o.ProcFS, Path: o.Path, Queue: queue.Value, Peer: o.NewestPeer, Held: r.process.PID, Moved: o.Moved}),
		NewConnections(o.ProcFS, o.Path),
		r.process,
		NewChildren(ChildrenOptions{
			ProcFS: o.ProcFS, SysFS: o.SysFS, PID: r.process.PID, Socket: shimAddress, Changes: o.Changes,
			SearchAgain: searchChildrenAgain, SearchCalm: searchChildrenCalm,
		}),
		NewCgroup(o.ProcFS, o.SysFS, r.process.PID),
		NewStorage(o.ProcFS, o.SysFS, r.storageProcesses),
		NewNode(o.ProcFS),
		kubeletProcess,
		r.docker.Ping,
		r.docker.Processes,
	}
	if o.Kubelet.HealthzURL == "" && o.Kubelet.MetricsURL == "" {
		return r, nil
	}
	o.Kubelet.Process = func() bool { return kubeletProcess.Value() != nil }
	kubelet, err := NewKubelet(o.Kubelet)
	if err != nil {
		return nil, err
	}
	r.All = append(r.All, kubelet)
	return r, nil
}

// PID returns the runtime's process, 0 while it is not known or is gone.
func (r *Registry) PID() int { return r.process.PID() }

// Alert says to each source whether something may be wrong.
func (r *Registry) Alert(on bool) {
	for _, s := range r.All {
		s.Alert(on)
	}
}

// storageProcesses returns the processes that keep containers' data: the runtime,
// and what is behind cri-dockerd.
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

// Facts returns what the sources last said. It waits for none of them.
func (r *Registry) Facts() health.Evidence {
	e := health.Evidence{Sources: map[string]health.Source{}}
	for _, s := range r.All {
		s.Facts(&e)
		if state, ok := s.Source(); ok {
			e.Sources[s.String()] = state
		}
	}
	return e
}
