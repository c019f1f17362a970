package health

import (
	"fmt"
	"strings"
	"time"
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
func rules(f *Facts, now time.Time) kubelet {
	var runtime, network []string
	switch {
	case f.Status.LastGood.IsZero() || f.statusBeforeKubelet(now):
		runtime = append(runtime, "container runtime status check may not have completed yet")
	case now.Sub(f.Status.LastGood) >= RuntimeDownAfter:
		runtime = append(runtime, "container runtime is down")
	}
	age, threshold, plegHealthy := now.Sub(LastSeen(f)), f.Config.RelistThreshold, false
	switch {
	case LastSeen(f).IsZero():
		runtime = append(runtime, "PLEG is not healthy: pleg has yet to be successful")
	case age > threshold:
		runtime = append(runtime, fmt.Sprintf("PLEG is not healthy: pleg was last seen active %v ago; threshold is %v",
			age, threshold))
	default:
		plegHealthy = true
	}
	if f.Status.Answered && !f.Status.RuntimeReady.Good() {
		runtime = append(runtime, "container runtime not ready: "+f.Status.RuntimeReady.print("RuntimeReady"))
	}
	switch {
	case !f.Status.Answered || f.statusBeforeKubelet(now):
		network = append(network, "network state unknown")
	case !f.Status.NetworkReady.Good():
		network = append(network, "container runtime network not ready: "+f.Status.NetworkReady.print("NetworkReady"))
	}
	all := append(runtime, network...)
	message := strings.Join(all, ", ")
	if len(all) > 1 { // k8s.io/apimachinery pkg/util/errors, aggregate.Error
		message = "[" + message + "]"
	}
	return kubelet{plegHealthy, len(runtime) == 0, len(all) == 0, message}
}

// statusBeforeKubelet reports whether the kubelet has restarted since the last good Status, and had no answer.
func (f *Facts) statusBeforeKubelet(now time.Time) bool {
	s := &f.Status
	hangs := !s.InFlightSince.IsZero() && now.Sub(s.InFlightSince) >= statusHangAfter
	return f.KubeletStarted.After(s.LastGood) && (s.LastErr != nil || hangs)
}

// LastSeen is the older of plegd's and the modelled kubelet's last seen, which decides; zero without one.
func LastSeen(f *Facts) time.Time {
	if f.Modelled.LastSeen.Before(f.Relist.LastSeen) {
		return f.Modelled.LastSeen
	}
	return f.Relist.LastSeen
}

// Good reports whether the condition was given and is true.
func (c *Condition) Good() bool { return c != nil && c.Status }

// print prints a condition as the kubelet does (container/runtime.go, RuntimeCondition.String).
func (c *Condition) print(kind string) string {
	if c == nil {
		return "<nil>"
	}
	return fmt.Sprintf("%s=%t reason:%s message:%s", kind, c.Status, c.Reason, c.Message)
}
