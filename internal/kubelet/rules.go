package kubelet

import (
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
func Apply(f *facts.Facts, now time.Time) Rules {
	var runtime, network []string
	switch {
	case f.Status.LastGood.IsZero() || statusBeforeKubelet(f, now):
		runtime = append(runtime, "container runtime status check may not have completed yet")
	case now.Sub(f.Status.LastGood) >= RuntimeDownAfter:
		runtime = append(runtime, "container runtime is down")
	}
	age, threshold, plegHealthy := now.Sub(facts.LastSeen(f)), f.Config.RelistThreshold, false
	switch {
	case facts.LastSeen(f).IsZero():
		runtime = append(runtime, "PLEG is not healthy: pleg has yet to be successful")
	case age > threshold:
		runtime = append(runtime, fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is %v",
			age, threshold))
	default:
		plegHealthy = true
	}
	if f.Status.Answered && !f.Status.RuntimeReady.Good() {
		runtime = append(runtime, "container runtime not ready: "+f.Status.RuntimeReady.KubeletText("RuntimeReady"))
	}
	switch {
	case !f.Status.Answered || statusBeforeKubelet(f, now):
		network = append(network, "network state unknown")
	case !f.Status.NetworkReady.Good():
		network = append(network, "container runtime network not ready: "+f.Status.NetworkReady.KubeletText("NetworkReady"))
	}
	all := append(runtime, network...)
	message := strings.Join(all, ", ")
	if len(all) > 1 { // k8s.io/apimachinery pkg/util/errors, aggregate.Error
		message = "[" + message + "]"
	}
	return Rules{PLEGHealthy: plegHealthy, SyncLoopAllowed: len(runtime) == 0, NodeReady: len(all) == 0, Message: message}
}

// statusBeforeKubelet reports whether the kubelet has restarted since the last good Status, and had no answer.
func statusBeforeKubelet(f *facts.Facts, now time.Time) bool {
	s := &f.Status
	hangs := !s.InFlightSince.IsZero() && now.Sub(s.InFlightSince) >= StatusHangAfter
	return f.KubeletStarted.After(s.LastGood) && (s.LastErr != nil || hangs)
}
