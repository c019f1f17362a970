package kubelet

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// VersionHangAfter is how long a Version call is unanswered until it counts as hanging.
	VersionHangAfter = 900 * time.Millisecond
	// ListHangAfter is how long a list beside it is unanswered.
	ListHangAfter = 500 * time.Millisecond
)

// versionHang bounds the begin of the hang of Version, with a list that hangs for the same reason; never for none.
func (m *moment) versionHang() window {
	v := m.f.Version
	if !m.unanswered(v.HangsSince, VersionHangAfter) {
		return window{}
	}
	if v.Ended.IsZero() {
		return m.hangBeforePlegd()
	}
	hang := window{earliest: v.Ended, latest: v.HangsSince}
	if list := m.Unanswered; list != nil {
		hang = m.withList(hang, list)
	}
	hang.earliest = facts.Earliest(hang.earliest, hang.latest)
	return hang
}

// withList narrows the begin of a hang by a list that hangs too: the hang began after the last answer before it.
func (m *moment) withList(hang window, list *facts.InFlight) window {
	start := list.PhaseStart
	answered := m.f.Calls[string(list.Phase)].LastOK
	if start.After(m.LastAnswer) {
		answered = m.LastAnswer
	}
	sameHang := answered.Before(hang.latest) && hang.earliest.Before(start)
	if !sameHang {
		return hang
	}
	return window{earliest: facts.Later(hang.earliest, answered), latest: facts.Earliest(hang.latest, start)}
}

// hangBeforePlegd bounds the begin of a hang that is older than plegd, or than what the restored state holds.
func (m *moment) hangBeforePlegd() window {
	good := m.f.Status.LastGood
	hang := window{
		earliest: m.f.Started.Add(-m.f.Config.RPCTimeout),
		latest:   facts.Earliest(m.f.Version.HangsSince, facts.Plus(good, StatusPeriod)),
	}
	if list := m.Unanswered; list != nil && list.PhaseStart.After(hang.earliest) {
		hang.latest = facts.Earliest(hang.latest, list.PhaseStart)
	}
	for _, answered := range []time.Time{good, m.f.Relist.LastSeen} {
		if answered.After(hang.earliest) && answered.Before(hang.latest) {
			hang.earliest = answered
		}
	}
	hang.earliest = facts.Earliest(hang.earliest, hang.latest)
	return hang
}
