package health

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
	// statusLate is the age of the last good Status from which its rule counts down: two calls have been missed.
	statusLate = 2 * StatusPeriod
)

// kubelet is the result of the kubelet's own rules.
type kubelet struct {
	plegHealthy, syncLoopAllowed, nodeReady bool
	message                                 string
}

// rules applies the kubelet's three nested rules, with its messages word for word
// (pkg/kubelet/runtime.go, pkg/kubelet/pleg/generic.go, pkg/kubelet/kubelet.go, 1.36).
func rules(f *facts.Facts, now time.Time) kubelet {
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
	return kubelet{plegHealthy, len(runtime) == 0, len(all) == 0, message}
}

// statusBeforeKubelet reports whether the kubelet has restarted since the last good Status, and had no answer.
func statusBeforeKubelet(f *facts.Facts, now time.Time) bool {
	s := &f.Status
	hangs := !s.InFlightSince.IsZero() && now.Sub(s.InFlightSince) >= statusHangAfter
	return f.KubeletStarted.After(s.LastGood) && (s.LastErr != nil || hangs)
}
