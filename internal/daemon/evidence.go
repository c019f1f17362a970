package daemon

import (
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/health"
)

// shown is any part that is displayed like a source.
type shown interface {
	Source() (health.Source, bool)
}

// sources are the sources of evidence beside the fresh dial.
type sources struct {
	*evidence.Registry

	log *zap.Logger
	// self are parts of plegd that are shown like a source and are none, by name: the
	// fresh dial, the state directory, the web server and the control socket.
	self   map[string]shown
	failed map[string]string // the last error of each source
}

func newSources(d *parts, log *zap.Logger) (*sources, error) {
	cfg := &d.cfg
	registry, err := evidence.NewRegistry(evidence.Options{
		ProcFS: cfg.ProcFS, SysFS: cfg.SysFS, Path: d.runtime.path, DockerSocket: cfg.DockerSocket,
		HeldPeer: d.heldPeer, NewestPeer: d.newestPeer, Moved: d.dialer.Moved,
		Changes: func() uint64 { return d.loop.Snapshot().Changes },
		Kubelet: kubelet.Options{
			HealthzURL: cfg.KubeletHealthzURL, MetricsURL: cfg.KubeletMetricsURL,
			TokenFile: cfg.KubeletTokenFile, CAFile: cfg.KubeletCAFile,
			Seen: func() bool { return d.restored.kubeletSeen },
		},
	})
	if err != nil {
		return nil, err
	}
	self := map[string]shown{"dial": d.dialer}
	return &sources{Registry: registry, log: log, self: self, failed: map[string]string{}}, nil
}

// heldPeer returns the process at the other end of the held connection; where
// none could be made, the one that listened when the newest connection was.
func (d *parts) heldPeer() int {
	if held := d.runtime.LastDial(); held != nil && held.Err == nil {
		return held.PeerPID
	}
	pid, _ := d.dialer.Peer()
	return pid
}

// newestPeer returns the process that listened at the path when the newest
// connection was made, the held one or a fresh one, and when that was.
func (d *parts) newestPeer() (pid int, at time.Time) {
	pid, at = d.dialer.Peer()
	if held := d.runtime.LastDial(); held != nil && held.Err == nil && held.At.After(at) {
		return held.PeerPID, held.At
	}
	return pid, at
}

// facts are what the sources last said.
func (s *sources) facts() health.Evidence {
	e := s.Facts()
	for name, part := range s.self {
		if state, ok := part.Source(); ok {
			e.Sources[name] = state
		}
	}
	return e
}

// logChanges logs each source that fails, and each that recovers.
func (s *sources) logChanges() {
	for _, src := range s.Sources() {
		if state, ok := src.Source(); ok && !state.Kept {
			s.note(src.String(), &state)
		}
	}
}

// note logs a source if its error has changed.
func (s *sources) note(name string, state *health.Source) {
	if s.failed[name] == state.Err {
		return
	}
	s.failed[name] = state.Err
	if state.Err == "" {
		s.log.Info("a source of evidence answers again", zap.String("source", name))
		return
	}
	s.log.Info("a source of evidence does not answer; reasons that need it are not named",
		zap.String("source", name), zap.String("error", state.Err), zap.Time("at", state.At.Round(time.Millisecond)))
}
