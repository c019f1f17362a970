package kubelet

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// eventedSlack is what a relist and the timer behind it take in the kubelet beyond its lists.
	eventedSlack = 50 * time.Millisecond
	// metricsAge is the longest time between two samples of the kubelet's metrics.
	metricsAge = 5 * time.Second
)

// kubeletRelisted bounds the start of the kubelet's last relist before plegd's last, at seen. A kubelet that relies on
// events relists when it starts, and each period after the end of a relist (pkg/kubelet/pleg/generic.go). Its metrics
// show when; without them its start does, ever less exactly.
func (m *moment) kubeletRelisted(seen time.Time) window {
	period := m.f.Config.KubeletRelistPeriod
	if period == 0 {
		return exactly(seen)
	}
	if counted := countedRelist(m.f); !counted.IsZero() {
		return window{earliest: counted.Add(-metricsAge), latest: counted}
	}
	unknown := window{earliest: seen.Add(-period), latest: seen}
	process := m.f.Evidence.KubeletProcess
	if process == nil || process.Started.IsZero() {
		return unknown
	}
	longest := period + eventedSlack
	if lists := m.f.Relist.Lists; len(lists) > 0 {
		longest += slices.Max(lists)
	}
	first := window{earliest: process.Started, latest: process.Started.Add(startupTakes)}
	hung := m.f.Relist.AnsweredSince.After(first.latest) // a relist of the kubelet's may have hung too
	if seen.Before(first.latest) || hung {
		return unknown
	}
	certain := int(seen.Sub(first.latest) / longest) // relists that have begun
	possible := int(seen.Sub(first.earliest) / period)
	return window{
		earliest: facts.Later(unknown.earliest, first.earliest.Add(time.Duration(certain)*period)),
		latest:   facts.Earliest(seen, first.latest.Add(time.Duration(possible)*longest)),
	}
}

// countedRelist returns the start of the last relist by the metrics of a kubelet that relies on events; zero where they
// do not show it, or one before the last that must have succeeded since plegd's did.
func countedRelist(f *facts.Facts) time.Time {
	period := f.Config.KubeletRelistPeriod
	k := f.Evidence.Kubelet
	if period == 0 || k == nil || k.LastSeen.IsZero() {
		return time.Time{}
	}
	due := facts.Later(k.LastSeen, f.Relist.AnsweredSince).Add(period + metricsAge)
	if facts.LastSeen(f).After(due) {
		return time.Time{}
	}
	return k.LastSeen
}

// followMissed notes, while lists hang or fail, when a kubelet that relies on events relisted last before that.
func (m *Model) followMissed(current *moment) {
	if current.f.Config.KubeletRelistPeriod > 0 && current.relistTrouble() {
		m.missed = current.kubeletRelisted(facts.LastSeen(current.f))
	}
}

// missedRelist returns the start of the kubelet's last relist where its next one may have hung until its timeout and
// failed, the one after that is not due yet, and the rule may fail meanwhile; zero for none.
func (m *moment) missedRelist(missed window) time.Time {
	due := m.relistDue()
	if due.IsZero() || missed.never() || !m.t.Before(due) || m.relistTrouble() {
		return time.Time{}
	}
	c := &m.f.Config
	failed := missed.earliest.Add(c.KubeletRelistPeriod + c.RPCTimeout)
	fails := missed.earliest.Add(c.RelistThreshold)
	if m.f.Relist.AnsweredSince.Before(failed) || !fails.Before(due) {
		return time.Time{}
	}
	return missed.earliest
}

// relistDue is when a kubelet that relies on events has certainly relisted again since lists are answered again, by its
// metrics if these show it; zero where plegd's own relists do.
func (m *moment) relistDue() time.Time {
	answered := m.f.Relist.AnsweredSince
	period := m.f.Config.KubeletRelistPeriod
	counted := countedRelist(m.f)
	switch {
	case answered.IsZero() || period == 0:
		return time.Time{}
	case counted.After(answered):
		return counted
	case !counted.IsZero():
		return time.Time{}
	}
	return answered.Add(period + eventedSlack)
}
