package health

import (
	"cmp"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

const (
	// SlowListThreshold is what both lists may take; RelistSlow needs two relists above it, and ends at slowStill.
	SlowListThreshold = 2 * time.Second
	slowStill         = 0.5
	// SlowRelistThreshold is what a relist may take call after call: the usual alert is at 10 s.
	SlowRelistThreshold = 10 * time.Second
	// burstPods pods that changed at once make a relist slow once their inspections take burstTakes.
	burstPods         = 50
	burstTakes        = 5 * time.Second
	tooManyContainers = 5000
	tooManyStill      = 0.9 // it ends below this share
	// limitNear is the share of a limit from which it counts as near, limitCalm the one below which that ends.
	limitNear    = 0.8
	limitCalm    = 0.75
	messageLimit = 16 << 20 // the largest answer that the kubelet accepts (k8s.io/cri-client, maxMsgSize)
	// streamFailures is how often the kubelet tries the event stream (eventedPlegMaxStreamRetries).
	streamFailures = 5
	cpuSome        = 80 // per cent over 10 s
	memFull        = 20
	ioFull         = 40
	calmShare      = 0.75 // NodePressure ends below this share of its numbers
	idleMost       = 0.2  // of the CPUs' time: a node with more is not short of CPU
	idleStill      = 0.3
	idleEnough     = 0.5 // the share of idle time at which no process waits for the node's CPUs
	// waitMost is the time a second for which the runtime waits for a CPU, more than it runs, on a busy node.
	waitMost = 0.2
)

func relistSlow(w *view) (out lines) {
	in, last, lists := w.f.Relist.InFlight, w.f.Relist.Last, w.f.Relist.RecentLists(2)
	if len(lists) == 2 &&
		w.near(RelistSlow, min(lists[0], lists[1]).Seconds(), SlowListThreshold.Seconds(), 1, slowStill) {
		out.add("the lists of the last relist took %s", facts.Seconds(lists[1]))
	}
	if last != nil {
		inspections := last.Serial - last.ListPodSandbox - last.ListContainers
		out.when(inspections > SlowRelistThreshold || last.Inspected >= burstPods && last.Serial >= burstTakes,
			"the last relist's calls take %s one after another (%s inspected)", facts.Seconds(last.Serial),
			facts.Count(last.Inspected, "pod", "pods"))
	}
	if in != nil && in.Pods >= burstPods && w.age(in.PhaseStart) >= burstTakes {
		out.add("%d of %d pods inspected in %s", in.Inspected, in.Pods, w.ago(in.PhaseStart))
	}
	burst := w.inspecting() >= burstTakes && float64(w.f.Modelled.Inspecting) >= w.band(RelistSlow, burstPods, 1)
	if burst || w.inspecting() > SlowRelistThreshold {
		out.text(w.modelText())
	}
	t := w.f.Modelled.LastSeenBefore136
	out.when(out != nil && !t.IsZero(), "a kubelet before 1.36 lists again for each changed pod, and was last seen "+
		"%s ago; this one's version is not known", w.ago(t))
	return out
}

// relistRuleFails reports whether the kubelet's relist is too old: then slowness has turned the node NotReady.
func (w *view) relistRuleFails() bool { return !w.starting && !w.kubelet.PLEGHealthy }

// modelText says how long the kubelet's relist takes by now, "" while that is not long.
func (w *view) modelText() string {
	if w.inspecting() < inspectHangAfter {
		return ""
	}
	s := "the kubelet, one call after another, has been inspecting for " + facts.Seconds(w.inspecting())
	if n := w.f.Modelled.Inspecting; n > 0 {
		s += fmt.Sprintf(", with %s to go", facts.Count(n, "pod", "pods"))
	}
	return s
}

// inspecting is how long the modelled kubelet has been inspecting pods in its relist under way.
func (w *view) inspecting() time.Duration {
	if w.f.Modelled.InspectingSince.IsZero() {
		return 0
	}
	return w.age(w.f.Modelled.InspectingSince)
}

func fdsRunningOut(w *view) lines {
	p := w.process
	if !p.Alive || p.MaxFDs <= 0 || w.noDescriptor() ||
		!w.near(FDsRunningOut, float64(p.OpenFDs), float64(p.MaxFDs), limitNear, limitCalm) {
		return nil
	}
	return line("fds %d of %d", p.OpenFDs, p.MaxFDs)
}

func tooMany(w *view) (out lines) {
	n := facts.Total(cmp.Or(w.f.Pods, &facts.Pods{}).Containers)
	for _, op := range []facts.Phase{facts.PhaseListPodSandbox, facts.PhaseListContainers} {
		c := w.f.Calls[string(op)]
		if c.LastErr != nil && c.LastErr.TooMany && c.LastFailed.After(c.LastOK) {
			return append(line("%s: %s; %d bytes", op, c.LastErr.Message, c.Bytes), "what runs here is as plegd last knew it")
		}
		if c.Bytes > messageLimit || !w.near(TooManyContainers, float64(c.Bytes), messageLimit, limitNear, limitCalm) {
			continue
		}
		out.add("%s is %d of %d bytes", op, c.Bytes, messageLimit)
		if op == facts.PhaseListContainers && n > 0 {
			out.add("%d containers of %d bytes; %d more fit", n, c.Bytes/n, (messageLimit-c.Bytes)/max(c.Bytes/n, 1))
		}
	}
	out.when(w.near(TooManyContainers, float64(n), tooManyContainers, 1, tooManyStill), "%d containers", n)
	return out
}

func eventStreamBroken(w *view) (out lines) {
	e := w.f.Events
	if e == nil || e.Phase != "broken" || w.f.Relist.Failures > 0 || !e.FellBack && e.Failures < streamFailures {
		return nil
	}
	out.add("the event stream has failed %d times, the last %s ago", e.Failures, w.ago(e.LastFailed))
	if e.LastErr != nil {
		out.add("%s: %s", e.LastErr.Code, e.LastErr.Message)
	}
	out.when(e.FellBack, "plegd relists every %s until a stream holds", w.f.Config.RelistPeriod)
	return out
}

// nodePressure names the node's pressure where lists are slow or connections wait: a busy node is no fault.
func nodePressure(w *view) (out lines) {
	n, lists := w.node, w.f.Relist.RecentLists(2)
	slow := len(lists) == 2 && min(lists[0], lists[1]) >= slowCall
	if !slow && w.link != linkQueueFull && !w.queueFull() && !w.notAccepting() {
		return nil
	}
	above := func(value, limit float64) bool { return w.near(NodePressure, value, limit, 1, calmShare) }
	if busy := w.busyCPUs(); slow && above(n.CPUSome, cpuSome) && busy != "" {
		out.add("CPU pressure: some %.0f %% of the last 10s", n.CPUSome)
		out.text(busy)
	}
	out.when(above(n.MemoryFull, memFull), "memory pressure: full %.0f %% of the last 10s", n.MemoryFull)
	out.when(above(n.IOFull, ioFull), "I/O pressure: full %.0f %% of the last 10s", n.IOFull)
	return out
}

// busyCPUs returns what shows that CPUs are short, "" for nothing: pressure also counts containers' quotas.
func (w *view) busyCPUs() string {
	p, idle := w.process, w.node.CPUIdle
	switch {
	case idle >= 0 && idle <= w.band(NodePressure, idleMost, idleStill):
		return fmt.Sprintf("the CPUs are idle for %.0f %%", 100*idle)
	case idle >= idleEnough: // the cause is not the node: a tracer, a quota
	case p.Alive && p.Delay >= waitMost && p.Delay > p.CPU && !w.quotaTakesTime():
		return fmt.Sprintf("the runtime waited for a CPU for %.2gs a second, and ran for %.2gs", p.Delay, p.CPU)
	}
	return ""
}

func storageFull(w *view) (out lines) {
	times := int64(w.band(RuntimeStorageFull, 1, facts.StorageStill))
	for _, f := range cmp.Or(w.f.Evidence.Storage, &facts.Storage{}).FileSystems {
		if f.Lacks(times) {
			out.text(f.String())
		}
	}
	return out
}
