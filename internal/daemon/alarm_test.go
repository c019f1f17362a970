package daemon

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
)

// TestAlarming: a new connection and lists that stumble ask for fast sampling, beside what fails or hangs.
func TestAlarming(t *testing.T) {
	now := time.Now()
	lists := func(last time.Duration) facts.Relist {
		ms := time.Millisecond
		return facts.Relist{Lists: []time.Duration{4 * ms, 5 * ms, 90 * ms, 5 * ms, last}}
	}
	for name, tt := range map[string]struct {
		f    facts.Facts
		want bool
	}{
		"calm":                             {f: facts.Facts{Relist: lists(6 * time.Millisecond)}},
		"a connection of old":              {f: facts.Facts{Dial: facts.Dial{At: now.Add(-time.Minute)}}},
		"a new connection":                 {f: facts.Facts{Dial: facts.Dial{At: now.Add(-time.Second)}}, want: true},
		"lists of ten times the median":    {f: facts.Facts{Relist: lists(80 * time.Millisecond)}},
		"lists that stand for a moment":    {f: facts.Facts{Relist: lists(250 * time.Millisecond)}, want: true},
		"the first lists, which take long": {f: facts.Facts{Relist: facts.Relist{Lists: []time.Duration{time.Second}}}},
		"a socket of old at the path":      {f: facts.Facts{Evidence: facts.Evidence{Hop: facts.Hop{Queue: &facts.Queue{Listening: true, ListeningSince: now.Add(-time.Minute)}}}}},
		"another socket at the path":       {f: facts.Facts{Evidence: facts.Evidence{Hop: facts.Hop{Queue: &facts.Queue{Listening: true, ListeningSince: now.Add(-time.Second)}}}}, want: true},
		"a relist has failed":              {f: facts.Facts{Relist: facts.Relist{Failures: 1}}, want: true},
	} {
		check.Equal(t, alarming(&tt.f, now), tt.want, "%s", name)
	}
}

// TestMayOwe: the ledger looks more often while a call is late or a pod ends, and not for a stopped runtime.
func TestMayOwe(t *testing.T) {
	stopped := &facts.Process{Alive: true, Threads: map[string]int{"T": 1}}
	now := time.Now()
	inD := func(since time.Duration, isAsleep bool) facts.Evidence {
		thread := facts.BlockedThread{Since: now.Add(-since), Asleep: isAsleep}
		return facts.Evidence{Hop: facts.Hop{Process: &facts.Process{At: now, Alive: true, Blocked: []facts.BlockedThread{thread}}}}
	}
	for name, tt := range map[string]struct {
		evidence facts.Evidence
		alert    bool
		want     bool
	}{
		"calm":                    {evidence: facts.Evidence{Kubelet: &facts.Kubelet{OK: true}, Hop: facts.Hop{Process: &facts.Process{Alive: true}}}},
		"a call is late":          {alert: true, want: true},
		"a pod ends":              {evidence: facts.Evidence{Kubelet: &facts.Kubelet{EndingPods: 1}}, want: true},
		"starts time out":         {evidence: facts.Evidence{Kubelet: &facts.Kubelet{Sandboxes: &facts.StartCalls{Errors: 3, Longest: time.Minute}}}, want: true},
		"a thread is in D":        {evidence: inD(inKernel, false), want: true},
		"it is so for a moment":   {evidence: inD(inKernel/2, false)},
		"a thread sleeps":         {evidence: inD(inKernel, true)},
		"starts fail at once":     {evidence: facts.Evidence{Kubelet: &facts.Kubelet{Sandboxes: &facts.StartCalls{Errors: 3, Longest: time.Second}}}},
		"the runtime is stopped":  {evidence: facts.Evidence{Hop: facts.Hop{Process: stopped}}, alert: true},
		"it is, and its pods end": {evidence: facts.Evidence{Hop: facts.Hop{Process: stopped}, Kubelet: &facts.Kubelet{EndingPods: 1}}},
		"it has been continued":   {evidence: facts.Evidence{Hop: facts.Hop{Process: &facts.Process{Alive: true}}}, alert: true, want: true},
	} {
		check.Equal(t, mayOwe(&tt.evidence, tt.alert), tt.want, "%s", name)
	}
}

// TestFailAtOnce: calls that start pods fail at once from the first of several in a row on; not where one has waited.
func TestFailAtOnce(t *testing.T) {
	begun := time.Now().Add(-time.Minute)
	for name, tt := range map[string]struct {
		calls *facts.StartCalls
		want  time.Time
	}{
		"several":                 {calls: &facts.StartCalls{Errors: failedCalls, Since: begun, LastError: time.Now(), Longest: time.Second}, want: begun},
		"one that is tried again": {calls: &facts.StartCalls{Errors: failedCalls - 1, Since: begun, LastError: time.Now()}},
		"long ago":                {calls: &facts.StartCalls{Errors: failedCalls, Since: begun, LastError: time.Now().Add(-time.Hour)}},
		"by a deadline":           {calls: &facts.StartCalls{Errors: failedCalls, Since: begun, LastError: time.Now(), Longest: time.Minute}},
		"none":                    {},
	} {
		check.Equal(t, failAtOnceSince(&facts.Kubelet{Sandboxes: tt.calls}), tt.want, "%s", name)
	}
	check.Equal(t, failAtOnceSince(&facts.Kubelet{}), time.Time{}, "without a kubelet")
}

func TestWereSlow(t *testing.T) {
	for age, want := range map[time.Duration]bool{slowLately / 2: true, slowLately: false} {
		check.Equal(t, wereSlow(&facts.Kubelet{SlowCallAt: time.Now().Add(-age)}), want, "%s ago", age)
	}
	check.Equal(t, wereSlow(&facts.Kubelet{}), false, "without a kubelet")
}
