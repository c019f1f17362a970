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
	"github.com/plegd/plegd/internal/relist"
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

	cfg *Config
	log *zap.Logger
	// watched is nil while no socket has been found.
	watched  atomic.Pointer[health.Endpoint]
	searched atomic.Pointer[[]string]
	cause    atomic.Pointer[dialCause]
	// search is closed when the first search for the socket has ended. Relists
	// and Status calls wait for it.
	search    chan struct{}
	endSearch func()
}

// dialCause is a connect(2) with its cause, which takes a look at the socket's file.
type dialCause struct {
	of   *cri.DialResult
	dial health.Dial
}

// newRuntime returns the runtime of cfg; with an endpoint that was given it
// has its socket from the start.
func newRuntime(cfg *Config, observer cri.Observer, log *zap.Logger) (*runtime, error) {
	r := &runtime{cfg: cfg, log: log, search: make(chan struct{})}
	r.endSearch = sync.OnceFunc(func() { close(r.search) })
	var err error
	r.Client, err = cri.New(cri.Options{
		NoPath: true, Dial: cfg.dialer(r.path), RPCTimeout: cfg.RPCTimeout, Observer: observer,
	})
	if err != nil || cfg.RuntimeEndpoint == "" {
		return r, err
	}
	r.endSearch()
	path, err := kubelet.ParseEndpoint(cfg.RuntimeEndpoint)
	if err != nil {
		return nil, err
	}
	return r, r.watch(path, "--runtime-endpoint")
}

func (r *runtime) watch(path, source string) error {
	r.watched.Store(&health.Endpoint{Path: path, Source: source})
	return r.SetPath(path)
}

// path is the socket's path, "" while none has been found.
func (r *runtime) path() string {
	if w := r.watched.Load(); w != nil {
		return w.Path
	}
	return ""
}

// search is the task that finds the runtime's socket where no endpoint was given.
type search struct {
	runtime *runtime
	loop    *relist.Loop
}

// String names the task.
func (s *search) String() string { return "endpoint" }

// Run looks for the socket until it is certain, and then returns nil. A look that
// blocks is abandoned, and another is made only when it has returned.
func (s *search) Run(ctx context.Context) error {
	r := s.runtime
	if r.cfg.RuntimeEndpoint != "" {
		return nil
	}
	finder := &kubelet.Finder{ProcFS: r.cfg.ProcFS, Serves: r.serves()}
	var look bounded.Slot[kubelet.Found]
	for {
		f, err := look.Do(ctx, findTimeout, func(ctx context.Context) (kubelet.Found, error) { return finder.Find(ctx), nil })
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if err := s.take(&f); err != nil || f.Certain {
				return err
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

// take watches the socket that a search has found.
func (s *search) take(f *kubelet.Found) error {
	r := s.runtime
	defer r.endSearch()
	if f.Path == "" {
		r.searched.Store(&f.Searched)
		return nil
	}
	if f.Path == r.path() {
		return nil
	}
	if err := r.watch(f.Path, f.Source); err != nil {
		return err
	}
	r.log.Info("watching the runtime", zap.String("socket", f.Path), zap.String("named_by", f.Source))
	s.loop.Relist()
	return nil
}

// searching reports whether the first search for the socket is still under way.
func (r *runtime) searching() bool {
	select {
	case <-r.search:
		return false
	default:
		return true
	}
}

// afterSearch is a task that begins when the first search for the socket has
// ended: before that there is nobody to call.
type afterSearch struct {
	Task

	search <-chan struct{}
}

// Run waits for the search and runs the task.
func (a afterSearch) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-a.search:
		return a.Task.Run(ctx)
	}
}

// serves returns what reports whether runtime.v1 is served at a socket. It asks
// one that did not answer again after a minute only: each connection stays in
// its accept queue. Of the socket that is watched the held connection tells.
func (r *runtime) serves() func(context.Context, string) bool {
	silent := map[string]time.Time{}
	return func(ctx context.Context, path string) bool {
		if path == r.path() {
			return r.answered()
		}
		if at, ok := silent[path]; ok && time.Since(at) < askSilentAgain {
			return false
		}
		delete(silent, path)
		client, err := cri.New(cri.Options{Path: path, Dial: r.cfg.dialer(func() string { return path }),
			RPCTimeout: servesTimeout})
		if err != nil {
			return false
		}
		defer func() { _ = client.Close() }()
		if _, err = client.Version(ctx); err == nil {
			return true
		}
		var e *health.CallError
		if dial := client.LastDial(); dial != nil && dial.Err == nil && errors.As(err, &e) &&
			e.Code == cri.CodeDeadlineExceeded {
			silent[path] = time.Now()
		}
		return false
	}
}

// mayServe reports whether a process may be the runtime behind the held
// connection.
func (r *runtime) mayServe(pid int) bool {
	held := r.dial()
	return !held.Up || pid == 0 || held.PeerPID == 0 || pid == held.PeerPID
}

// answered reports whether any call has succeeded.
func (r *runtime) answered() bool {
	return slices.ContainsFunc(cri.Operations(), func(op string) bool { return !r.History(op).LastOK.IsZero() })
}

// endpoint, calls and dial are the runtime's part of the facts.
func (r *runtime) endpoint() health.Endpoint {
	if w := r.watched.Load(); w != nil {
		return *w
	}
	e := health.Endpoint{Searching: r.searching()}
	if s := r.searched.Load(); s != nil {
		e.Searched = *s
	}
	return e
}

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

// waiting reports whether the held connection waits to be accepted and since when;
// made is false before it has been tried.
func (r *runtime) waiting() (since time.Time, waiting, made bool) {
	since, waiting = r.Waiting()
	return since, waiting, r.LastDial() != nil
}

func (r *runtime) dial() health.Dial {
	last := r.LastDial()
	if last == nil {
		return health.Dial{}
	}
	known := r.cause.Load()
	if known == nil || known.of != last {
		known = &dialCause{of: last, dial: health.Dial{At: last.At}}
		known.dial.Cause, known.dial.Detail = evidence.ConnectCause(last.Err, r.path())
		r.cause.Store(known)
	}
	out := known.dial
	out.PeerPID, out.Up = r.Peer()
	return out
}
