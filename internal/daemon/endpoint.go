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
	// findAgain is the time between two looks while the socket that is watched
	// is only a guess.
	findAgain = 5 * time.Second
	// askSilentAgain is the time between two questions to a socket that takes
	// connections and does not answer.
	askSilentAgain = time.Minute
)

// path is the path of the runtime's socket, "" while none has been found.
func (d *Daemon) path() string { return d.endpoint.Load().Path }

// take watches the socket that a search has found.
func (d *Daemon) take(f *kubelet.Found) {
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

// find looks for the socket until it is certain, and then returns nil. A look that blocks
// is abandoned, and another is made only when it has returned.
func (d *Daemon) find(ctx context.Context) error {
	if d.cfg.RuntimeEndpoint != "" {
		close(d.searched)
		return nil
	}
	finder := &kubelet.Finder{ProcFS: d.cfg.ProcFS, Serves: d.serves()}
	var look bounded.Slot[kubelet.Found]
	ended := sync.OnceFunc(func() { close(d.searched) })
	for wait := time.Duration(0); bounded.Sleep(ctx, wait); {
		f, err := look.Do(ctx, findTimeout, func(ctx context.Context) (kubelet.Found, error) { return finder.Find(ctx), nil })
		switch before := d.path(); {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			d.take(&f)
			ended()
			if d.path() != before {
				d.log.Info("watching the runtime", zap.String("socket", f.Path), zap.String("named_by", f.Source))
				d.loop.Relist()
			}
			if f.Certain {
				return nil
			}
			if f.Serves { // only the kubelet or a configuration names another one
				finder.Serves = nil
			}
		case !errors.Is(err, bounded.ErrBusy):
			d.log.Error("the search for the runtime's socket failed", zap.Error(err))
		}
		if wait = d.cfg.RelistPeriod; d.path() != "" {
			wait = findAgain
		}
	}
	return nil
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
		if time.Since(silent[path]) < askSilentAgain {
			return false
		}
		client := cri.New(cri.Options{Path: path, Dial: d.cfg.Dial, RPCTimeout: servesTimeout})
		defer func() { _ = client.Close() }()
		_, err := client.Version(ctx)
		e, dial := cri.AsError(err), client.LastDial()
		if dial != nil && dial.Err == nil && e != nil && e.Code == cri.CodeDeadlineExceeded {
			silent[path] = time.Now()
		}
		return err == nil
	}
}
