package health

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// silentKubelet is a node whose kubelet answers no look at it from a moment on,
// until another.
type silentKubelet struct {
	writer   NodeWriter
	kubelet  facts.Kubelet
	previous *facts.Verdict
}

// at is the verdict at a moment: kubelet is asked every 4 s. change changes the facts
// of a healthy runtime.
func (n *silentKubelet) at(now time.Time, refused bool, change func(*facts.Facts)) *facts.Verdict {
	if now.Sub(n.kubelet.At) >= 4*time.Second {
		n.kubelet.At, n.kubelet.Seen, n.kubelet.OK, n.kubelet.Refused = now, true, !refused, refused
		switch {
		case !refused:
			n.kubelet.AnsweredAt, n.kubelet.FailedSince = now, time.Time{}
		case n.kubelet.FailedSince.IsZero():
			n.kubelet.FailedSince = now
		}
	}
	f := healthyFacts(now)
	f.Started, f.Version.Ended = t0.Add(-time.Hour), now
	k := n.kubelet
	f.Evidence.Kubelet = &k
	if change != nil {
		change(&f)
	}
	status := n.writer.At(&f, now)
	f.NodeStatus = &status
	n.previous = Judge(&f, now, n.previous)
	return n.previous
}

// TestKubeletIsDead: a kubelet that has ended writes nothing, and 40 to 55 s later
// the node controller sets Unknown. A new kubelet writes Ready with its next update.
func TestKubeletIsDead(t *testing.T) {
	const died, back = 10.5, 120.0
	var n silentKubelet
	for at := 0.0; at < 140; at += 0.25 {
		v := n.at(t0.Add(time.Duration(at*float64(time.Second))), at > died && at < back, nil)
		// The look at 12 s is the first that is refused; it is a fault 10 s later.
		switch {
		case at < 22 || at > 136:
			if !v.NodeReady || v.NotReadyIn != nil {
				t.Fatalf("second %v: node Ready %t, NotReady in %v", at, v.NodeReady, v.NotReadyIn)
			}
		case at < died+39:
			if !v.NodeReady || v.NotReadyIn == nil || v.KubeletMessage != msgSilent {
				t.Fatalf("second %v: node Ready %t, NotReady in %v, message %q", at, v.NodeReady, v.NotReadyIn, v.KubeletMessage)
			}
			// Unknown came 43.8 s after the end of a real one: the renewal before it was
			// up to 10.4 s old, the controller looks every 5 s.
			from, by := at+v.NotReadyIn.Seconds(), at+v.NotReadyInLatest.Seconds()
			if from > died+39.6 || by < died+55 || by-from > 22 {
				t.Fatalf("second %v: Unknown at %v to %v", at, from, by)
			}
		case at > 69 && at < back:
			if v.NodeReady || v.NotReadyIn == nil || *v.NotReadyInLatest != 0 || v.KubeletMessage != msgSilent || v.ReadyIn != nil {
				t.Fatalf("second %v: node Ready %t, NotReady in %v, message %q, Ready in %v", at, v.NodeReady, v.NotReadyIn, v.KubeletMessage, v.ReadyIn)
			}
		case at > back && at < back+11 && !v.NodeReady:
			if v.ReadyIn == nil || *v.ReadyIn != 0 || v.ReadyInLatest.Seconds() > back+11.5-at {
				t.Fatalf("second %v: back, Ready in %v to %v", at, v.ReadyIn, v.ReadyInLatest)
			}
		}
	}
	if n.previous.State != facts.StateHealthy || n.previous.KubeletMessage != "" {
		t.Errorf("in the end %s, %q", n.previous.State, n.previous.KubeletMessage)
	}
}

// TestKubeletAnswers: a kubelet whose check fails, or that restarts, renews its lease.
func TestKubeletAnswers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		refused func(at float64) bool
		change  func(*facts.Facts)
	}{
		{"its check fails", func(float64) bool { return false }, func(f *facts.Facts) {
			f.Evidence.Kubelet.OK, f.Evidence.Kubelet.FailedSince = false, t0
		}},
		{"it restarts", func(at float64) bool { return at > 10 && at < 18 }, nil},
	} {
		var n silentKubelet
		for at := 0.0; at < 100; at += 0.25 {
			v := n.at(t0.Add(time.Duration(at*float64(time.Second))), tt.refused(at), tt.change)
			if !v.NodeReady || v.NotReadyIn != nil || v.KubeletMessage != "" {
				t.Fatalf("%s: second %v: node Ready %t, NotReady in %v, message %q", tt.name, at, v.NodeReady, v.NotReadyIn, v.KubeletMessage)
			}
		}
	}
}

// TestKubeletIsDeadBesideTheRuntime: where both have ended the 30-s rule fails, and
// nobody writes it into the condition: it turns Unknown.
func TestKubeletIsDeadBesideTheRuntime(t *testing.T) {
	const died = 10.5
	var n silentKubelet
	for at := 0.0; at < 100; at += 0.25 {
		now := t0.Add(time.Duration(at * float64(time.Second)))
		v := n.at(now, at > died, func(f *facts.Facts) {
			if at > died {
				f.Status.LastGood = t0.Add(10 * time.Second)
				f.Status.LastErr = &facts.CallError{Operation: "status", Code: "Unavailable"}
			}
		})
		if notReady := !v.NodeReady; notReady && at < died+54 || !notReady && at > 70 {
			t.Fatalf("second %v: node Ready %t, message %q", at, v.NodeReady, v.KubeletMessage)
		}
		if at > 70 && v.KubeletMessage != msgSilent {
			t.Fatalf("second %v: message %q, want that of the node controller", at, v.KubeletMessage)
		}
	}
}

// TestRulesBeforePlegd bounds when the rules fail of a kubelet that has run for longer than plegd, which began 20 s ago.
func TestRulesBeforePlegd(t *testing.T) {
	const s = time.Second
	late := &facts.CallError{Operation: opStatus, Code: "Unavailable"}
	for name, tt := range map[string]struct {
		change   func(*facts.Facts)
		from, by time.Duration // 0: nothing is unknown
	}{
		"all is answered":     {func(*facts.Facts) {}, 0, 0},
		"lists fail":          {func(f *facts.Facts) { f.Relist.Failures = 1 }, 120 * s, 160 * s},
		"lists always failed": {func(f *facts.Facts) { f.Relist.Failures, f.Relist.LastSeen = 1, time.Time{} }, -20 * s, 160 * s},
		"lists fail now":      {func(f *facts.Facts) { f.Relist.Failures, f.Relist.LastSeen = 1, ago(10*s) }, 0, 0},
		"a list hangs": {func(f *facts.Facts) {
			f.Relist.InFlight = &facts.InFlight{Phase: facts.PhaseListContainers, PhaseStart: ago(3 * s)}
		}, 120 * s, 160 * s},
		"Status fails":                 {func(f *facts.Facts) { f.Status.LastErr = late }, 4 * s, 10 * s},
		"Status fails now":             {func(f *facts.Facts) { f.Status.LastErr, f.Status.LastGood = late, ago(10*s) }, 0, 0},
		"lists fail, and then Status":  {func(f *facts.Facts) { f.Relist.Failures, f.Relist.LastSeen, f.Status.LastErr = 1, ago(178*s), late }, 2 * s, 10 * s},
		"Status fails, and then lists": {func(f *facts.Facts) { f.Relist.Failures, f.Status.LastErr = 1, late }, 4 * s, 10 * s},
		"the kubelet has restarted":    {func(f *facts.Facts) { f.Relist.Failures, f.KubeletStarted = 1, ago(5*s) }, 0, 0},
	} {
		f := healthyFacts(t0)
		f.Started, f.Relist.LastSeen, f.Status.LastGood = ago(20*s), ago(60*s), ago(21*s)
		tt.change(&f)
		want := bounds{at(tt.from), at(tt.by)}
		if got, ok := newView(&f, t0, nil).unknown(); ok != (tt.by > 0) || ok && got != want {
			t.Errorf("%s: %t, %s to %s; want %s to %s", name, ok, got.from, got.by, want.from, want.by)
		}
	}
}

// TestNodeWriter: what the API shows, with the message, and between which seconds that changes.
func TestNodeWriter(t *testing.T) {
	type step struct {
		at      float64
		network string              // the message of a network that is not ready
		version *facts.VersionCheck // nil: just answered
		good    float64             // when Status was last answered; 0: now
		want    string
	}
	second := func(s float64) time.Time { return at(time.Duration(s * float64(time.Second))) }
	hangs2, hangs72 := &facts.VersionCheck{HangsSince: second(2), Ended: second(1)}, &facts.VersionCheck{HangsSince: second(72), Ended: second(71)}
	hung := &facts.VersionCheck{HangsSince: second(.5)}
	for name, steps := range map[string][]step{
		"Version is answered": {
			{0, "", nil, 0, "Ready"}, {5, "A", nil, 0, "Ready, NotReady 5.0 to 16.2"}, {6, "A", nil, 0, "Ready, NotReady 6.0 to 16.2"},
			{16.3, "A", nil, 0, "NotReady A"}, {17, "B", nil, 0, "NotReady B"}, {20, "", nil, 0, "NotReady B, Ready 20.0 to 31.2"},
			{26, "", nil, 10, "NotReady B, Ready 26.0 to 31.2"}, {31.2, "", nil, 0, "Ready"}, // Status was late
			{40, "A", nil, 0, "Ready, NotReady 40.0 to 51.2"}, {40.5, "A", nil, 0, "Ready, NotReady 40.5 to 51.2"},
			{41, "", nil, 0, "Ready, Ready 41.0 to 52.2"}, {45, "", nil, 34, "Ready, NotReady 63.2 to 75.2"}, {52.3, "", nil, 0, "Ready"},
			{60, "A", nil, 0, "Ready, NotReady 60.0 to 71.2"}, {60.1, "", nil, 0, "Ready"},
		},
		"Version hangs": {
			{0, "A", nil, 0, "Ready, NotReady 0.0 to 11.2"}, {12, "A", nil, 0, "NotReady A"}, {20, "", nil, 0, "NotReady A, Ready 20.0 to 31.2"},
			{60, "", nil, 0, "Ready"}, {75, "", hangs72, 0, "Ready"}, {76, "B", hangs72, 0, "Ready, NotReady 190.7 to 202.7"},
			{77, "B", hangs72, 0, "Ready, NotReady 190.7 to 202.7"}, {78, "", hangs72, 0, "Ready"}, {79, "B", hangs72, 0, "Ready, NotReady 190.7 to 202.7"},
			{195, "B", hangs72, 0, "Ready, NotReady 195.0 to 202.7"}, {202.8, "B", hangs72, 0, "NotReady B"}, {210, "C", hangs72, 0, "NotReady B"},
			{340, "C", hangs72, 0, "NotReady C"}, {350, "", nil, 0, "NotReady C, Ready 350.0 to 361.2"}, {361.3, "", nil, 0, "Ready"},
		},
		"the rules fail while it hangs, for 2 s": {{0, "", hung, 0, "Ready"}, {6, "A", hung, 0, "Ready, NotReady 6.0 to 136.7"}, {7, "A", hung, 0, "Ready, NotReady 7.0 to 136.7"}, {8, "", hung, 0, "Ready, Ready 8.0 to 138.7"}, {20, "", nil, 0, "Ready, Ready 20.0 to 31.2"}, {32, "", nil, 0, "Ready"}},
		"Version hung before plegd began":        {{0, "", hung, 0, "Ready"}, {6, "A", hung, 0, "Ready, NotReady 6.0 to 136.7"}, {137, "A", hung, 0, "NotReady A"}},
		"Version was never called":               {{0, "", &facts.VersionCheck{}, 0, "Ready"}, {6, "A", &facts.VersionCheck{}, 0, "Ready, NotReady 6.0 to 17.2"}, {30, "A", &facts.VersionCheck{}, 0, "Ready, NotReady 30.0 to 30.0"}},
		"Version is answered, and Status": {
			{0, "", nil, 0, "Ready"}, {33, "", hangs2, 1, "Ready, NotReady 120.7 to 132.7"}, {33.1, "", nil, 1, "Ready, NotReady 33.1 to 44.3"},
			{33.2, "", nil, 0, "Ready, Ready 33.2 to 44.4"},
		},
		"Status is answered, and Version": {
			{0, "", nil, 0, "Ready"}, {33, "", hangs2, 1, "Ready, NotReady 120.7 to 132.7"}, {33.1, "", hangs2, 0, "Ready"}, {33.2, "", nil, 0, "Ready, Ready 33.2 to 44.4"},
		},
	} {
		var writer NodeWriter
		for _, tt := range steps {
			now := second(tt.at)
			f := healthyFacts(now)
			f.Started, f.Status.LastGood, f.Version.Ended = second(-3600), second(cmp.Or(tt.good, tt.at)), now
			if tt.network != "" {
				f.Status.NetworkReady = &facts.Condition{Message: tt.network}
			}
			if tt.version != nil {
				f.Version = *tt.version
			}
			ns := writer.At(&f, now)
			got := "Ready"
			if ns.NotReady {
				got = "NotReady "
			}
			got += ns.Message[strings.LastIndex(ns.Message, ":")+1:]
			if !ns.NotReadyBy.IsZero() {
				got += fmt.Sprintf(", NotReady %.1f to %.1f", ns.NotReadyFrom.Sub(t0).Seconds(), ns.NotReadyBy.Sub(t0).Seconds())
			}
			if !ns.ReadyBy.IsZero() {
				got += fmt.Sprintf(", Ready %.1f to %.1f", ns.ReadyFrom.Sub(t0).Seconds(), ns.ReadyBy.Sub(t0).Seconds())
			}
			if got != tt.want {
				t.Errorf("%s, %v: %s, want %s", name, tt.at, got, tt.want)
			}
		}
	}
}
