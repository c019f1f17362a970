package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

const (
	// queuedFor is how long a connection that nobody answers is held open. Closed or
	// not it stays in the runtime's accept queue, so a stuck runtime gets one a minute.
	queuedFor = time.Minute
	// retryRefused is the time between probes while connect(2) itself fails:
	// that leaves nothing behind, and the return is noticed at once.
	retryRefused    = 500 * time.Millisecond
	searchPathEvery = 2 * time.Second // while there is no path
)

// DialOptions configure a Dialer.
type DialOptions struct {
	Path            func() string                           // of the socket, "" while there is none
	Dial            func(context.Context) (net.Conn, error) // nil dials the unix socket
	Period, Timeout time.Duration                           // between two probes, and of each stage of one
	// Observer is called for the Version calls, Done for each probe that ended and once
	// for a probe that stays unanswered.
	Observer cri.Observer
	Done     func(facts.Probe)
	Pulse    Pulse

	// ping asks the Docker API. Else the call is Version, which anyGRPC need not serve: the
	// CRI plugin of dockerd's containerd may be off.
	ping, anyGRPC bool
}

// Dialer is the fresh dial: it makes a new connection as any other client would, waits for the
// first answer, of the runtime its HTTP/2 SETTINGS, and asks for its Version. A connection that was
// made before stays fine while no client can connect.
type Dialer struct {
	opts DialOptions
	last atomic.Pointer[facts.HopProbe]
	peer atomic.Pointer[cri.DialResult] // the last connection that was made
	path atomic.Pointer[string]         // of the last probe
	// moved holds the news that another socket listens at the path: a connection that waits
	// for the one before is given up, and the new one is probed.
	kick, moved bounded.Signal
}

// NewDialer returns a Dialer that has yet to run.
func NewDialer(opts DialOptions) *Dialer {
	d := &Dialer{opts: opts, kick: bounded.NewSignal(), moved: bounded.NewSignal()}
	d.last.Store(&facts.HopProbe{})
	d.path.Store(new(string))
	return d
}

// Last returns the last probe. It never waits.
func (d *Dialer) Last() facts.Probe { return d.last.Load().Probe }

// Source returns its state as that of a source: that a probe fails is an answer.
func (d *Dialer) Source() (s facts.Source, ok bool) {
	p := d.Last()
	return facts.Source{Up: true, At: p.At, Duration: p.Connect + p.Settings + p.RPC}, !p.At.IsZero()
}

// ProbeNow asks for a probe now rather than at the end of the period.
func (d *Dialer) ProbeNow() { d.kick.Send() }

// Run probes until ctx ends, one probe at a time, and then returns nil.
func (d *Dialer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		d.sleep(ctx, d.probeOnce(ctx))
	}
	return nil
}

// sleep waits until the next probe is due: for the pulse that is nearest to the end of d.
func (d *Dialer) sleep(ctx context.Context, wait time.Duration) {
	due := time.Now().Add(wait)
	var pulsed <-chan struct{}
	if d.opts.Pulse != nil && wait >= tick {
		wait += tick / 2
		pulsed = d.opts.Pulse()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-d.kick:
		case <-d.moved:
		case <-pulsed:
			if time.Until(due) > tick/2 {
				pulsed = d.opts.Pulse()
				continue
			}
		}
		return
	}
}

// probeOnce makes a probe, if there is one to make, and returns the time until the
// next. A result for one path does not apply to another.
func (d *Dialer) probeOnce(ctx context.Context) time.Duration {
	path := ""
	_ = bounded.Recovered(func() error { path = d.opts.Path(); return nil }) // without one there is no probe
	last := *d.path.Swap(&path)
	if last != path && last != "" {
		d.last.Store(&facts.HopProbe{})
		d.peer.Store(nil)
	}
	if path == "" {
		return max(d.opts.Period, searchPathEvery)
	}
	d.probe(ctx, path)
	if d.Last().Stage == facts.StageConnect {
		return min(d.opts.Period, retryRefused)
	}
	return d.opts.Period
}

// attempt is one fresh connection. answered is when its first answer came, where that is
// not the whole.
type attempt struct {
	dial     atomic.Pointer[cri.DialResult]
	answered atomic.Pointer[time.Time]
}

// probe makes one probe: it waits for queuedFor at most and no longer than the path leads
// there. A probe without a first answer is published after Timeout; when it then fails,
// Failures and FailedSince continue with the next.
func (d *Dialer) probe(ctx context.Context, path string) {
	started := time.Now()
	limited, cancel := context.WithTimeout(ctx, queuedFor)
	defer cancel()
	a := &attempt{}
	done := make(chan error, 1)
	go func() { done <- bounded.Recovered(func() error { return d.ask(limited, path, a) }) }()
	late := time.After(d.opts.Timeout)
	unanswered := false
	for {
		select {
		case <-d.moved:
			d.ProbeNow()
			return
		case <-late:
			unanswered = a.answered.Load() == nil && len(done) == 0
			if unanswered {
				d.publish(ctx, facts.Probe{At: started, Stage: facts.StageSettings, Cause: facts.CauseTimeout, Detail: d.silence()})
			}
		case err := <-done:
			if !unanswered || err == nil || a.answered.Load() != nil {
				d.publish(ctx, d.result(a, facts.Probe{At: started}, path, err))
			}
			return
		}
	}
}

// silence describes what a connection without a first answer lacks; "" for the HTTP/2 SETTINGS of gRPC.
func (d *Dialer) silence() string {
	if d.opts.ping {
		return "connected, and GET /_ping was not answered"
	}
	return ""
}

// ask makes a connection, waits for the answer, and returns how it went.
func (d *Dialer) ask(ctx context.Context, path string, a *attempt) error {
	connect := d.opts.Dial
	if connect == nil {
		connect = cri.DialPath(path)
	}
	start := time.Now()
	conn, err := connect(ctx)
	connected := time.Now()
	result := &cri.DialResult{At: connected, Duration: connected.Sub(start), Err: err, PeerPID: cri.PeerPID(conn)}
	a.dial.Store(result)
	if err != nil {
		return err
	}
	d.peer.Store(result)
	defer func() { _ = conn.Close() }() // nothing more is written
	if d.opts.ping {
		return ping(ctx, conn)
	}
	err = cri.AskVersion(ctx, conn, d.opts.Timeout, d.opts.Observer, func() { a.answered.Store(new(time.Now())) })
	if err != nil && d.opts.anyGRPC && cri.AsError(err).Code == cri.CodeUnimplemented {
		return nil
	}
	return err
}

// result fills in a probe that ended with err.
func (d *Dialer) result(a *attempt, p facts.Probe, path string, err error) facts.Probe {
	dial := cmp.Or(a.dial.Load(), &cri.DialResult{At: p.At})
	p.Connect = dial.Duration
	if dial.Err != nil {
		p.Stage = facts.StageConnect
		p.Cause, p.Detail = ConnectCause(dial.Err, path)
		return p
	}
	finished := time.Now()
	answered := a.answered.Load()
	p.Stage = facts.StageRPC
	switch {
	case d.opts.ping:
		p.RPC = finished.Sub(dial.At)
	case answered == nil:
		p.Stage = facts.StageSettings
		p.Settings = finished.Sub(dial.At)
	default:
		p.Settings = answered.Sub(dial.At)
		p.RPC = finished.Sub(*answered)
	}
	if err != nil {
		p.RPC = 0
		p.Cause, p.Detail = answerCause(err)
		return p
	}
	p.OK = true
	p.Stage = ""
	return p
}

// publish stores a probe as the last one and passes it to Done.
func (d *Dialer) publish(ctx context.Context, p facts.Probe) {
	if ctx.Err() != nil {
		return // plegd is stopping: the probe is no evidence about the runtime
	}
	next := *d.last.Load()
	if p.OK {
		next.AnsweredAt = time.Now()
		next.OKSince = cmp.Or(next.OKSince, next.AnsweredAt)
	} else {
		next.OKSince = time.Time{}
		p = countFailure(p, next.Probe)
	}
	next.Probe = p
	d.last.Store(&next)
	d.opts.Done(p)
}

// countFailure counts a failed probe, with the one before it.
func countFailure(p, last facts.Probe) facts.Probe {
	p.FailedSince = p.At
	p.Failures = 1
	if !last.FailedSince.IsZero() && last.Stage == p.Stage {
		p.FailedSince = last.FailedSince
		p.Failures = last.Failures + 1
	}
	p.ForeignAt = last.ForeignAt
	if p.Cause == facts.CauseProtocol || p.Cause == facts.CauseUnimplemented {
		p.ForeignAt = p.At
	}
	return p
}

// ConnectCause returns why connect(2) to the socket at path failed; CauseNone for a nil error.
func ConnectCause(err error, path string) (facts.Cause, string) {
	switch {
	case err == nil:
		return facts.CauseNone, ""
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return facts.CauseMissing, path + ": no such file or directory"
	case errors.Is(err, syscall.ECONNREFUSED):
		if info, statErr := os.Stat(path); statErr == nil && info.Mode()&os.ModeSocket == 0 {
			return facts.CauseNotSocket, fmt.Sprintf("%s is not a socket, its mode is %s", path, info.Mode())
		}
		return facts.CauseRefused, path + ": connection refused: nobody listens"
	case errors.Is(err, syscall.EPROTOTYPE):
		return facts.CauseNotSocket, path + " is a socket of another type, not a stream socket"
	case errors.Is(err, syscall.ELOOP):
		return facts.CauseNotSocket, path + ": its symbolic links lead in a circle"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return facts.CausePermissionDenied, fmt.Sprintf("%s: permission denied for uid %d", path, os.Geteuid())
	case errors.Is(err, syscall.EAGAIN):
		return facts.CauseQueueFull, path + ": the accept queue is full (EAGAIN)"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded): // net's own is the latter
		return facts.CauseTimeout, path + ": connect took too long"
	default:
		return facts.CauseError, err.Error()
	}
}

// answerCause returns why a connection that was made failed.
func answerCause(err error) (facts.Cause, string) {
	e := cri.AsError(err)
	switch {
	case e.NotInitialized:
		return facts.CauseNotInitialized, e.Message
	case cri.Foreign(e):
		return facts.CauseProtocol, "the other end does not speak gRPC"
	case strings.HasPrefix(e.Message, "malformed "): // net/http
		return facts.CauseProtocol, "the other end does not speak HTTP"
	case e.Code == cri.CodeUnimplemented:
		return facts.CauseUnimplemented, e.Message
	case e.Code == cri.CodeDeadlineExceeded, errors.Is(err, context.DeadlineExceeded):
		return facts.CauseTimeout, "no answer to Version"
	case (e.Code == cri.CodeUnavailable || e.Code == cri.CodeUnknown) && closed.MatchString(e.Message):
		return facts.CauseClosed, "the other end closed the connection"
	default:
		return facts.CauseError, plain.Cut(err.Error())
	}
}

// closed matches what grpc-go and the kernel say of a connection that has ended.
var closed = regexp.MustCompile("EOF|reset by peer|broken pipe|closing|draining")
