package kubelet

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/facts/factstest"
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
