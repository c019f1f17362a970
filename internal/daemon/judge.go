package daemon

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/logging"
	"github.com/plegd/plegd/internal/plain"
)

const (
	// judgeEvery is the tick of the judge, and the evaluation interval while something
	// may be wrong. A relist that ends and a source with news are judged at once.
	judgeEvery = 250 * time.Millisecond
	// quietInterval is the maximum evaluation interval otherwise.
	quietInterval = time.Second
	// unansweredAfter is the age of a call from which something may be wrong.
	unansweredAfter = 250 * time.Millisecond
	// alertFor is the time for which the alert lasts after its last cause.
	alertFor = 5 * time.Second
)

// judge is the only writer of the snapshot: after each relist, and every 250 ms while
// something may be wrong, it gathers the facts, judges them and publishes both as one
// snapshot, which never changes afterwards. It logs changes, and is plegd's supervisor:
// it feeds systemd's watchdog.
type judge struct {
	*parts

	log       *zap.Logger
	metrics   *exporter.Metrics
	notifier  *notifier
	incidents *incident.Recorder // nil for none
	news      signal             // asks for a judgement
	changed   signal             // receives each change of verdict

	// published is the newest snapshot. Only the goroutine of Run replaces it.
	published atomic.Pointer[health.Snapshot]
	last      *health.Verdict
	kubelet   kubeletModel
	paused    pauses
	probed    time.Time // the last probe that was counted
	// alert is true while something may be wrong: expensive evidence is then sampled
	// often. alerted is the last cause.
	alert        bool
	alerted      time.Time
	logged       logging.OnChange[loggedVerdict]
	eventsLogged logging.OnChange[eventStream]
}

// loggedVerdict is the part of a verdict that is logged when it changes.
type loggedVerdict struct {
	state  health.State
	reason string
}

// Run judges until ctx ends, and then returns nil.
func (j *judge) Run(ctx context.Context) error {
	tick := time.NewTicker(judgeEvery)
	defer tick.Stop()
	j.judge(time.Now())
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			now := time.Now()
			if j.paused.note(now); j.quiet(now) {
				continue
			}
		case <-j.news:
			if !j.ready() {
				continue // the first relist has yet to be tried
			}
		case <-j.loop.Ended():
			if j.loop.Snapshot().Failures > 0 {
				j.dialer.ProbeNow() // a fresh connection knows more
			}
		}
		now := time.Now()
		s := j.judge(now)
		j.notifier.judged(&s.Verdict, j.logVerdict(&s.Verdict), now)
		if j.incidents != nil {
			j.incidents.Judged(s)
		}
		j.logEvents(&s.Facts)
		j.sources.logChanges()
		j.setAlert(s, now)
	}
}

// quiet reports whether there is nothing to judge: nothing may be wrong, and the last
// judgement is recent. Ages are computed when they are read.
func (j *judge) quiet(now time.Time) bool {
	return !j.alert && !unanswered(j.loop.Snapshot().Start, now) &&
		now.Sub(j.published.Load().At) < quietInterval
}

func unanswered(since, now time.Time) bool {
	return !since.IsZero() && now.Sub(since) >= unansweredAfter
}

// setAlert sets the alert by a judgement.
func (j *judge) setAlert(s *health.Snapshot, now time.Time) {
	if alarming(&s.Facts, now) || s.CloserLook() || j.paused.held {
		j.alerted = now
	}
	on := now.Sub(j.alerted) < alertFor
	if j.alert == on {
		return
	}
	j.alert = on
	j.sources.Alert(on)
	if on {
		j.dialer.ProbeNow()
	}
}

// alarming reports whether a call is slow, fails or hangs, a queue is not empty, or
// the runtime's process is not well.
func alarming(f *health.Facts, now time.Time) bool {
	r, e := &f.Relist, &f.Evidence
	slow := len(r.Lists) > 0 && r.Lists[len(r.Lists)-1] >= health.HangAfter
	if slow || r.Failures > 0 || r.Reinspect > 0 || f.Status.LastErr != nil {
		return true
	}
	if r.InFlight != nil && unanswered(r.InFlight.PhaseStart, now) ||
		unanswered(f.Status.InFlightSince, now) || unanswered(f.Version.HangsSince, now) {
		return true
	}
	if p := e.Process; p != nil && (!p.Alive || now.Sub(p.StoppedAt) <= quietInterval) {
		return true
	}
	q := e.Queue
	return !f.Probe.At.IsZero() && !f.Probe.OK || q != nil && (q.Length > 0 || !q.Listening)
}

// ready reports whether the first relist has been attempted.
func (j *judge) ready() bool {
	select {
	case <-j.loop.Ready():
		return true
	default:
		return false
	}
}

// judge gathers the facts of now, judges them, and publishes the result.
func (j *judge) judge(now time.Time) *health.Snapshot {
	j.paused.note(now)
	f := j.facts(now, j.kubelet.timeout)
	f.Woke = j.paused.woke
	j.kubelet.complete(j.parts, &f, now, j.paused.held)
	s := &health.Snapshot{
		SchemaVersion: health.SchemaVersion, At: now, Facts: f, Previous: j.last, Ready: j.ready(),
	}
	j.last = j.paused.judged(now, &s.Facts, health.Judge(&s.Facts, now, j.last), j.last)
	s.Verdict = *j.last
	if !f.Probe.At.Equal(j.probed) {
		j.probed = f.Probe.At
		if cause := exporter.AcceptFailure(f.Probe, &s.Facts.Evidence); cause != "" {
			j.metrics.AcceptFailed(cause)
		}
	}
	j.metrics.Observe(s)
	j.published.Store(s)
	return s
}

// logVerdict logs each change of verdict once. It reports whether it has changed.
func (j *judge) logVerdict(v *health.Verdict) bool {
	from, changed := j.logged.Set(loggedVerdict{v.State, v.Reason})
	if !changed {
		return false
	}
	j.changed.send()
	fields := []zap.Field{
		zap.String("state", string(v.State)), zap.String("reason", v.Reason),
		zap.String("from_state", string(from.state)), zap.String("from_reason", from.reason),
	}
	var also []string
	for i, a := range v.Active {
		if i == 0 {
			fields = append(fields, zap.Strings("evidence", a.Evidence))
			continue
		}
		also = append(also, a.ID)
	}
	if also != nil {
		fields = append(fields, zap.Strings("also", also))
	}
	for _, countdown := range []struct {
		name string
		in   *time.Duration
	}{
		{"rules_fail_in_seconds", v.RulesFailIn}, {"not_ready_in_seconds", v.NotReadyIn},
		{"not_ready_in_latest_seconds", v.NotReadyInLatest},
	} {
		if countdown.in != nil {
			fields = append(fields, zap.Float64(countdown.name, countdown.in.Seconds()))
		}
	}
	for _, text := range []zap.Field{zap.String("kubelet_message", v.KubeletMessage), zap.String("next", v.Next)} {
		if text.String != "" {
			fields = append(fields, text)
		}
	}
	j.log.Log(levelOf(v.State), "verdict changed", fields...)
	return true
}

func levelOf(s health.State) zapcore.Level {
	switch s {
	case health.StateUnhealthy:
		return zapcore.ErrorLevel
	case health.StateDegraded:
		return zapcore.WarnLevel
	default:
		return zapcore.InfoLevel
	}
}

// maxStatusLine is as much of the verdict as systemctl status shows, in bytes.
const maxStatusLine = 1 << 10

// statusLine is the verdict in one line, for systemctl status.
func statusLine(v *health.Verdict) string {
	var b strings.Builder
	b.WriteString(string(v.State))
	if v.Reason != "" {
		fmt.Fprintf(&b, ": %s", v.Reason)
		if len(v.Active[0].Evidence) > 0 {
			fmt.Fprintf(&b, " (%s)", v.Active[0].Evidence[0])
		}
	}
	if v.RulesFailIn != nil && *v.RulesFailIn == 0 {
		b.WriteString("; the kubelet manages no pods")
	}
	switch {
	case !v.NodeReady && v.State != health.StateStarting:
		b.WriteString("; the node is NotReady by the model")
	case v.NotReadyIn != nil:
		fmt.Fprintf(&b, "; NotReady in %s to %s", v.NotReadyIn.Round(time.Second), v.NotReadyInLatest.Round(time.Second))
	}
	// systemd refuses invalid UTF-8, and a line break would begin another message to it.
	text := plain.Text(b.String())
	return strings.ToValidUTF8(text[:min(len(text), maxStatusLine)], "")
}
