package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/facts"
)

const (
	// findTimeout limits one look for the socket; servesTimeout one question
	// whether runtime.v1 is served.
	findTimeout   = 5 * time.Second
	servesTimeout = time.Second
	// findInterval is the time between two looks while the socket that is watched
	// is only a guess, and between two looks at the kubelet afterwards.
	findInterval = 5 * time.Second
	// silentInterval is the time between two questions to a socket that takes
	// connections and does not answer.
	silentInterval = time.Minute
)

// path is the path of the runtime's socket, "" while none has been found.
func (d *Daemon) path() string { return d.endpoint.Load().Path }

// watchSocket watches the socket that a search has found.
func (d *Daemon) watchSocket(f *kubelet.Found) {
	if f.Path == "" && d.path() == "" {
		d.endpoint.Store(&facts.Endpoint{Searched: f.Searched})
	}
	if f.Path != "" && f.Path != d.path() {
		d.endpoint.Store(&facts.Endpoint{Path: f.Path, Source: f.Source})
		d.client.SetPath(f.Path)
	}
}

// afterSearch returns a task that begins when the first search for the socket has ended.
func (d *Daemon) afterSearch(run task) task {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-d.searched:
			return run(ctx)
		}
	}
}

// search is the search for the socket of the runtime.
type search struct {
	d      *Daemon
	finder *kubelet.Finder
	slot   bounded.Slot[kubelet.Found]
	// certain is true where the kubelet or a configuration has named the socket; followed is
	// the kubelet that ran then, as far as it was known.
	certain  bool
	followed facts.KubeletProcess
	// startWatching is called when the first look has ended, or is late: watching begins.
	startWatching func()
}

// find looks for the socket until it is certain, and then follows the kubelet, until ctx ends;
// it returns nil then. A look that blocks is abandoned, and another is made only when it has
// returned.
func (d *Daemon) find(ctx context.Context) error {
	if d.cfg.RuntimeEndpoint != "" {
		close(d.searched)
		return nil
	}
	s := &search{
		d: d, finder: &kubelet.Finder{ProcFS: d.cfg.ProcFS, Serves: d.serves()},
		startWatching: sync.OnceFunc(func() { close(d.searched) }),
	}
	for wait := time.Duration(0); bounded.Sleep(ctx, wait); wait = s.interval() {
		if !s.certain || s.kubeletMoved() {
			s.look(ctx, s.finder.Find)
		}
	}
	return nil
}

// interval returns the time until the next look.
func (s *search) interval() time.Duration {
	if s.d.path() == "" {
		return s.d.cfg.RelistPeriod
	}
	return findInterval
}

// kubeletMoved reports whether the node's kubelet is set to another socket than the one that
// is watched: it has been restarted since the last search that was certain.
func (s *search) kubeletMoved() bool {
	k := s.d.sources.KubeletProcess()
	if k == nil || k.PID == s.followed.PID && k.StartTicks == s.followed.StartTicks {
		return false
	}
	path, err := kubelet.ParseEndpoint(k.Endpoint)
	return err == nil && path != s.d.path()
}

// look makes one search. Watching begins when the first has ended or is late.
func (s *search) look(ctx context.Context, find func(context.Context) kubelet.Found) {
	d := s.d
	found, err := s.slot.Do(ctx, findTimeout, func(ctx context.Context) (kubelet.Found, error) { return find(ctx), nil })
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if !errors.Is(err, bounded.ErrBusy) {
			d.log.Error("the search for the runtime's socket failed", zap.Error(err))
		}
		d.watchSocket(&kubelet.Found{Endpoint: facts.Endpoint{Searched: []string{"the search has failed: " + err.Error()}}})
	} else {
		s.use(ctx, &found)
	}
	s.startWatching()
}

// use uses what a search has found.
func (s *search) use(ctx context.Context, found *kubelet.Found) {
	d := s.d
	watched := d.path()
	if found.Serves { // only the kubelet or a configuration names another one
		s.finder.Serves = nil
	}
	if s.certain && !found.Certain {
		return
	}
	if found.Certain {
		s.certain = true
		if k := d.sources.KubeletProcess(); k != nil {
			s.followed = *k
		}
	}
	if watched != "" && s.finder.SameSocket(ctx, found.Path, watched) {
		d.endpoint.Store(&facts.Endpoint{Path: watched, Source: found.Source})
		return
	}
	d.watchSocket(found)
	if d.path() != watched {
		d.log.Info("watching the runtime", zap.String("socket", found.Path), zap.String("named_by", found.Source))
		d.loop.Relist()
	}
}

// serves returns a function that reports whether runtime.v1 is served at a socket. It asks
// one that did not answer again after a minute only: each connection stays in
// its accept queue. Of the socket that is watched the held connection tells.
func (d *Daemon) serves() func(context.Context, string) bool {
	silent := map[string]time.Time{}
	return func(ctx context.Context, path string) bool {
		if path == d.path() {
			return slices.ContainsFunc(cri.Operations(), func(op string) bool { return !d.client.History(op).LastOK.IsZero() })
		}
		if time.Since(silent[path]) < silentInterval {
			return false
		}
		client := cri.New(cri.Options{Path: path, Dial: d.cfg.Dial, RPCTimeout: servesTimeout})
		defer func() { _ = client.Close() }()
		_, err := client.Version(ctx)
		failed := cri.AsError(err)
		dial := client.LastDial()
		if dial != nil && dial.Err == nil && failed != nil && failed.Code == cri.CodeDeadlineExceeded {
			silent[path] = time.Now()
		}
		return err == nil
	}
}
