package kubelet_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/kubelet"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/factstest"
)

// silentMessage is the message of a condition that the node controller has written.
const silentMessage = "Kubelet stopped posting node status."

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// silentKubelet is a node whose kubelet answers no look at it from a moment on,
// until another.
type silentKubelet struct {
	writer   kubelet.Model
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
	f := factstest.Healthy(now)
	f.Started, f.Version.Ended = t0.Add(-time.Hour), now
	k := n.kubelet
	f.Evidence.Kubelet = &k
	if change != nil {
		change(&f)
	}
	status, estimated := n.writer.Observe(&f, now, health.Observe(&f, now, nil).Observations)
	f.NodeStatus = &status
	f.Modelled.Estimated = estimated
	n.previous = health.Judge(&f, now, n.previous)
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
			if !v.NodeReady || v.NotReadyIn == nil || v.KubeletMessage != silentMessage {
				t.Fatalf("second %v: node Ready %t, NotReady in %v, message %q", at, v.NodeReady, v.NotReadyIn, v.KubeletMessage)
			}
			// Unknown came 43.8 s after the end of a real one: the renewal before it was
			// up to 10.4 s old, the controller looks every 5 s.
			from, by := at+v.NotReadyIn.Seconds(), at+v.NotReadyInLatest.Seconds()
			if from > died+39.6 || by < died+55 || by-from > 22 {
				t.Fatalf("second %v: Unknown at %v to %v", at, from, by)
			}
		case at > 69 && at < back:
			if v.NodeReady || v.NotReadyIn == nil || *v.NotReadyInLatest != 0 || v.KubeletMessage != silentMessage || v.ReadyIn != nil {
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

// TestKubeletIsDisconnected: the same message and window where the kubelet answers plegd and not its API server, whether
// it is connections that do not work or a certificate that has expired; and none for a kubelet without API server. It
// writes Ready once it has listed its Node again, which it may wait with for a minute.
func TestKubeletIsDisconnected(t *testing.T) {
	const lost, back = 10.0, 120.0
	second := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	for name, api := range map[string]facts.KubeletAPI{
		"no connection works":         {LostSince: second(lost + 2), AckedAt: second(lost)},
		"its certificate has expired": {CertificateNotAfter: second(lost)},
		"there is no API server":      {},
	} {
		var n silentKubelet
		standalone := api == facts.KubeletAPI{}
		for at := 0.0; at < 210; at += 0.25 {
			v := n.at(second(at), false, func(f *facts.Facts) {
				f.Evidence.KubeletProcess = &facts.KubeletProcess{PID: 7, Started: second(-60), Standalone: standalone}
				if at > lost+2 && at < back {
					f.Evidence.KubeletAPI = &api
				}
			})
			quiet := standalone || at < lost+10 || at > back+72
			if quiet && (!v.NodeReady || v.NotReadyIn != nil || v.ReadyIn != nil) {
				t.Fatalf("%s: second %v: node Ready %t, NotReady in %v, Ready in %v", name, at, v.NodeReady, v.NotReadyIn, v.ReadyIn)
			}
			if !quiet && at > lost+13 && at < lost+38 {
				from, by := at+v.NotReadyIn.Seconds(), at+v.NotReadyInLatest.Seconds()
				if from > lost+40 || by < lost+55 || by-from > 20 || v.KubeletMessage != silentMessage {
					t.Fatalf("%s: second %v: Unknown at %v to %v: %q", name, at, from, by, v.KubeletMessage)
				}
			}
			if !quiet && at > lost+59 && at < back && v.NodeReady {
				t.Fatalf("%s: second %v: the node is Ready", name, at)
			}
			if !quiet && at > back && at < back+70 && (!v.NodeReady || v.ReadyIn == nil) {
				t.Fatalf("%s: second %v: node Ready %t, Ready in %v", name, at, v.NodeReady, v.ReadyIn)
			}
		}
	}
}

// TestUnprovenReturn: neither Unknown nor Ready is certain while a connection of the kubelet's is new, and Ready not
// before one has lasted, also of another kubelet and beside another plegd, which sees the loss later.
func TestUnprovenReturn(t *testing.T) {
	const back = 180.0
	second := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	lost := facts.KubeletAPI{LostSince: second(12), AckedAt: second(10)}
	isNew := facts.KubeletAPI{LostSince: second(12), AckedAt: second(10), Unproven: true}
	for name, tt := range map[string]struct {
		api            func(at float64) facts.KubeletAPI // until the end of the loss
		kubelet, plegd float64                           // when another one starts
		earliest       float64                           // when Unknown may come, as seen at 40 s
		known          float64                           // from when on it is certain
		ready          float64                           // from when on Ready is
	}{
		"a connection that is refused now and then": {
			api: func(at float64) facts.KubeletAPI {
				if at > 90 && int(at)%8 == 0 {
					return isNew
				}
				return lost
			},
			earliest: 48.8, known: 72, ready: back + 72,
		},
		"the kubelet is restarted": {
			api: func(at float64) facts.KubeletAPI {
				if at >= back-2 {
					return isNew
				}
				return lost
			},
			kubelet: back - 3, earliest: 48.8, known: 72, ready: back + 22,
		},
		"the loss is older than plegd": {
			api:      func(float64) facts.KubeletAPI { return facts.KubeletAPI{LostSince: second(12)} },
			earliest: 40, known: 72, ready: back + 72,
		},
		"plegd is restarted, and sees the loss 21 s later": {
			api: func(at float64) facts.KubeletAPI {
				switch {
				case at < 100:
					return lost
				case at < 121:
					return facts.KubeletAPI{}
				}
				return facts.KubeletAPI{LostSince: second(100)}
			},
			plegd: 100, earliest: 48.8, known: 157, ready: back + 72,
		},
	} {
		var n silentKubelet
		for at := 24.0; at < 270; at += 0.25 {
			if at == tt.kubelet {
				n.writer.Restart(second(at))
			}
			if at == tt.plegd {
				n.writer = kubelet.Resume(n.writer.Memory())
			}
			api := facts.KubeletAPI{}
			if at < back {
				api = tt.api(at)
			}
			v := n.at(second(at), false, func(f *facts.Facts) {
				f.Evidence.KubeletProcess = &facts.KubeletProcess{PID: 7, Started: second(-60)}
				f.Evidence.KubeletAPI = &api
				if tt.kubelet > 0 && at >= tt.kubelet {
					f.KubeletStarted = second(tt.kubelet)
				}
			})
			isOpen := v.NotReadyIn != nil || v.ReadyIn != nil
			isKnown := at > tt.known && at < back && !api.Unproven
			mayBeReady := at > back+11
			isReady := at > tt.ready
			switch {
			case at == 40 && v.NotReadyIn.Round(100*time.Millisecond) != time.Duration((tt.earliest-at)*float64(time.Second)).Round(time.Millisecond):
				t.Fatalf("%s: NotReady in %v", name, v.NotReadyIn)
			case isKnown && v.NodeReady, (api.Unproven || at > back) && !v.NodeReady, api.Unproven && v.ReadyIn == nil:
				t.Fatalf("%s: second %v: node Ready %t, Ready in %v", name, at, v.NodeReady, v.ReadyIn)
			case !mayBeReady && v.NodeReady && !isOpen, isReady && isOpen:
				t.Fatalf("%s: second %v: node Ready %t, NotReady in %v, Ready in %v", name, at, v.NodeReady, v.NotReadyIn, v.ReadyIn)
			}
		}
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
		if at > 70 && v.KubeletMessage != silentMessage {
			t.Fatalf("second %v: message %q, want that of the node controller", at, v.KubeletMessage)
		}
	}
}

// TestModel: what the API shows, with the message, and between which seconds that changes.
func TestModel(t *testing.T) {
	type step struct {
		at      float64
		network string              // the message of a network that is not ready
		version *facts.VersionCheck // nil: just answered
		good    float64             // when Status was last answered; 0: now
		want    string
	}
	second := func(s float64) time.Time { return t0.Add(time.Duration(s * float64(time.Second))) }
	hangs2, hangs72 := &facts.VersionCheck{HangsSince: second(2), Ended: second(1)}, &facts.VersionCheck{HangsSince: second(72), Ended: second(71)}
	hung := &facts.VersionCheck{HangsSince: second(.5)}
	for name, steps := range map[string][]step{
		"Version is answered": {
			{0, "", nil, 0, "Ready"}, {5, "A", nil, 0, "Ready, NotReady 5.0 to 16.2"}, {6, "A", nil, 0, "Ready, NotReady 6.0 to 16.2"},
			// The kubelet may have called Status a period later.
			{16.3, "A", nil, 0, "Ready, NotReady 16.3 to 21.2"},
			{21.3, "A", nil, 0, "NotReady A"}, {22, "B", nil, 0, "NotReady B"}, {25, "", nil, 0, "Ready, Ready 25.0 to 41.2"},
			{31, "", nil, 15, "Ready, NotReady 44.2 to 56.2, Ready 31.0 to 41.2"}, {41.2, "", nil, 0, "Ready"}, // Status was late
			{50, "A", nil, 0, "Ready, NotReady 50.0 to 61.2"}, {50.5, "A", nil, 0, "Ready, NotReady 50.5 to 61.2"},
			{51, "", nil, 0, "Ready, Ready 51.0 to 67.2"}, {55, "", nil, 44, "Ready, NotReady 73.2 to 85.2, Ready 55.0 to 67.2"}, {67.3, "", nil, 0, "Ready"},
			{70, "A", nil, 0, "Ready, NotReady 70.0 to 81.2"}, {70.1, "", nil, 0, "Ready, Ready 70.1 to 86.3"},
		},
		"Version hangs": {
			{0, "A", nil, 0, "Ready, NotReady 0.0 to 11.2"}, {17, "A", nil, 0, "NotReady A"}, {20, "", nil, 0, "Ready, Ready 20.0 to 36.2"},
			{60, "", nil, 0, "Ready"}, {75, "", hangs72, 0, "Ready"}, {76, "B", hangs72, 0, "Ready, NotReady 190.7 to 202.7"},
			{77, "B", hangs72, 0, "Ready, NotReady 190.7 to 202.7"}, {78, "", hangs72, 0, "Ready"}, {79, "B", hangs72, 0, "Ready, NotReady 190.7 to 202.7"},
			{195, "B", hangs72, 0, "Ready, NotReady 195.0 to 202.7"}, {202.8, "B", hangs72, 0, "NotReady B"}, {210, "C", hangs72, 0, "NotReady B"},
			{340, "C", hangs72, 0, "NotReady C"}, {350, "", nil, 0, "Ready, Ready 350.0 to 366.2"}, {366.3, "", nil, 0, "Ready"},
		},
		"the rules fail while it hangs, for 2 s": {{0, "", hung, 0, "Ready"}, {6, "A", hung, 0, "Ready, NotReady 6.0 to 136.7"}, {7, "A", hung, 0, "Ready, NotReady 7.0 to 136.7"}, {8, "", hung, 0, "Ready, Ready 8.0 to 143.7"}, {20, "", nil, 0, "Ready, Ready 20.0 to 31.2"}, {32, "", nil, 0, "Ready"}},
		"Version hung before plegd began":        {{0, "", hung, 0, "Ready"}, {6, "A", hung, 0, "Ready, NotReady 6.0 to 136.7"}, {137, "A", hung, 0, "NotReady A"}},
		"Version was never called":               {{0, "", &facts.VersionCheck{}, 0, "Ready"}, {6, "A", &facts.VersionCheck{}, 0, "Ready, NotReady 6.0 to 17.2"}, {30, "A", &facts.VersionCheck{}, 0, "Ready, NotReady 30.0 to 41.2"}},
		"Version is answered, and Status": {
			{0, "", nil, 0, "Ready"}, {33, "", hangs2, 1, "Ready, NotReady 120.7 to 132.7"}, {33.1, "", nil, 1, "Ready, NotReady 33.1 to 44.3"},
			{33.2, "", nil, 0, "Ready, Ready 33.2 to 49.4"},
		},
		"Status is answered, and Version": {
			{0, "", nil, 0, "Ready"}, {33, "", hangs2, 1, "Ready, NotReady 120.7 to 132.7"}, {33.1, "", hangs2, 0, "Ready"}, {33.2, "", nil, 0, "Ready, Ready 33.2 to 49.3"},
		},
	} {
		var writer kubelet.Model
		for _, tt := range steps {
			now := second(tt.at)
			f := factstest.Healthy(now)
			f.Started, f.Status.LastGood, f.Version.Ended = second(-3600), second(cmp.Or(tt.good, tt.at)), now
			if tt.network != "" {
				f.Status.NetworkReady = &facts.Condition{Message: tt.network}
			}
			if tt.version != nil {
				f.Version = *tt.version
			}
			ns, _ := writer.Observe(&f, now, health.Observe(&f, now, nil).Observations)
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
			check.Equal(t, got, tt.want, "%s, %v", name, tt.at)
		}
	}
}

// TestKubeletVersions: with a list that takes 25 s and 10 changed pods a kubelet before 1.36 may turn NotReady for some
// time, and none since; with a list of 80 s and a new pod every 15 s each may (measured with 1.35.4 and 1.37.2). That is
// an estimate: it opens a window, and the node is NotReady only by the kubelet's own word.
func TestKubeletVersions(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		version       string
		lists         time.Duration
		pods, started int           // that change in a round, and start
		seen          time.Duration // the kubelet's own last seen; 0: not known
		points, fails bool          // the API may show NotReady, and certainly does
	}{
		"before 1.36":                   {version: "v1.35.4", lists: 25 * s, pods: 10, points: true},
		"since 1.36":                    {version: "v1.37.2", lists: 25 * s, pods: 10, started: 10},
		"an unknown version":            {lists: 25 * s, pods: 10, points: true},
		"before 1.36, slower":           {version: "v1.35.4", lists: 80 * s, pods: 5, points: true},
		"since 1.36, slower":            {version: "v1.37.2", lists: 80 * s, pods: 5, started: 5, points: true},
		"since 1.36, pods end":          {version: "v1.37.2", lists: 80 * s, pods: 5},
		"quick lists":                   {version: "v1.35.4", lists: s / 10, pods: 200},
		"the kubelet says it is behind": {version: "v1.35.4", lists: 25 * s, pods: 10, seen: 26 * s, points: true, fails: true},
		"the kubelet says it is not":    {version: "v1.35.4", lists: 25 * s, pods: 10, seen: time.Hour},
	} {
		var w kubelet.Model
		start := t0
		fails, points := false, false
		for round := range 16 {
			end := start.Add(tt.lists)
			last := &facts.RelistResult{Start: start, End: end, ListContainers: tt.lists}
			if round == 2 || tt.pods <= 5 {
				last.Inspected, last.Started = tt.pods, tt.started
			}
			next := end.Add(s)
			for now := end; now.Before(next.Add(tt.lists)); now = now.Add(s) {
				f := factstest.Healthy(now)
				f.Started = t0.Add(-time.Hour)
				f.Version.Ended, f.Relist.Last, f.Relist.Lists = now, last, []time.Duration{tt.lists, tt.lists}
				f.Relist.LastSeen, f.Modelled = start, facts.Modelled{LastSeen: start}
				f.Evidence.Kubelet = &facts.Kubelet{At: now, AnsweredAt: now, Version: tt.version}
				if tt.seen > 0 {
					f.Evidence.Kubelet.LastSeen = earlier(t0.Add(tt.seen), now)
				}
				ns, estimated := w.Observe(&f, now, health.Observe(&f, now, nil).Observations)
				f.NodeStatus, f.Modelled.Estimated = &ns, estimated
				v := health.Judge(&f, now, nil)
				fails = fails || !v.NodeReady
				points = points || ns.NotReady || !ns.NotReadyFrom.IsZero() && !ns.NotReadyFrom.After(now)
				if !ns.NotReadyBy.IsZero() && ns.NotReadyBy.Sub(ns.NotReadyFrom) > 12500*time.Millisecond {
					t.Errorf("%s: after %s the window is %s wide", name, now.Sub(t0), ns.NotReadyBy.Sub(ns.NotReadyFrom))
				}
				if v.NotReadyIn != nil && v.KubeletMessage == "" {
					t.Fatalf("%s: after %s a window without a message", name, now.Sub(t0))
				}
				if certain := !v.NodeReady || !v.RulesOK || v.State == facts.StateUnhealthy; certain && !tt.fails {
					t.Fatalf("%s: after %s %s, node Ready %t, by an estimate alone", name, now.Sub(t0), v.State, v.NodeReady)
				}
			}
			start = next
		}
		if fails != tt.fails || points != tt.points {
			t.Errorf("%s: NotReady %t, a window opens %t; want %t, %t", name, fails, points, tt.fails, tt.points)
		}
	}
}

// TestMessageBeforePlegdsOwn: where the kubelet has relisted before plegd did, its update comes before plegd's
// own list is too old, and has the kubelet's age in its message.
func TestMessageBeforePlegdsOwn(t *testing.T) {
	for _, began := range []time.Duration{-100 * time.Second, -150 * time.Second} {
		f := factstest.Healthy(t0)
		list := t0.Add(began)
		f.Relist.InFlight = &facts.InFlight{Start: list, Phase: facts.PhaseListContainers, PhaseStart: list}
		f.Relist.LastSeen = list
		f.Modelled = facts.Modelled{LastSeen: list}
		f.NodeStatus = &facts.NodeStatus{NotReadyFrom: t0.Add(10 * time.Second), NotReadyBy: t0.Add(22 * time.Second)}
		v := health.Judge(&f, t0, nil)
		if !strings.HasPrefix(v.KubeletMessage, "PLEG is not healthy: pleg was last seen active 3m6") {
			t.Errorf("list of %s ago: %q", -began, v.KubeletMessage)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
