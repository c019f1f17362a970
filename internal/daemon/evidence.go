package daemon

import (
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/health"
)

// source is a source of evidence, as far as all have in common.
type source interface {
	Task
	shown
}

// shown is what is shown like a source.
type shown interface {
	Source() (health.Source, bool)
}

// sources are the sources of evidence beside the fresh dial.
type sources struct {
	queue          *evidence.Watch[health.Queue]
	listener       *evidence.Watch[health.Listener]
	connections    *evidence.Watch[health.Connections]
	process        *evidence.Process
	children       *evidence.Watch[health.Children]
	cgroup         *evidence.Watch[health.Cgroup]
	node           *evidence.Watch[health.Node]
	kubelet        *evidence.Watch[health.Kubelet]
	docker         *evidence.Docker
	kubeletProcess *evidence.Watch[health.KubeletProcess]
	// own are parts of plegd that are shown like a source and are none, by name:
	// the state directory, the web server and the control socket, where there is
	// one.
	own map[string]shown

	all  []source
	said map[string]string // what the log last said of a source
}

func (d *Daemon) newSources() (*sources, error) {
	cfg := &d.cfg
	s := &sources{own: map[string]shown{}, said: map[string]string{}}
	s.queue = evidence.NewQueue(cfg.ProcFS, d.runtime.path)
	s.connections = evidence.NewConnections(cfg.ProcFS, d.runtime.path)
	s.process = evidence.NewProcess(evidence.ProcessOptions{
		ProcFS: cfg.ProcFS, PeerPID: d.heldPeer,
		ListenerInode: func() uint64 {
			if q := s.queue.Value(); q != nil {
				return q.Inode
			}
			return 0
		},
	})
	s.listener = evidence.NewListener(evidence.ListenerOptions{
		ProcFS: cfg.ProcFS, Queue: s.queue.Value, Peer: d.newestPeer, Held: s.process.PID, Moved: d.dialer.Moved,
	})
	s.docker = evidence.NewDocker(cfg.ProcFS, cfg.SysFS, func() string { return cfg.DockerSocket }, d.behindCRIDockerd)
	s.children = evidence.NewChildren(cfg.ProcFS, cfg.SysFS, s.process.PID, d.shimAddress)
	s.cgroup = evidence.NewCgroup(cfg.ProcFS, cfg.SysFS, s.process.PID)
	s.node = evidence.NewNode(cfg.ProcFS)
	s.kubeletProcess = evidence.NewKubeletProcess(cfg.ProcFS, d.runtime.path)
	s.all = []source{s.queue, s.listener, s.connections, s.process, s.children, s.cgroup, s.node, s.kubeletProcess, s.docker.Ping, s.docker.Processes}
	if cfg.KubeletHealthzURL == "" && cfg.KubeletMetricsURL == "" {
		return s, nil
	}
	var err error
	s.kubelet, err = evidence.NewKubelet(evidence.KubeletOptions{
		HealthzURL: cfg.KubeletHealthzURL, MetricsURL: cfg.KubeletMetricsURL,
		TokenFile: cfg.KubeletTokenFile, CAFile: cfg.KubeletCAFile,
	})
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, s.kubelet)
	return s, nil
}

// heldPeer returns the process at the other end of the held connection; where
// none could be made, the one that listened when the newest connection was.
func (d *Daemon) heldPeer() int {
	if held := d.runtime.lastDial(); held != nil && held.Err == nil {
		return held.PeerPID
	}
	pid, _ := d.dialer.Peer()
	return pid
}

// mayServe reports whether a process may be the runtime behind the held
// connection.
func (d *Daemon) mayServe(pid int) bool {
	held := d.runtime.dial()
	return !held.Up || pid == 0 || held.PeerPID == 0 || pid == held.PeerPID
}

// newestPeer returns the process that listened at the path when the newest
// connection was made, the held one or a fresh one, and when that was.
func (d *Daemon) newestPeer() (pid int, at time.Time) {
	pid, at = d.dialer.Peer()
	if held := d.runtime.lastDial(); held != nil && held.Err == nil && held.At.After(at) {
		return held.PeerPID, held.At
	}
	return pid, at
}

// behindCRIDockerd tells whether the runtime is Docker's.
func (d *Daemon) behindCRIDockerd() bool {
	if v := d.dialer.Version(); v != nil && v.RuntimeName == "docker" {
		return true
	}
	return strings.HasSuffix(d.runtime.path(), "/cri-dockerd.sock")
}

// shimAddress is the socket that the runtime's shims have in their arguments:
// behind cri-dockerd that of dockerd's containerd.
func (d *Daemon) shimAddress() string {
	if d.behindCRIDockerd() {
		if socket := d.sources.docker.ContainerdSocket(); socket != "" {
			return socket
		}
	}
	return d.runtime.path()
}

// facts are what the sources last said.
func (s *sources) facts(probe *health.Probe) health.Evidence {
	e := health.Evidence{
		Sources: map[string]health.Source{},
		Queue:   s.queue.Value(), Listener: s.listener.Value(), Connections: s.connections.Value(), Process: s.process.Value(), Children: s.children.Value(),
		Cgroup: s.cgroup.Value(), Node: s.node.Value(), Docker: s.docker.Value(),
		KubeletProcess: s.kubeletProcess.Value(),
	}
	if s.kubelet != nil {
		e.Kubelet = s.kubelet.Value()
	}
	for _, src := range s.all {
		if state, ok := src.Source(); ok {
			e.Sources[src.String()] = state
		}
	}
	for name, part := range s.own {
		if state, ok := part.Source(); ok {
			e.Sources[name] = state
		}
	}
	if !probe.At.IsZero() { // that a dial fails is an answer
		e.Sources["dial"] = health.Source{Up: true, At: probe.At, Duration: probe.Connect + probe.Settings + probe.RPC}
	}
	return e
}

// tell says once of each source why it does not answer.
func (s *sources) tell(log *zap.Logger) {
	for _, src := range s.all {
		state, ok := src.Source()
		if !ok || state.Up || state.Kept || s.said[src.String()] == state.Err {
			continue
		}
		s.said[src.String()] = state.Err
		log.Info("a source of evidence does not answer; reasons that need it are not named",
			zap.String("source", src.String()), zap.String("error", state.Err), zap.Time("at", state.At.Round(time.Millisecond)))
	}
}
