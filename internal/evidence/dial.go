package evidence

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

const (
	// queuedFor is how long a fresh connection that nobody answers is held
	// open. Whether closed or not it stays in the runtime's accept queue, so
	// one a minute is what a stuck runtime gets; held open, it tells the moment
	// at which the runtime is back.
	queuedFor = time.Minute
	// retryRefused is the time between probes while connect(2) itself fails:
	// that leaves nothing behind, and the return is noticed at once.
	retryRefused = 500 * time.Millisecond
)

// DialOptions configure a Dialer.
type DialOptions struct {
	// Path returns the socket's path, "" while there is none.
	Path func() string
	// Dial connects to it; nil dials the unix socket.
	Dial func(context.Context) (net.Conn, error)
	// Looks is true when Dial waits while others wait to be accepted (LookFirst).
	Looks bool
	// Held reports whether the held connection itself has been made and waits in
	// the accept queue, and since when; made is false before it has been tried.
	// While it waits no other one is sent to wait beside it. nil: there is none.
	Held func() (since time.Time, waiting, made bool)
	// Serves reports whether a process may be the watched runtime, by its pid from
	// SO_PEERCRED; the Version of any other process is ignored. nil: any may.
	Serves func(pid int) bool
	// Period is the time between two probes, Timeout limits each stage of one.
	Period, Timeout time.Duration
	// Observer is called for the Version calls, Done for each probe that ended and once
	// for a probe that stays unanswered. Both may be nil.
	Observer cri.Observer
	Done     func(health.Probe)
}

// Dialer is the fresh dial: it makes a new connection as any other client would, waits
// for the runtime's HTTP/2 SETTINGS (having spoken first, since CRI-O answers only then)
// and asks for its Version. The held connection stays fine while no client can connect.
type Dialer struct {
	opts    DialOptions
	last    atomic.Pointer[health.Probe]
	version atomic.Pointer[cri.Version]
	peer    atomic.Pointer[cri.DialResult] // the last connection that was made, but for current's
	current atomic.Pointer[cri.Client]     // of the probe under way, or of the last one
	kick    chan struct{}
	moved   chan struct{}
	begun   time.Time // Run
}

// NewDialer returns a source that has yet to run.
func NewDialer(opts DialOptions) *Dialer {
	d := &Dialer{opts: opts, kick: make(chan struct{}, 1), moved: make(chan struct{}, 1)}
	d.last.Store(&health.Probe{})
	return d
}

// String names the task.
func (d *Dialer) String() string { return "dial" }

// Last returns the last probe. It never waits.
func (d *Dialer) Last() health.Probe { return *d.last.Load() }

// Version returns the runtime's last report about itself, nil before the first answer.
func (d *Dialer) Version() *cri.Version { return d.version.Load() }

// Peer is the process that listened when the last connection was made, and when
// that was; 0 when that cannot be told.
func (d *Dialer) Peer() (pid int, at time.Time) {
	p := d.peer.Load()
	if c := d.current.Load(); c != nil && d.connected(c) { // it may wait for an answer for long
		p = c.LastDial()
	}
	if p == nil {
		return 0, time.Time{}
	}
	return p.PeerPID, p.At
}

// Kick asks for a probe now rather than at the end of the period.
func (d *Dialer) Kick() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Moved says that another socket than before listens at the path: a connection
// that waits for the one before is given up, and the new one is probed now.
func (d *Dialer) Moved() {
	select {
	case d.moved <- struct{}{}:
	default:
	}
	d.Kick()
}

// Run probes until ctx ends, one probe at a time, and then returns nil.
func (d *Dialer) Run(ctx context.Context) error {
	d.begun = time.Now()
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
// next turn.
func (d *Dialer) turn(ctx context.Context) time.Duration {
	wait := d.opts.Period
	path := d.opts.Path()
	if path == "" {
		return wait
	}
	if again := d.leaveToHeld(ctx); again > 0 {
		return again
	}
	d.probe(ctx, path)
	if d.Last().Stage == health.StageConnect {
		wait = min(wait, retryRefused)
	}
	return wait
}

// heldAgain is the time between two looks at a held connection that waits.
const heldAgain = 100 * time.Millisecond

// leaveToHeld returns after how long to look again while the held connection
// waits to be accepted, 0 while it does not. What a fresh one would meet it meets
// itself: that it has waited for Timeout is published as a probe's failure.
func (d *Dialer) leaveToHeld(ctx context.Context) time.Duration {
	if d.opts.Held == nil {
		return 0
	}
	since, waiting, made := d.opts.Held()
	switch {
	case !made && time.Since(d.begun) < d.opts.Timeout:
		return min(heldAgain, d.opts.Timeout) / 10 // it is about to be tried
	case !made || !waiting:
		return 0
	}
	if left := d.opts.Timeout - time.Since(since); left > 0 {
		return min(left, heldAgain)
	}
	if !d.Last().At.Equal(since) {
		d.publish(ctx, health.Probe{At: since, Stage: health.StageSettings, Cause: health.CauseTimeout})
	}
	return heldAgain
}

// probe makes one probe. It returns early when ctx ends.
func (d *Dialer) probe(ctx context.Context, path string) {
	client, err := cri.New(cri.Options{Path: path, Dial: d.opts.Dial, RPCTimeout: queuedFor, Observer: d.opts.Observer})
	if err != nil {
		p := health.Probe{At: time.Now(), Stage: health.StageConnect, Cause: health.CauseError, Detail: err.Error()}
		d.publish(ctx, p)
		return
	}
	defer func() { _ = client.Close() }()
	d.current.Store(client)

	select {
	case <-d.moved: // before this probe
	default:
	}
	p := health.Probe{At: time.Now()}
	limited, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	err = client.Connect(limited)
	cancel()
	if d.connected(client) {
		d.peer.Store(client.LastDial())
	}
	if err != nil && ctx.Err() == nil && d.connected(client) && errors.Is(err, context.DeadlineExceeded) {
		// Connected and not answered: say so, and wait on with this one.
		stuck := p
		stuck.Stage, stuck.Cause = health.StageSettings, health.CauseTimeout
		d.publish(ctx, stuck)
		err = d.waitOn(ctx, client.Connect)
		if err != nil {
			return // still stuck; Failures and FailedSince continue with the next
		}
	}
	if dial := client.LastDial(); dial != nil {
		p.Connect = dial.Duration
		if dial.Err != nil {
			p.Stage = health.StageConnect
			p.Cause, p.Detail = ConnectCause(dial.Err, path)
			d.publish(ctx, p)
			return
		}
		p.Settings = time.Since(dial.At)
	}
	d.call(ctx, client, path, &p, err)
	d.publish(ctx, p)
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
		if d.opts.Looks && client.LastDial() == nil {
			p.Detail = "none is made while others wait to be accepted"
		}
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

// connectFailed reports whether connect(2) itself was refused, rather than cut
// short by a deadline.
func connectFailed(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) // false for nil
}

// waitOn waits for an answer on a connection that has been made, for queuedFor at
// most and no longer than the path leads there.
func (d *Dialer) waitOn(ctx context.Context, answer func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, queuedFor)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-d.moved:
			cancel()
		case <-limited.Done():
		}
	}()
	err := answer(limited)
	cancel()
	<-ended
	return err
}

func (d *Dialer) connected(c *cri.Client) bool {
	dial := c.LastDial()
	return dial != nil && dial.Err == nil
}

// publish stores a probe as the last one and passes it to Done.
func (d *Dialer) publish(ctx context.Context, p health.Probe) {
	if ctx.Err() != nil {
		return // plegd is stopping: the probe is no evidence about the runtime
	}
	if before := d.Last(); !p.OK {
		p.FailedSince, p.Failures = p.At, 1
		if !before.FailedSince.IsZero() && before.Stage == p.Stage {
			p.FailedSince, p.Failures = before.FailedSince, before.Failures+1
		}
		p.ForeignAt = before.ForeignAt
		if p.Cause == health.CauseProtocol || p.Cause == health.CauseUnimplemented {
			p.ForeignAt = p.At
		}
	}
	d.last.Store(&p)
	if d.opts.Done != nil {
		d.opts.Done(p)
	}
}

// answerCause returns why a connection that the kernel had made came to nothing.
// That the other end speaks no gRPC needs proof: something else that it sent.
func answerCause(err error) (health.Cause, string) {
	var e *health.CallError
	if !errors.As(err, &e) {
		if err == nil {
			return health.CauseClosed, "the connection was closed before its SETTINGS"
		}
		return health.CauseError, err.Error()
	}
	switch {
	case e.NotInitialized:
		return health.CauseNotInitialized, e.Message
	case cri.Foreign(e):
		return health.CauseProtocol, "the other end does not speak gRPC"
	case e.Code == cri.CodeUnimplemented:
		return health.CauseUnimplemented, e.Message
	case e.Code == cri.CodeDeadlineExceeded:
		return health.CauseTimeout, "no answer to Version"
	case e.Code == cri.CodeUnavailable && hasClosed(e.Message):
		return health.CauseClosed, "the other end closed the connection"
	default:
		return health.CauseError, e.Error()
	}
}

func hasClosed(message string) bool {
	return slices.ContainsFunc(closed, func(text string) bool { return strings.Contains(message, text) })
}

// closed holds what grpc-go says of a connection that has ended.
var closed = []string{"EOF", "reset by peer", "broken pipe", "closing", "draining"}
