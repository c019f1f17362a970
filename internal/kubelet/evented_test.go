package kubelet

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/factstest"
)

// TestKubeletRelisted bounds the last relist of a kubelet that relists each 300 s, before plegd's last one at t0.
func TestKubeletRelisted(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		kubelet  time.Duration // how long ago it started; 0: unknown
		counted  time.Duration // how long ago it relisted by its metrics; 0: unknown
		list     time.Duration // the longest recent list
		answered time.Duration // how long ago lists were answered again; 0: they always were
		from, by time.Duration // how long ago
	}{
		"nothing is known":          {0, 0, 0, 0, 300 * s, 0},
		"it has just started":       {5 * s, 0, 0, 0, 300 * s, 0},
		"it has started":            {100 * s, 0, 0, 0, 100 * s, 94 * s},
		"the second may have begun": {303 * s, 0, 0, 0, 300 * s, 0},
		"the second":                {320 * s, 0, 0, 0, 20 * s, 13950 * time.Millisecond},
		"after a day":               {86500 * s, 0, 0, 0, 100 * s, 79600 * time.Millisecond},
		"after a day of slow lists": {86500 * s, 0, 2 * s, 0, 300 * s, 0},
		"its metrics":               {86500 * s, 30 * s, 0, 0, 35 * s, 30 * s},
		"its metrics left one out":  {100 * s, 400 * s, 0, 0, 100 * s, 94 * s},
		"after a hang":              {320 * s, 0, 0, 5 * s, 300 * s, 0},
		"its metrics after a hang":  {86500 * s, 400 * s, 0, 5 * s, 405 * s, 400 * s},
	} {
		f := factstest.Healthy(t0)
		f.Config.KubeletRelistPeriod = 300 * s
		f.Relist.Lists = []time.Duration{0, tt.list}
		if tt.kubelet > 0 {
			f.Evidence.KubeletProcess = &facts.KubeletProcess{Started: ago(tt.kubelet)}
		}
		if tt.answered > 0 {
			f.Relist.AnsweredSince = ago(tt.answered)
		}
		if tt.counted > 0 {
			f.Evidence.Kubelet = &facts.Kubelet{LastSeen: ago(tt.counted)}
		}
		if got := newMoment(&f, t0, Observations{}).kubeletRelisted(t0); got != (window{ago(tt.from), ago(tt.by)}) {
			t.Errorf("%s: from %s to %s ago", name, t0.Sub(got.earliest), t0.Sub(got.latest))
		}
	}
}

// TestMissedRelist: after a hang in which a relist of a kubelet that relies on events may have run into its timeout, the
// rule may fail until the next one is due. That is a window, and never certain.
func TestMissedRelist(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		hung    time.Duration
		period  time.Duration
		counted bool          // the kubelet's metrics show a relist since
		from    time.Duration // of the window, after the begin of the hang; 0: none
	}{
		"a long hang":                    {400 * s, 300 * s, false, 401 * s},
		"its metrics show a relist":      {400 * s, 300 * s, true, 0},
		"no relist can have failed":      {100 * s, 300 * s, false, 0},
		"one may just have failed":       {130 * s, 300 * s, false, 300 * s},
		"the kubelet relists by a timer": {400 * s, 0, false, 0},
	} {
		var m Model
		opened := time.Duration(0)
		for now := time.Duration(0); now < 900*s; now += s {
			f := factstest.Healthy(at(now))
			f.Started, f.Version.Ended = ago(time.Hour), at(now)
			f.Config.KubeletRelistPeriod, f.Config.RPCTimeout, f.Config.RelistThreshold = tt.period, 120*s, 600*s
			f.Relist.AnsweredSince = ago(time.Hour)
			switch {
			case now < tt.hung && now > 0:
				f.Relist.LastSeen, f.Modelled.LastSeen = t0, t0
				f.Relist.InFlight = &facts.InFlight{Start: t0, Phase: facts.PhaseListContainers, PhaseStart: t0}
			case now >= tt.hung:
				f.Relist.AnsweredSince = at(tt.hung)
			}
			if tt.counted {
				f.Evidence.Kubelet = &facts.Kubelet{LastSeen: at(now)}
			}
			status, _ := m.Observe(&f, at(now), Observations{AttemptMade: true})
			if status.NotReady {
				t.Fatalf("%s: NotReady is certain after %s", name, now)
			}
			if now > tt.hung && opened == 0 && !status.NotReadyBy.IsZero() {
				opened = status.NotReadyFrom.Sub(t0).Round(s)
			}
		}
		if (opened-tt.from).Abs() > s || m.state != Ready {
			t.Errorf("%s: a window from %s, want %s; in the end %s", name, opened, tt.from, m.state)
		}
	}
}

// TestCountedAgain: once the metrics show a relist after the hang, the node is certainly Ready with the update after it.
func TestCountedAgain(t *testing.T) {
	const s = time.Second
	const hung, relisted = 630 * s, 705 * s
	var m Model
	settled := time.Duration(0)
	for now := time.Duration(0); now < 730*s; now += s {
		f := factstest.Healthy(at(now))
		f.Started, f.Version.Ended = ago(time.Hour), at(now)
		f.Config.KubeletRelistPeriod, f.Config.RPCTimeout, f.Config.RelistThreshold = 300*s, 120*s, 600*s
		f.Relist.AnsweredSince = ago(time.Hour)
		switch {
		case now > 0 && now < hung:
			f.Relist.LastSeen, f.Modelled.LastSeen = t0, t0
			f.Relist.InFlight = &facts.InFlight{Start: t0, Phase: facts.PhaseListContainers, PhaseStart: t0}
		case now >= relisted+2*s:
			f.Evidence.Kubelet = &facts.Kubelet{LastSeen: at(relisted)}
			f.Relist.AnsweredSince = at(hung)
		case now >= hung:
			f.Relist.AnsweredSince = at(hung)
		}
		status, _ := m.Observe(&f, at(now), Observations{AttemptMade: true})
		if now > relisted && settled == 0 && m.state == Ready && status.NotReadyBy.IsZero() {
			settled = now
		}
	}
	if settled < relisted+10*s || settled > relisted+13*s {
		t.Errorf("certainly Ready %s after the relist", settled-relisted)
	}
}
