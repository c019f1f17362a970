package health

import (
	"testing"
	"time"
)

// TestCutAndAnswered: an inspection that plegd cut after 10 s and that was
// answered at once later holds up the modelled kubelet until it was answered, and
// not for another 10 s from where the model stood.
func TestCutAndAnswered(t *testing.T) {
	m := NewModel(period, rpcLimit, time.Time{})
	at := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	// Pod a takes 10 s, and b is inspected beside it and cut: the kubelet begins
	// with b when it is done with a.
	m.Observe(RelistRecord{Seq: 1, Start: at(0), Listed: at(0), OK: true, Complete: true, Inspections: []InspectionRecord{
		{UID: "a", Done: true, End: at(10), Spent: 10 * time.Second},
		{UID: "b", Done: true, End: at(10), Spent: 10 * time.Second, Cut: true, CutCall: 10 * time.Second},
	}})
	if got := m.At(at(10.5)).EndsBy; !got.Equal(at(130)) {
		t.Errorf("the relist ends by %s, want 130 s: b may hang for the whole RPC timeout", got.Sub(t0))
	}
	m.Observe(RelistRecord{Seq: 2, Start: at(11), Listed: at(11), OK: true, Complete: true, Inspections: []InspectionRecord{
		{UID: "b", Done: true, End: at(12), Spent: 5 * time.Millisecond},
	}})
	m.Observe(RelistRecord{Seq: 3, Start: at(13), Listed: at(13), OK: true, Complete: true})
	if got := m.At(at(13.5)); !got.LastSeen.Equal(at(13)) {
		t.Errorf("1.5 s after b was answered: last seen %s, want 13s", got.LastSeen.Sub(t0))
	}
}

// TestRelistEndsInTime: a relist that is known to end before the threshold is no
// countdown.
func TestRelistEndsInTime(t *testing.T) {
	for _, tt := range []struct {
		endsBy time.Duration // after its start
		counts bool
	}{{118 * time.Second, false}, {178 * time.Second, false}, {180 * time.Second, true}, {242 * time.Second, true}} {
		f := healthyFacts(t0)
		began := t0.Add(-30 * time.Second)
		f.Modelled = Modelled{LastSeen: began, BusySince: began, InspectingSince: began, Inspecting: 60, EndsBy: began.Add(tt.endsBy)}
		if _, counts := newView(&f, t0, nil).rulesFailAt(); counts != tt.counts {
			t.Errorf("a relist of %s: counts down %t, want %t", tt.endsBy, counts, tt.counts)
		}
	}
}
