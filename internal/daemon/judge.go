package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/events"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
)

const (
	// stopCounts is how long ago the runtime's process was stopped while that may mean a fault.
	stopCounts = time.Second
	// alertFor is the time for which the alert lasts after its last cause.
	alertFor = 5 * time.Second
	// reconnectCounts is how long a new connection to the runtime, or a new socket at its path, asks
	// for an alert: until the next judgement in the steady state.
	reconnectCounts = 1500 * time.Millisecond
	// stumble is the time from which lists that take three times the median ask for an alert.
	stumble = 200 * time.Millisecond
	// pausedAfter is the time between two judgements from which plegd, or the machine, was
	// paused: a stopped process, a stopped virtual machine, a suspended node.
	pausedAfter = 3 * time.Second
	// wakeTimeout is the time for which the verdict is held after a pause: the ages of a
	// moment ago say nothing about the runtime.
	wakeTimeout = 3 * time.Second
	// isolatedAfter is the least time between two gaps of which the second one is a pause.
	// Gaps in quick succession are a node that starves plegd: there the verdict must still change.
	isolatedAfter = 30 * time.Second
	// statusEvery is the most time between two messages to systemd.
	statusEvery = 5 * time.Second
)

// judging is the state of the judge, the only writer of the snapshot: after each relist,
// when a source has news, and at each tick while something may be wrong, it gathers the facts, judges them and
// publishes both as one snapshot, which never changes afterwards. It logs changes, and is
// plegd's supervisor: it feeds systemd's watchdog, which the relist loop must not do, or a
// hung runtime would get plegd killed.
type judging struct {
	news      bounded.Signal // asks for a judgement
	changed   bounded.Signal // receives each change of verdict
	published atomic.Pointer[facts.Snapshot]
	pace      *pacer
	condition atomic.Pointer[condition] // for the state directory; nil before the first judgement

	// Only the goroutine of the judge uses these.
	kubelet kubeletModel
	woke    time.Time     // the end of the last pause
	paused  time.Duration // how long it was
	gap     time.Time     // the end of the last gap of at least pausedAfter between two judgements
	// suspended is for how long the node had been suspended since its boot at the last judgement.
	suspended time.Duration
	// alert is true while something may be wrong: expensive evidence is then sampled
	// often. alerted is the last cause.
	alert   bool
	alerted time.Time
	failed  map[string]string // the last log of each source and of the event stream

	// To systemd goes a message at each change, and one each notifyEvery, after notified.
	notifyEvery time.Duration
	notified    time.Time
	logged      facts.Verdict // state and reason of the last one
	messages    chan string
	// readyToNotify asks for READY=1.
	readyToNotify bounded.Signal
}

// runNotifier writes to systemd until ctx ends, reports the stop, and returns nil. It has a
// goroutine of its own: a systemd that does not read must not hold up the judge. READY=1 is
// kept until it is written; of the other messages those that find no place are dropped.
func (d *Daemon) runNotifier(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
			return nil
		case <-d.readyToNotify:
			_, _ = sd.SdNotify(false, sd.SdNotifyReady)
		case m := <-d.messages:
			_, _ = sd.SdNotify(false, m) // without systemd nothing happens
		}
	}
}

func (d *Daemon) notify(message string) {
	select {
	case d.messages <- message:
	default:
	}
}

// runJudge judges until ctx ends, and then returns nil.
func (d *Daemon) runJudge(ctx context.Context) error {
	for {
		cause := d.awaitCause(ctx)
		if cause == causeStop {
			return nil
		}
		if cause == causeNews && !d.loop.Snapshot().Ready {
			continue // the first relist has yet to be tried
		}
		d.publish(d.judge(time.Now()))
		if cause != causeNews {
			d.pace.pulse() // the other parts work after this judgement
		}
	}
}

// judgeCause is what a judgement follows.
type judgeCause int

const (
	causeTick   judgeCause = iota // a tick, or a relist that is late
	causeRelist                   // the end of a relist
	causeNews                     // a source has news
	causeStop                     // plegd stops
)

// awaitCause waits for the next cause to judge.
func (d *Daemon) awaitCause(ctx context.Context) judgeCause {
	_, limit := d.pace.wait()
	if !d.loop.Snapshot().Relist.Start.IsZero() {
		limit = min(limit, tick)
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return causeStop
	case <-timer.C:
		return causeTick
	case <-d.news:
		return causeNews
	case <-d.loop.RelistEnded():
		if d.loop.Snapshot().Failures > 0 {
			d.dialer.ProbeNow() // a fresh connection knows more
		}
		return causeRelist
	}
}

// publish passes a new snapshot on to the log, systemd, the incidents and the sources.
func (d *Daemon) publish(s *facts.Snapshot) {
	changed := d.logVerdict(s)
	if changed || s.At.Sub(d.notified) >= d.notifyEvery {
		d.notified = s.At
		d.notify(sd.SdNotifyWatchdog + "\nSTATUS=" + view.Line(s))
	}
	d.incidents.Judged(s)
	d.logParts(&s.Facts)
	d.setAlert(s)
}

// judge gathers the facts of now, judges them, and publishes the result.
func (d *Daemon) judge(t time.Time) *facts.Snapshot {
	var last *facts.Verdict
	if s := d.published.Load(); s != nil {
		v := s.Verdict // a copy: it must not keep the snapshot, which has a previous verdict too
		last = &v
		d.noteGap(s.At, t)
	}
	held := last != nil && t.Sub(d.woke) < wakeTimeout
	f := d.facts(t, d.kubelet.timeout)
	f.Woke = d.woke
	f.Paused = d.paused
	if v := d.resumed(&f, t); v != nil {
		last = v
		held = true
	}
	observed := d.completeFacts(&f, t, last, held)
	s := &facts.Snapshot{
		SchemaVersion: facts.SchemaVersion,
		At:            t,
		Facts:         f,
		Previous:      last,
		Held:          held,
		Ready:         d.loop.Snapshot().Ready,
	}
	if held {
		s.Verdict = *last
	} else {
		s.Verdict = *observed.Judge()
	}
	d.keepCondition(s)
	d.metrics.Observe(s)
	d.history.Judged(s.At, s.State)
	d.published.Store(s)
	return s
}

// noteGap notes a pause between two judgements: one isolated gap.
func (d *Daemon) noteGap(previous, current time.Time) {
	suspended := d.cfg.suspended()
	passed := current.Sub(previous) + (suspended - d.suspended).Truncate(time.Millisecond) // two clocks are never read at once
	d.suspended = suspended
	if passed < pausedAfter {
		return
	}
	isolated := d.gap.IsZero() || previous.Sub(d.gap) >= isolatedAfter
	d.gap = current
	if isolated {
		d.woke = current
		d.paused = passed
	}
}

// setAlert sets the alert by a judgement.
func (d *Daemon) setAlert(s *facts.Snapshot) {
	if alarming(&s.Facts, s.At) || health.CloserLook(&s.Verdict) || s.At.Sub(d.woke) < wakeTimeout {
		d.alerted = s.At
	}
	alert := s.At.Sub(d.alerted) < alertFor
	if alert && !d.alert {
		d.dialer.ProbeNow()
	}
	d.alert = alert
	d.pace.setAlert(alert)
	d.sources.Alert(alert || d.incidents.Recovering())
}

// alarming reports whether a call fails or hangs, a queue is not empty, or
// the runtime's process is not well.
func alarming(f *facts.Facts, t time.Time) bool {
	if f.Relist.Failures > 0 || f.Relist.Reinspect > 0 || f.Status.LastErr != nil {
		return true
	}
	if !f.Probe.At.IsZero() && !f.Probe.OK {
		return true
	}
	if reconnected(&f.Dial, t) || stumbled(&f.Relist) {
		return true
	}
	return callUnanswered(f, t) || processAlarms(f.Evidence.Process, t) || queueAlarms(f.Evidence.Queue, t)
}

// reconnected reports whether the connection to the runtime was made just before t: it may have
// another process, and one of many with short lives.
func reconnected(d *facts.Dial, t time.Time) bool {
	return !d.At.IsZero() && t.Sub(d.At) <= reconnectCounts
}

// stumbled reports whether the last lists took much longer than those before: a runtime that is
// stopped for a moment each second shows in nothing else that is in step with them.
func stumbled(r *facts.Relist) bool {
	n := len(r.Lists)
	if n == 0 || r.Lists[n-1] < stumble {
		return false
	}
	return r.Lists[n-1] >= 3*facts.Median(r.Lists)
}

// callUnanswered reports whether a list, Status or Version is under way for so long that
// something may be wrong.
func callUnanswered(f *facts.Facts, t time.Time) bool {
	if f.Relist.InFlight != nil && facts.Unanswered(f.Relist.InFlight.PhaseStart, t, tick) {
		return true
	}
	return facts.Unanswered(f.Status.InFlightSince, t, tick) || facts.Unanswered(f.Version.HangsSince, t, tick)
}

// processAlarms reports whether the runtime's process has ended, or was stopped just before t.
func processAlarms(p *facts.Process, t time.Time) bool {
	return p != nil && (!p.Alive || t.Sub(p.StoppedAt) <= stopCounts)
}

// queueAlarms reports whether connections wait, or another socket has just come to the path: no call on
// the held connection shows that.
func queueAlarms(q *facts.Queue, t time.Time) bool {
	return q != nil && (q.Length > 0 || !q.Listening || t.Sub(q.ListeningSince) <= reconnectCounts)
}

// logVerdict logs each change of verdict once. It reports whether it has changed.
func (d *Daemon) logVerdict(s *facts.Snapshot) bool {
	v := &s.Verdict
	previous := d.logged
	if previous.State == v.State && previous.Reason == v.Reason {
		return false
	}
	d.logged = facts.Verdict{State: v.State, Reason: v.Reason}
	d.changed.Send()
	var evidence, also []string
	for i, a := range v.Active {
		if i == 0 {
			evidence = a.Evidence
			continue
		}
		also = append(also, a.ID)
	}
	level := map[facts.State]zapcore.Level{
		facts.StateUnhealthy: zapcore.ErrorLevel,
		facts.StateDegraded:  zapcore.WarnLevel,
	}[v.State] // else zapcore.InfoLevel
	known := func(isKnown bool, f zap.Field) zap.Field {
		if isKnown {
			return f
		}
		return zap.Skip()
	}
	d.log.Log(level, "verdict changed",
		zap.String("state", string(v.State)), zap.String("reason", v.Reason),
		zap.String("from_state", string(previous.State)), zap.String("from_reason", previous.Reason),
		known(evidence != nil, zap.Strings("evidence", evidence)), known(also != nil, zap.Strings("also", also)),
		known(v.RulesFailIn != nil, zap.Durationp("rules_fail_in_seconds", v.RulesFailIn)),
		known(v.NotReadyIn != nil, zap.Durationp("not_ready_in_seconds", v.NotReadyIn)),
		known(v.NotReadyInLatest != nil, zap.Durationp("not_ready_in_latest_seconds", v.NotReadyInLatest)),
		known(v.KubeletMessage != "", zap.String("kubelet_message", v.KubeletMessage)),
		known(v.Next != "", zap.String("next", v.Next)))
	return true
}

// logParts logs each source that fails and each that recovers, and each change of the
// event stream.
func (d *Daemon) logParts(f *facts.Facts) {
	for name, state := range f.Evidence.Sources {
		switch {
		case state.Kept || d.failed[name] == state.Err || name == "web" || name == "control": // these log themselves
			continue
		case state.Err == "":
			d.log.Info("evidence source recovered", zap.String("source", name))
		default:
			d.log.Info("evidence source failed; dependent reasons disabled",
				zap.String("source", name), zap.String("error", state.Err), zap.Time("at", state.At.Round(time.Millisecond)))
		}
		d.failed[name] = state.Err
	}
	e := f.Events
	if e == nil || e.Phase == events.Waiting || d.failed["events"] == fmt.Sprint(e.Phase, e.InUse) {
		return
	}
	d.failed["events"] = fmt.Sprint(e.Phase, e.InUse)
	level := zap.WarnLevel
	if e.Phase == events.Streaming {
		level = zap.InfoLevel
	}
	d.log.Log(level, "the runtime's event stream has changed", zap.String("phase", e.Phase), zap.Bool("in_use", e.InUse),
		zap.Bool("fell_back", e.FellBack), zap.String("events", e.Mode), zap.String("detail", e.Detail),
		zap.Duration("relist_period", f.Config.RelistPeriod), zap.Duration("relist_threshold", f.Config.RelistThreshold))
}
