package kubelet

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// RuntimeDownAfter is how long the kubelet goes without a good Status before it calls the runtime
	// down (pkg/kubelet/kubelet.go, maxWaitForContainerRuntime).
	RuntimeDownAfter = 30 * time.Second
	// StatusPeriod lies between two Status calls (pkg/kubelet/kubelet.go, updateRuntimeUp runs every 5 s).
	StatusPeriod = 5 * time.Second
	// StatusLate is the age of the last good Status from which its rule counts down: two calls have been missed.
	StatusLate = 2 * StatusPeriod
	// StatusHangAfter is how long Status is unanswered until it counts as hanging.
	StatusHangAfter = 2 * time.Second
	// GoneAfter is how long a kubelet must be silent until it is not about to serve.
	GoneAfter = 10 * time.Second
)

// Rules is the result of the kubelet's own rules.
type Rules struct {
	PLEGHealthy     bool   // a relist has succeeded within the threshold
	SyncLoopAllowed bool   // no runtime error stands
	NodeReady       bool   // no runtime and no network error stands
	Message         string // all errors, as the Ready condition has them
}

// Apply applies the kubelet's three nested rules, with its messages word for word
// (pkg/kubelet/runtime.go, pkg/kubelet/pleg/generic.go, pkg/kubelet/kubelet.go, 1.36).
func Apply(f *facts.Facts, t time.Time) Rules {
	pleg := plegError(f, t)
	runtime := append(statusErrors(f, t), pleg...)
	if f.Status.Answered && !f.Status.RuntimeReady.Good() {
		runtime = append(runtime, "container runtime not ready: "+f.Status.RuntimeReady.KubeletText("RuntimeReady"))
	}
	all := append(runtime, networkErrors(f, t)...)
	return Rules{
		PLEGHealthy: len(pleg) == 0, SyncLoopAllowed: len(runtime) == 0, NodeReady: len(all) == 0, Message: aggregate(all),
	}
}

// aggregate joins errors as the kubelet does (k8s.io/apimachinery pkg/util/errors, aggregate.Error).
func aggregate(errors []string) string {
	text := strings.Join(errors, ", ")
	if len(errors) > 1 {
		return "[" + text + "]"
	}
	return text
}

func statusErrors(f *facts.Facts, t time.Time) []string {
	good := lastGood(f)
	switch {
	case good.IsZero() || statusBeforeKubelet(f, t):
		return []string{"container runtime status check may not have completed yet"}
	case t.Sub(good) >= RuntimeDownAfter:
		return []string{"container runtime is down"}
	}
	return nil
}

func plegError(f *facts.Facts, t time.Time) []string {
	seen := lastSeen(f)
	age := t.Sub(seen)
	if seen.IsZero() {
		if f.KubeletStarted.IsZero() || f.KubeletStarted.Add(startupTakes).After(f.Started) {
			return []string{"PLEG is not healthy: pleg has yet to be successful"}
		}
		age = max(t.Sub(f.Started), f.Config.RelistThreshold+time.Second) // it has relisted before plegd started
	}
	if age > f.Config.RelistThreshold {
		return []string{fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is %v",
			age, f.Config.RelistThreshold)}
	}
	return nil
}

func networkErrors(f *facts.Facts, t time.Time) []string {
	switch {
	case !f.Status.Answered || statusBeforeKubelet(f, t):
		return []string{"network state unknown"}
	case !f.Status.NetworkReady.Good():
		return []string{"container runtime network not ready: " + f.Status.NetworkReady.KubeletText("NetworkReady")}
	}
	return nil
}

// lastSeen returns the start of the kubelet's last relist: plegd's own, or the kubelet's word where that says later,
// where it relists less often than plegd, or where it says that the rule fails and an estimate of its relists agrees.
func lastSeen(f *facts.Facts) time.Time {
	seen := facts.LastSeen(f)
	k := f.Evidence.Kubelet
	if k == nil || k.LastSeen.IsZero() {
		return seen
	}
	if f.Config.KubeletRelistPeriod > 0 {
		return cmp.Or(countedRelist(f), seen)
	}
	failed := !f.Modelled.Estimated.IsZero() && k.At.Sub(k.LastSeen) > f.Config.RelistThreshold
	if failed || !seen.IsZero() && k.LastSeen.After(seen) {
		return k.LastSeen
	}
	return seen
}

// lastGood returns when the kubelet's last Status was good: plegd's own, or at the latest when its metrics first showed
// that each of its own has failed since.
func lastGood(f *facts.Facts) time.Time {
	if failing := StatusFailsSince(f); !failing.IsZero() {
		return facts.Earliest(f.Status.LastGood, failing)
	}
	return f.Status.LastGood
}

// StatusFailsSince returns since when the kubelet's metrics show that its Status calls fail, zero while they do not. A
// single one shows nothing.
func StatusFailsSince(f *facts.Facts) time.Time {
	k := f.Evidence.Kubelet
	if k == nil || k.Status == nil || k.Status.Errors < 2 {
		return time.Time{}
	}
	return k.Status.Since
}

// statusBeforeKubelet reports whether the kubelet has restarted since the last good Status, and had no answer.
func statusBeforeKubelet(f *facts.Facts, t time.Time) bool {
	s := &f.Status
	hangs := facts.Unanswered(s.InFlightSince, t, StatusHangAfter)
	return f.KubeletStarted.After(s.LastGood) && (s.LastErr != nil || hangs)
}
