package evidence

import (
	"cmp"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

const (
	// queuedFor is how long a connection that nobody answers is held open. Closed or
	// not it stays in the runtime's accept queue, so a stuck runtime gets one a minute.
	queuedFor = time.Minute
	// retryRefused is the time between probes while connect(2) itself fails:
	// that leaves nothing behind, and the return is noticed at once.
	retryRefused = 500 * time.Millisecond
	// searchPathEvery is the time between two searches for the path of a socket.
	searchPathEvery = 2 * time.Second
)

// DialOptions configure a Dialer.
type DialOptions struct {
	// Path returns the socket's path, "" while there is none.
	Path func() string
	// Dial connects to it; nil dials the unix socket.
	Dial func(context.Context) (net.Conn, error)
	// Serves reports whether a process may be the watched runtime, by its pid from
	// SO_PEERCRED; the Version of any other process is ignored. nil: any may.
	Serves func(pid int) bool
	// Period is the time between two probes, Timeout limits each stage of one.
	Period, Timeout time.Duration
	// Observer is called for the Version calls, Done for each probe that ended and once
	// for a probe that stays unanswered. Both may be nil.
	Observer cri.Observer
	Done     func(health.Probe)

	// exchange is the request of a hop behind the runtime; nil: the runtime's Version.
	exchange *exchange
	name     string // of the task and source; "": dial
}

// Dialer is the fresh dial: it makes a new connection as any other client would, waits
// for the first answer, of the runtime its HTTP/2 SETTINGS (having spoken first, since
// CRI-O answers only then), and asks for its Version. A connection that was made before
// stays fine while no client can connect. The Dialer of a hop behind the runtime is a
// Source.
type Dialer struct {
	opts    DialOptions
	last    atomic.Pointer[health.HopProbe]
	version atomic.Pointer[cri.Version]
	peer    atomic.Pointer[cri.DialResult] // the last connection that was made
	path    atomic.Pointer[string]         // of the last turn
	kick    chan struct{}
	moved   atomic.Bool
	start   sync.Once
}

// session is one fresh connection.
type session interface {
	// Connect makes the connection and waits for the first answer. It may be called
	// again after it ran into its deadline.
	Connect(ctx context.Context) error
	// LastDial is how connect(2) ended, nil before that.
	LastDial() *cri.DialResult
	Close() error
}

// NewDialer returns a source that has yet to run.
func NewDialer(opts DialOptions) *Dialer {
	d := &Dialer{opts: opts, kick: make(chan struct{}, 1)}
	d.last.Store(&health.HopProbe{})
	d.path.Store(new(string))
	return d
}

// String names the task and the source.
func (d *Dialer) String() string { return cmp.Or(d.opts.name, "dial") }

// Last returns the last probe. It never waits.
func (d *Dialer) Last() health.Probe { return d.last.Load().Probe }

// Version returns the runtime's last report about itself, nil before the first answer.
func (d *Dialer) Version() *cri.Version { return d.version.Load() }

// Source returns its state as that of a source: that a probe fails is an answer.
func (d *Dialer) Source() (s health.Source, ok bool) {
	p := d.Last()
	return health.Source{Up: true, At: p.At, Duration: p.Connect + p.Settings + p.RPC}, !p.At.IsZero()
}

// Facts stores the last probe of a hop behind the runtime.
func (d *Dialer) Facts(e *health.Evidence) {
	if p := d.last.Load(); !p.At.IsZero() {
		e.Answer = p
	}
}

// Notify has f called for each probe of a hop that fails.
func (d *Dialer) Notify(f func()) {
	d.opts.Done = func(p health.Probe) {
		if !p.OK {
			f()
		}
	}
}

func (d *Dialer) tick(ctx context.Context, _ int, _ bool) {
	d.start.Do(func() {
		go func() {
			for ctx.Err() == nil {
				if err := bounded.Recovered(func() error { return d.Run(ctx) }); err != nil {
					d.publish(ctx, health.Probe{
						At: time.Now(), Stage: health.StageRPC, Cause: health.CauseError, Detail: cut(err.Error()),
					})
					time.Sleep(d.opts.Period)
				}
			}
		}()
	})
}

// Peer is the process that listened when the last connection was made, and when
// that was; 0 when that cannot be told.
func (d *Dialer) Peer() (pid int, at time.Time) {
	if p := d.peer.Load(); p != nil {
		return p.PeerPID, p.At
	}
	return 0, time.Time{}
}

// ProbeNow asks for a probe now rather than at the end of the period.
func (d *Dialer) ProbeNow() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Moved says that another socket than before listens at the path: a connection
// that waits for the one before is given up, and the new one is probed now.
func (d *Dialer) Moved() {
	d.moved.Store(true)
	d.ProbeNow()
}

// Run probes until ctx ends, one probe at a time, and then returns nil.
func (d *Dialer) Run(ctx context.Context) error {
	timer := time.NewTimer(d.turn(ctx))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-d.kick:
		}
		timer.Reset(d.turn(ctx))
	}
}

// turn makes a probe, if there is one to make, and returns the time until the
// next turn. A result for one path does not apply to another.
func (d *Dialer) turn(ctx context.Context) time.Duration {
	path := d.opts.Path()
	if old := *d.path.Swap(&path); old != path && old != "" {
		d.last.Store(&health.HopProbe{})
		d.peer.Store(nil)
	}
	if path == "" {
		return max(d.opts.Period, searchPathEvery)
	}
	d.probe(ctx, path)
	if d.Last().Stage == health.StageConnect {
		return min(d.opts.Period, retryRefused)
	}
	return d.opts.Period
}

// open returns a connection that has yet to be made.
func (d *Dialer) open(path string) session {
	if d.opts.exchange != nil {
		return &plainSession{path: path, exchange: d.opts.exchange}
	}
	return cri.New(cri.Options{Path: path, Dial: d.opts.Dial, RPCTimeout: queuedFor, Observer: d.opts.Observer})
}

// probe makes one probe. It returns early when ctx ends.
func (d *Dialer) probe(ctx context.Context, path string) {
	p := health.Probe{At: time.Now()}
	conn := d.open(path)
	defer func() { _ = conn.Close() }()
	d.moved.Store(false)
	answered, err := d.connect(ctx, conn, p)
	if !answered {
		return // still stuck; Failures and FailedSince continue with the next
	}
	dial := conn.LastDial()
	if dial != nil && dial.Err != nil {
		p.Stage, p.Connect = health.StageConnect, dial.Duration
		p.Cause, p.Detail = ConnectCause(dial.Err, path)
		d.publish(ctx, p)
		return
	}
	if dial != nil {
		p.Connect, p.Settings = dial.Duration, time.Since(dial.At)
	}
	switch c := conn.(type) {
	case *plainSession:
		p.Stage = health.StageRPC
		if p.Cause, p.Detail = c.result(err); p.Cause == health.CauseNone {
			p.Stage, p.OK, p.RPC, p.Settings = "", true, p.Settings, 0 // its first answer is the whole
		}
	case *cri.Client:
		d.call(ctx, c, path, &p, err)
	}
	d.publish(ctx, p)
}

// connect makes a connection and waits for its answer, for queuedFor at most and no
// longer than the path leads there. It looks at the connection several times within
// Timeout, so that the peer is known before the answer, and publishes p once as
// unanswered after Timeout.
func (d *Dialer) connect(ctx context.Context, conn session, p health.Probe) (answered bool, err error) {
	const looks = 4
	for n := 1; ; n++ {
		limited, cancel := context.WithTimeout(ctx, d.opts.Timeout/looks)
		err = conn.Connect(limited)
		cancel()
		dial := conn.LastDial()
		if dial == nil || dial.Err != nil {
			return true, err
		}
		d.peer.Store(dial)
		if err == nil || ctx.Err() != nil {
			return true, err
		}
		over := n > looks && (d.moved.Load() || time.Since(p.At) >= queuedFor)
		if over || !errors.Is(err, context.DeadlineExceeded) {
			return n <= looks, err
		}
		if n == looks {
			p.Stage, p.Cause = health.StageSettings, health.CauseTimeout
			d.publish(ctx, p)
		}
	}
}

// call asks for the Version on a connection and fills in the answer; err is that of the
// wait for its SETTINGS.
func (d *Dialer) call(ctx context.Context, client *cri.Client, path string, p *health.Probe, err error) {
	p.Stage = health.StageRPC
	if err != nil {
		p.Stage = health.StageSettings
	}
	if errors.Is(err, context.DeadlineExceeded) {
		p.Cause = health.CauseTimeout
		return
	}
	// After a connection that failed before its SETTINGS, a call returns how.
	failed := err != nil
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	v, err := client.Version(limited)
	dial := client.LastDial()
	switch {
	case err == nil && !failed:
		p.Stage, p.OK, p.RPC = "", true, time.Since(start)
		if d.opts.Serves == nil || dial == nil || d.opts.Serves(dial.PeerPID) {
			d.version.Store(&v)
		}
	case dial != nil && connectFailed(dial.Err):
		// The runtime ended in between, and the call made a connection of its own.
		p.Stage = health.StageConnect
		p.Cause, p.Detail = ConnectCause(dial.Err, path)
	default:
		p.Cause, p.Detail = answerCause(err)
	}
}

// publish stores a probe as the last one and passes it to Done.
func (d *Dialer) publish(ctx context.Context, p health.Probe) {
	if ctx.Err() != nil {
		return // plegd is stopping: the probe is no evidence about the runtime
	}
	next := *d.last.Load()
	before := next.Probe
	if p.OK {
		next.AnsweredAt = time.Now()
		if next.OKSince.IsZero() {
			next.OKSince = next.AnsweredAt
		}
	} else {
		next.OKSince = time.Time{}
		p.FailedSince, p.Failures = p.At, 1
		if !before.FailedSince.IsZero() && before.Stage == p.Stage {
			p.FailedSince, p.Failures = before.FailedSince, before.Failures+1
		}
		p.ForeignAt = before.ForeignAt
		if p.Cause == health.CauseProtocol || p.Cause == health.CauseUnimplemented {
			p.ForeignAt = p.At
		}
	}
	next.Probe = p
	d.last.Store(&next)
	if d.opts.Done != nil {
		d.opts.Done(p)
	}
}
