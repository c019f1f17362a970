package daemon

import (
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/kubelet"
)

const (
	// resumeWithin is the longest time since the last save after which a fault that stood then counts as the same one.
	resumeWithin = 10 * time.Second
	// resumeHold is the longest time for which the verdict before a restart is held until the first calls end.
	resumeHold = 5 * time.Second
)

// condition is what stood when the state was written. A plegd that starts within a fault continues with it: one fault
// has one begin and one prediction over any number of restarts.
type condition struct {
	Verdict        facts.Verdict      `json:"verdict"`
	NodeStatus     facts.NodeStatus   `json:"node_status"`
	Version        facts.VersionCheck `json:"version"`
	KubeletStarted time.Time          `json:"kubelet_started,omitzero"`
	KubeletTicks   uint64             `json:"kubelet_start_ticks,omitzero"`
	Model          kubelet.Memory     `json:"model"`
}

// faulty reports whether a fault stood.
func (c *condition) faulty() bool {
	return c != nil && (c.Verdict.State == facts.StateDegraded || c.Verdict.State == facts.StateUnhealthy)
}

// translated returns a copy whose times are translated from one clock to another.
func (c *condition) translated(translate func(time.Time) time.Time) *condition {
	out := *c
	out.Verdict.WaitChain = facts.WaitChain{} // it is followed again
	out.Verdict.Active = append([]facts.Active(nil), c.Verdict.Active...)
	times := append(out.Model.Times(), &out.KubeletStarted, &out.Version.HangsSince, &out.Version.Ended,
		&out.NodeStatus.NotReadyFrom, &out.NodeStatus.NotReadyBy, &out.NodeStatus.ReadyFrom, &out.NodeStatus.ReadyBy,
		&out.Verdict.Since, &out.Verdict.LastSeen, &out.Verdict.ModelledLastSeen, &out.Verdict.Started)
	for i := range out.Verdict.Active {
		out.Verdict.Active[i].Cause = nil
		times = append(times, &out.Verdict.Active[i].Since, &out.Verdict.Active[i].Seen)
	}
	for _, t := range times {
		*t = translate(*t)
	}
	return &out
}

// resume continues with the condition of the plegd before.
func (d *Daemon) resume() {
	c := d.restored.condition
	if c == nil {
		return
	}
	version := c.Version
	if !c.faulty() {
		version.HangsSince = time.Time{} // a call was in flight
	}
	d.version.Store(&version)
	d.kubelet.started = c.KubeletStarted
	d.kubelet.ticks = c.KubeletTicks
	d.kubelet.model = kubelet.Resume(c.Model)
	if c.faulty() {
		d.kubelet.status = &c.NodeStatus
	}
}

// resumed returns the verdict before the restart while it is held: a fault stood, and the first calls have not ended.
func (d *Daemon) resumed(f *facts.Facts, t time.Time) *facts.Verdict {
	c := d.restored.condition
	settled := kubelet.Settled(f, t) && versionSettled(f, t)
	if !c.faulty() || t.Sub(d.started) >= resumeHold || settled {
		return nil
	}
	saved := facts.Snapshot{At: d.restored.written, Verdict: c.Verdict}
	held := saved.AsOf(t)
	return &held.Verdict
}

// versionSettled reports whether Version has been answered since plegd started, or hangs for it too.
func versionSettled(f *facts.Facts, t time.Time) bool {
	asked := f.Calls[cri.OpVersion].InFlightSince
	return f.Version.HangsSince.IsZero() || facts.Unanswered(asked, t, kubelet.VersionHangAfter)
}

// keepCondition keeps for the next save what stands now.
func (d *Daemon) keepCondition(s *facts.Snapshot) {
	d.condition.Store(&condition{
		Verdict:        s.Verdict,
		NodeStatus:     *s.Facts.NodeStatus,
		Version:        s.Facts.Version,
		KubeletStarted: s.Facts.KubeletStarted,
		KubeletTicks:   d.kubelet.ticks,
		Model:          d.kubelet.model.Memory(),
	})
}
