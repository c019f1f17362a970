package health

import (
	"testing"
	"time"
)

// silentKubelet is a node whose kubelet answers no look at it from a moment on,
// until another.
type silentKubelet struct {
	writer   NodeWriter
	kubelet  Kubelet
	previous *Verdict
}

// at is the verdict at a moment: kubelet is asked every 4 s. change changes the facts
// of a healthy runtime.
func (n *silentKubelet) at(now time.Time, refused bool, change func(*Facts)) *Verdict {
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
	f.Started = t0.Add(-time.Hour)
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
	if n.previous.State != StateHealthy || n.previous.KubeletMessage != "" {
		t.Errorf("in the end %s, %q", n.previous.State, n.previous.KubeletMessage)
	}
}

// TestKubeletAnswers: a kubelet whose check fails, or that restarts, renews its lease.
func TestKubeletAnswers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		refused func(at float64) bool
		change  func(*Facts)
	}{
		{"its check fails", func(float64) bool { return false }, func(f *Facts) {
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
		v := n.at(now, at > died, func(f *Facts) {
			if at > died {
				f.Status.LastGood = t0.Add(10 * time.Second)
				f.Status.LastErr = &CallError{Operation: "status", Code: "Unavailable"}
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

// TestReleasedTogether: when Status and Version are answered at one moment, in either
// order, an update that waited for Version may have found the rules failing.
func TestReleasedTogether(t *testing.T) {
	for name, versionFirst := range map[string]bool{"Version first": true, "Status first": false} {
		var writer NodeWriter
		at := func(after time.Duration, status, version bool) NodeStatus {
			now := t0.Add(after)
			f := healthyFacts(now)
			f.Started = t0.Add(-time.Hour)
			if !status {
				f.Status.LastGood, f.Status.InFlightSince = t0, t0.Add(5*time.Second)
			}
			f.Version = VersionCheck{Ended: now}
			if !version {
				f.Version = VersionCheck{Ended: t0, HangsSince: t0.Add(2 * time.Second)}
			}
			return writer.At(&f, now)
		}
		at(0, true, true)
		at(33*time.Second, false, false)
		at(33100*time.Millisecond, !versionFirst, versionFirst)
		if s := at(33200*time.Millisecond, true, true); s.ReadyFrom.IsZero() || s.NotReady {
			t.Errorf("%s: the condition is certain: %+v", name, s)
		}
	}
}
