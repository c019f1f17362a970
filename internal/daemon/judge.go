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
	// quietInterval is the maximum evaluation interval unless something may be wrong: it is
	// a tick then. A relist that ends and a source with news are judged at once.
	quietInterval = time.Second
	// alertFor is the time for which the alert lasts after its last cause.
	alertFor = 5 * time.Second
	// pausedAfter is the time between two judgements from which plegd, or the machine, was
	// paused: a stopped process, a stopped virtual machine, a suspended node.
	pausedAfter = 3 * time.Second
	// wakeTimeout is the time for which the verdict is held after a pause: the ages of a
	// moment ago say nothing about the runtime.
	wakeTimeout = 3 * time.Second
	// statusEvery is the most time between two messages to systemd.
	statusEvery = 5 * time.Second
)

// judging is the state of the judge, the only writer of the snapshot: after each relist,
// and every 250 ms while something may be wrong, it gathers the facts, judges them and
// publishes both as one snapshot, which never changes afterwards. It logs changes, and is
// plegd's supervisor: it feeds systemd's watchdog, which the relist loop must not do, or a
// hung runtime would get plegd killed.
type judging struct {
	news      bounded.Signal // asks for a judgement
	changed   bounded.Signal // receives each change of verdict
	published atomic.Pointer[facts.Snapshot]

	// Only the goroutine of the judge uses these.
	kubelet kubeletModel
	woke    time.Time // the end of the last pause
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
}

// runNotifier writes to systemd until ctx ends, says so, and returns nil. It has a goroutine
// of its own: a systemd that does not read must not hold up the judge.
func (d *Daemon) runNotifier(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			_, _ = sd.SdNotify(false, sd.SdNotifyStopping)
			return nil
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
		quiet := false
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(untilTick()):
			quiet = !d.alert
		case <-d.news:
			if !d.loop.Snapshot().Ready {
				continue // the first relist has yet to be tried
			}
		case <-d.loop.RelistEnded():
			if d.loop.Snapshot().Failures > 0 {
				d.dialer.ProbeNow() // a fresh connection knows more
			}
		}
		now := time.Now()
		// Ages are computed when they are read.
		if quiet && !unanswered(d.loop.Snapshot().Relist.Start, now) && now.Sub(d.Published().At) < quietInterval {
			continue
		}
		s := d.judge(now)
		if d.logVerdict(s) || now.Sub(d.notified) >= d.notifyEvery {
			d.notified = now
			d.notify(sd.SdNotifyWatchdog + "\nSTATUS=" + view.Line(s))
		}
		d.incidents.Judged(s)
		d.logParts(&s.Facts)
		d.setAlert(s, now)
	}
}

// judge gathers the facts of now, judges them, and publishes the result.
func (d *Daemon) judge(now time.Time) *facts.Snapshot {
	var last *facts.Verdict
	if s := d.published.Load(); s != nil {
		v := s.Verdict // a copy: it must not keep the snapshot, which has a previous verdict too
		last = &v
		if now.Sub(s.At) >= pausedAfter {
			d.woke = now
		}
	}
	held := last != nil && now.Sub(d.woke) < wakeTimeout
	f := d.facts(now, d.kubelet.timeout)
	f.Woke = d.woke
	d.completeFacts(&f, now, held)
	s := &facts.Snapshot{
		SchemaVersion: facts.SchemaVersion, At: now, Facts: f, Previous: last, Ready: d.loop.Snapshot().Ready,
	}
	if s.Verdict = *health.Judge(&s.Facts, now, last); held {
		s.Verdict = *last
	}
	d.metrics.Observe(s)
	d.published.Store(s)
	return s
}

// setAlert sets the alert by a judgement.
func (d *Daemon) setAlert(s *facts.Snapshot, now time.Time) {
	if alarming(&s.Facts, now) || health.CloserLook(&s.Verdict) || now.Sub(d.woke) < wakeTimeout {
		d.alerted = now
	}
	on := now.Sub(d.alerted) < alertFor
	if on && !d.alert {
		d.dialer.ProbeNow()
	}
	d.alert = on
	d.sources.Alert(on)
}

// alarming reports whether a call fails or hangs, a queue is not empty, or
// the runtime's process is not well.
func alarming(f *facts.Facts, now time.Time) bool {
	if f.Relist.Failures > 0 || f.Relist.Reinspect > 0 || f.Status.LastErr != nil || !f.Probe.At.IsZero() && !f.Probe.OK {
		return true
	}
	if in := f.Relist.InFlight; in != nil && unanswered(in.PhaseStart, now) ||
		unanswered(f.Status.InFlightSince, now) || unanswered(f.Version.HangsSince, now) {
		return true
	}
	p, q := f.Evidence.Process, f.Evidence.Queue
	return p != nil && (!p.Alive || now.Sub(p.StoppedAt) <= quietInterval) || q != nil && (q.Length > 0 || !q.Listening)
}

// unanswered reports whether a call has had no answer for so long that something may be wrong.
func unanswered(since, now time.Time) bool { return !since.IsZero() && now.Sub(since) >= tick }

// logVerdict logs each change of verdict once. It reports whether it has changed.
func (d *Daemon) logVerdict(s *facts.Snapshot) bool {
	v, from := &s.Verdict, d.logged
	if from.State == v.State && from.Reason == v.Reason {
		return false
	}
	d.logged = facts.Verdict{State: v.State, Reason: v.Reason}
	d.changed.Send()
	var evidence, also []string
	for i, a := range v.Active {
		if also = append(also, a.ID); i == 0 {
			evidence, also = a.Evidence, nil
		}
	}
	level := map[facts.State]zapcore.Level{
		facts.StateUnhealthy: zapcore.ErrorLevel, facts.StateDegraded: zapcore.WarnLevel,
	}[v.State] // else zapcore.InfoLevel
	known := func(is bool, f zap.Field) zap.Field {
		if is {
			return f
		}
		return zap.Skip()
	}
	d.log.Log(level, "verdict changed",
		zap.String("state", string(v.State)), zap.String("reason", v.Reason),
		zap.String("from_state", string(from.State)), zap.String("from_reason", from.Reason),
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
			d.log.Info("a source works again", zap.String("source", name))
		default:
			d.log.Info("a source has failed; what needs it is missing",
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
