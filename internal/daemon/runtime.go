package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

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

// runtime is the runtime that is being watched: none while no socket has been
// found. Every question goes to the held connection of the moment.
type runtime struct {
	cfg      *Config
	observer cri.Observer
	log      *zap.Logger
	held     atomic.Pointer[held]
	searched atomic.Pointer[[]string]
	// known is what the last lists held.
	known known
	// rpcTimeout is the limit of each call in nanoseconds, 0 for cfg's.
	rpcTimeout atomic.Int64
	// search is closed when the first search for the socket has ended. Relists
	// and Status calls wait for it.
	search    chan struct{}
	endSearch func()
	// changed is called when another socket is watched than before.
	changed func()
}

// held is one held connection.
type held struct {
	client   *cri.Client
	endpoint health.Endpoint
	dial     atomic.Pointer[dialCause]
}

// dialCause is a connect(2) with its cause, worked out once.
type dialCause struct {
	of   *cri.DialResult
	dial health.Dial
}

// newRuntime returns the runtime of cfg; with an endpoint that was given it
// holds its connection from the start.
func newRuntime(cfg *Config, observer cri.Observer, log *zap.Logger) (*runtime, error) {
	r := &runtime{cfg: cfg, observer: observer, log: log, search: make(chan struct{}), changed: func() {}}
	r.endSearch = sync.OnceFunc(func() { close(r.search) })
	if cfg.RuntimeEndpoint == "" {
		return r, nil
	}
	r.endSearch()
	path, err := kubelet.ParseEndpoint(cfg.RuntimeEndpoint)
	if err != nil {
		return nil, err
	}
	return r, r.watch(path, "--runtime-endpoint")
}

func (r *runtime) watch(path, source string) error {
	client, err := cri.New(cri.Options{Path: path, Dial: r.cfg.dialer(func() string { return path }), RPCTimeout: r.cfg.RPCTimeout, Observer: r.observer})
	if err != nil {
		return err
	}
	if d := r.rpcTimeout.Load(); d > 0 {
		client.SetRPCTimeout(time.Duration(d))
	}
	old := r.held.Swap(&held{client: client, endpoint: health.Endpoint{Path: path, Source: source}})
	if old != nil {
		_ = old.client.Close()
	}
	return nil
}

// setRPCTimeout sets the limit of the calls that begin from now on.
func (r *runtime) setRPCTimeout(d time.Duration) {
	r.rpcTimeout.Store(int64(d))
	if h := r.held.Load(); h != nil {
		h.client.SetRPCTimeout(d)
	}
}

func (r *runtime) close() {
	if h := r.held.Load(); h != nil {
		_ = h.client.Close()
	}
}

// path is the socket's path, "" while none has been found.
func (r *runtime) path() string {
	if h := r.held.Load(); h != nil {
		return h.endpoint.Path
	}
	return ""
}

// String names the task of Run.
func (r *runtime) String() string { return "endpoint" }

// Run looks for the runtime's socket until it is certain, and then returns nil.
// A look that blocks is left behind, and another is made only when it is back.
func (r *runtime) Run(ctx context.Context) error {
	if r.cfg.RuntimeEndpoint != "" {
		return nil
	}
	finder := &kubelet.Finder{ProcFS: r.cfg.ProcFS, Serves: r.serves()}
	for {
		found := make(chan kubelet.Found, 1)
		go func() {
			look, cancel := context.WithTimeout(ctx, findTimeout)
			defer cancel()
			found <- finder.Find(look)
		}()
		wait := r.cfg.RelistPeriod
		select {
		case <-ctx.Done():
			return nil
		case f := <-found:
			if err := r.take(&f); err != nil {
				return err
			}
			if f.Certain {
				return nil
			}
			if f.Path != "" {
				wait = findAgain
			}
			if f.Serves { // only the kubelet or a configuration names another one
				finder.Serves = nil
			}
			if f.Path == "" && r.path() != "" {
				wait = findAgain
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// take watches the socket that a search has found.
func (r *runtime) take(f *kubelet.Found) error {
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
	r.changed()
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
		if h := r.held.Load(); h != nil && h.endpoint.Path == path {
			return h.answered()
		}
		if at, ok := silent[path]; ok && time.Since(at) < askSilentAgain {
			return false
		}
		delete(silent, path)
		client, err := cri.New(cri.Options{Path: path, Dial: r.cfg.dialer(func() string { return path }), RPCTimeout: servesTimeout})
		if err != nil {
			return false
		}
		defer func() { _ = client.Close() }()
		if _, err = client.Version(ctx); err == nil {
			return true
		}
		var e *cri.Error
		if dial := client.LastDial(); dial != nil && dial.Err == nil && errors.As(err, &e) && e.Code == cri.CodeDeadlineExceeded {
			silent[path] = time.Now()
		}
		return false
	}
}

// answered reports whether any call has succeeded.
func (h *held) answered() bool {
	for _, op := range cri.Operations() {
		if !h.client.History(op).LastOK.IsZero() {
			return true
		}
	}
	return false
}

func (r *runtime) client(op cri.Operation) (*cri.Client, error) {
	if h := r.held.Load(); h != nil {
		return h.client, nil
	}
	return nil, &cri.Error{Operation: op, Code: cri.CodeUnavailable, Message: "no runtime socket has been found"}
}

// ListPodSandbox asks the held connection.
func (r *runtime) ListPodSandbox(ctx context.Context) ([]*cri.Sandbox, error) {
	c, err := r.client(cri.OpListPodSandbox)
	if err != nil {
		return nil, err
	}
	out, err := c.ListPodSandbox(ctx)
	if err == nil {
		r.known.listedSandboxes(out)
	}
	return out, err
}

// ListContainers asks the held connection.
func (r *runtime) ListContainers(ctx context.Context) ([]*cri.Container, error) {
	c, err := r.client(cri.OpListContainers)
	if err != nil {
		return nil, err
	}
	out, err := c.ListContainers(ctx)
	if err == nil {
		r.known.listed(out)
	}
	return out, err
}

// PodSandboxStatus asks the held connection.
func (r *runtime) PodSandboxStatus(ctx context.Context, id string) (*cri.SandboxStatus, error) {
	c, err := r.client(cri.OpPodSandboxStatus)
	if err != nil {
		return nil, err
	}
	return c.PodSandboxStatus(ctx, id)
}

// ContainerStatus asks the held connection.
func (r *runtime) ContainerStatus(ctx context.Context, id string) (*cri.ContainerStatus, error) {
	c, err := r.client(cri.OpContainerStatus)
	if err != nil {
		return nil, err
	}
	return c.ContainerStatus(ctx, id)
}

// endpoint, calls and dial are the runtime's part of the facts.
func (r *runtime) endpoint() health.Endpoint {
	if h := r.held.Load(); h != nil {
		return h.endpoint
	}
	e := health.Endpoint{Searching: r.searching()}
	if s := r.searched.Load(); s != nil {
		e.Searched = *s
	}
	return e
}

func (r *runtime) calls() map[string]health.Call {
	calls := map[string]health.Call{}
	h := r.held.Load()
	if h == nil {
		return calls
	}
	for _, op := range cri.Operations() {
		c := h.client.History(op)
		calls[string(op)] = health.Call{
			LastOK: c.LastOK, LastOKDuration: c.LastOKDuration, LastFailed: c.LastFailed, LastErr: c.LastErr.Fact(),
			InFlightSince: c.InFlightSince, Bytes: c.Bytes,
		}
	}
	return calls
}

// waiting reports whether the held connection waits to be accepted and since when;
// made is false before it has been tried.
func (r *runtime) waiting() (since time.Time, waiting, made bool) {
	h := r.held.Load()
	if h == nil || h.client.LastDial() == nil {
		return time.Time{}, false, false
	}
	since, waiting = h.client.Waiting()
	return since, waiting, true
}

// arriving is when many bytes of an answer last came in on the held connection.
func (r *runtime) arriving() time.Time {
	if h := r.held.Load(); h != nil {
		return h.client.Arriving()
	}
	return time.Time{}
}

// lastDial is the held connection's last connect(2), nil before the first.
func (r *runtime) lastDial() *cri.DialResult {
	if h := r.held.Load(); h != nil {
		return h.client.LastDial()
	}
	return nil
}

func (r *runtime) dial() health.Dial {
	h := r.held.Load()
	if h == nil {
		return health.Dial{}
	}
	last := h.client.LastDial()
	if last == nil {
		return health.Dial{}
	}
	known := h.dial.Load()
	if known == nil || known.of != last {
		known = &dialCause{of: last, dial: health.Dial{At: last.At}}
		known.dial.Cause, known.dial.Detail = evidence.ConnectCause(last.Err, h.endpoint.Path)
		h.dial.Store(known)
	}
	out := known.dial
	out.PeerPID, out.Up = h.client.Peer()
	return out
}
