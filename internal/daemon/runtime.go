package daemon

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence"
	"github.com/plegd/plegd/internal/evidence/kubelet"
	"github.com/plegd/plegd/internal/health"
)

const (
	// findTimeout limits one look for the socket; servesTimeout one question
	// whether runtime.v1 is served.
	findTimeout   = 5 * time.Second
	servesTimeout = time.Second
	// findAgain is the time between two looks while the socket that is watched
	// is only a guess.
	findAgain = 5 * time.Second
	// askSilentAgain is the time between two questions to a socket that takes
	// connections and does not answer.
	askSilentAgain = time.Minute
)

// runtime is the runtime that is watched: the held connection, and the search for its
// socket where no endpoint was given.
type runtime struct {
	*cri.Client

	cfg      *Config
	log      *zap.Logger
	endpoint atomic.Pointer[health.Endpoint]
	// searched is closed when the first search for the socket has ended.
	searched  chan struct{}
	endSearch func()
}

// newRuntime returns the runtime of cfg; with an endpoint that was given it
// has its socket from the start.
func newRuntime(cfg *Config, observer cri.Observer, log *zap.Logger) (*runtime, error) {
	r := &runtime{cfg: cfg, log: log, searched: make(chan struct{})}
	r.endSearch = sync.OnceFunc(func() { close(r.searched) })
	r.endpoint.Store(&health.Endpoint{Searching: true})
	r.Client = cri.New(cri.Options{Dial: cfg.Dial, RPCTimeout: cfg.RPCTimeout, Observer: observer})
	if cfg.RuntimeEndpoint == "" {
		return r, nil
	}
	path, err := kubelet.ParseEndpoint(cfg.RuntimeEndpoint)
	if err != nil {
		return nil, err
	}
	r.take(&kubelet.Found{Path: path, Source: "--runtime-endpoint"})
	return r, nil
}

// path is the socket's path, "" while none has been found.
func (r *runtime) path() string { return r.endpoint.Load().Path }

// take watches the socket that a search has found.
func (r *runtime) take(f *kubelet.Found) {
	defer r.endSearch()
	if f.Path == "" && r.path() == "" {
		r.endpoint.Store(&health.Endpoint{Searched: f.Searched})
	}
	if f.Path != "" && f.Path != r.path() {
		r.endpoint.Store(&health.Endpoint{Path: f.Path, Source: f.Source})
		r.SetPath(f.Path)
	}
}

// find looks for the socket until it is certain, and then returns nil. taken is called
// for each one that is watched from then on. A look that blocks is abandoned, and another
// is made only when it has returned.
func (r *runtime) find(ctx context.Context, taken func()) error {
	if r.cfg.RuntimeEndpoint != "" {
		return nil
	}
	finder := &kubelet.Finder{ProcFS: r.cfg.ProcFS, Serves: r.serves()}
	var look bounded.Slot[kubelet.Found]
	for {
		f, err := look.Do(ctx, findTimeout, func(ctx context.Context) (kubelet.Found, error) { return finder.Find(ctx), nil })
		switch before := r.path(); {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			r.take(&f)
			if r.path() != before {
				r.log.Info("watching the runtime", zap.String("socket", f.Path), zap.String("named_by", f.Source))
				taken()
			}
			if f.Certain {
				return nil
			}
			if f.Serves { // only the kubelet or a configuration names another one
				finder.Serves = nil
			}
		case !errors.Is(err, bounded.ErrBusy) && !errors.Is(err, bounded.ErrLate): // a panic
			r.log.Error("the search for the runtime's socket failed", zap.Error(err))
		}
		wait := r.cfg.RelistPeriod
		if r.path() != "" {
			wait = findAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// afterSearch returns a task that begins when the first search for the socket has
// ended: before that there is nobody to call.
func (r *runtime) afterSearch(run task) task {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-r.searched:
			return run(ctx)
		}
	}
}

// serves returns what reports whether runtime.v1 is served at a socket. It asks
// one that did not answer again after a minute only: each connection stays in
// its accept queue. Of the socket that is watched the held connection tells.
func (r *runtime) serves() func(context.Context, string) bool {
	silent := map[string]time.Time{}
	return func(ctx context.Context, path string) bool {
		if path == r.path() {
			return slices.ContainsFunc(cri.Operations(), func(op string) bool { return !r.History(op).LastOK.IsZero() })
		}
		if time.Since(silent[path]) < askSilentAgain {
			return false
		}
		client := cri.New(cri.Options{Path: path, Dial: r.cfg.Dial, RPCTimeout: servesTimeout})
		defer func() { _ = client.Close() }()
		_, err := client.Version(ctx)
		var e *health.CallError
		if dial := client.LastDial(); dial != nil && dial.Err == nil && errors.As(err, &e) &&
			e.Code == cri.CodeDeadlineExceeded {
			silent[path] = time.Now()
		}
		return err == nil
	}
}

// mayServe reports whether a process may be the runtime behind the held
// connection.
func (r *runtime) mayServe(pid int) bool {
	held, up := r.Peer()
	return !up || pid == 0 || held == 0 || pid == held
}

// calls and dial are the runtime's part of the facts.
func (r *runtime) calls() map[string]health.Call {
	calls := map[string]health.Call{}
	if r.path() == "" {
		return calls
	}
	for _, op := range cri.Operations() {
		calls[op] = r.History(op)
	}
	return calls
}

func (r *runtime) dial() (d health.Dial) {
	if last := r.LastDial(); last != nil {
		d.At = last.At
		d.Cause, d.Detail = evidence.ConnectCause(last.Err, r.path())
		d.PeerPID, d.Up = r.Peer()
	}
	return d
}
