package health

import (
	"fmt"
	"testing"
	"time"
)

// TestModelTellsHungFromSlow: sixteen inspections that plegd saw answered
// together after 4 s cost a kubelet 4 s when they hung until then, and 64 s when
// each takes 4 s. Asking once more tells which.
func TestModelTellsHungFromSlow(t *testing.T) {
	const pods, took = 16, 4 * time.Second
	for name, tt := range map[string]struct {
		again time.Duration // 0: not asked, or not answered
		done  time.Duration // when the modelled kubelet has inspected all
	}{
		"not known":  {0, pods * took},
		"slow":       {took, pods * took},
		"it is over": {5 * time.Millisecond, took + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			m := NewModel(period, rpcLimit, time.Time{})
			first := RelistRecord{Seq: 1, Start: t0, Listed: t0, OK: true, Complete: true}
			second := RelistRecord{Seq: 2, Start: t0.Add(took + period), Listed: t0.Add(took + period), OK: true, Complete: true}
			for pod := range pods {
				i := InspectionRecord{UID: fmt.Sprint(pod), Done: true, End: t0.Add(took), Spent: took}
				first.Inspections = append(first.Inspections, i)
				if tt.again > 0 {
					i.Spent, i.End = tt.again, second.Start.Add(tt.again)
					second.Again = append(second.Again, i)
				}
			}
			m.Observe(first)
			m.At(t0.Add(took))
			m.Observe(second)
			if s := m.At(t0.Add(tt.done - 1500*time.Millisecond)); s.Inspecting == 0 && tt.done > took+2*time.Second {
				t.Errorf("1.5 s before %s nothing is left to inspect", tt.done)
			}
			if s := m.At(t0.Add(tt.done)); s.Inspecting != 0 {
				t.Errorf("after %s %d pods are left to inspect", tt.done, s.Inspecting)
			}
		})
	}
}

// TestModelRefreshesWhatIsBehind: the same for pods that the kubelet had no time
// for, and inspects in a later relist.
func TestModelRefreshesWhatIsBehind(t *testing.T) {
	m := NewModel(period, rpcLimit, time.Time{})
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	// It hangs in one pod while plegd relists on.
	m.Observe(RelistRecord{Seq: 1, Start: at(0), Listed: at(0), OK: true, Complete: true, Inspections: []InspectionRecord{{UID: "a", Done: true, End: at(10), Spent: 10 * time.Second, Cut: true, CutCall: 10 * time.Second}}})
	m.Observe(RelistRecord{Seq: 2, Start: at(11), Listed: at(11), OK: true, Complete: true, Inspections: []InspectionRecord{{UID: "b", Done: true, End: at(19), Spent: 8 * time.Second}}})
	m.Observe(RelistRecord{Seq: 3, Start: at(20), Listed: at(20), OK: true, Complete: true,
		Inspections: []InspectionRecord{{UID: "a", Done: true, End: at(20.1), Spent: 100 * time.Millisecond}},
		Again:       []InspectionRecord{{UID: "b", Done: true, End: at(20.1), Spent: 100 * time.Millisecond}},
	})
	m.Observe(RelistRecord{Seq: 4, Start: at(21.2), Listed: at(21.2), OK: true, Complete: true})
	// a was answered at 20.1; the next begins a period later, with b.
	if s := m.At(at(22)); s.Inspecting != 0 || s.LastSeen.Before(at(21)) {
		t.Errorf("at 22 s: %+v, want nothing left to inspect", s)
	}
}
