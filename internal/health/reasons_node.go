package health

import "fmt"

const (
	pidsFull  = 0.98 // of pids.max
	nodeFull  = 0.95 // of the kernel's tables
	cpuSome   = 80   // per cent over 10 s
	memFull   = 20
	ioFull    = 40
	idleMost  = 0.2 // of the CPUs' time: a node with more is not short of CPU
	idleStill = 0.3
	// idleEnough is the share of idle time at which no process waits for the node's CPUs.
	idleEnough = 0.5
	// waitMost is the time a second that the runtime waits for a CPU on a node
	// that is short of them, more than it runs.
	waitMost  = 0.2
	calmShare = 0.75 // NodePressure ends below this share of its numbers
)

// nodeLimitReasons speak of limits at which nothing works.
var nodeLimitReasons = []Reason{{ID: KernelLimitReached, hops: true, Layer: LayerProcess,
	Severity: SeverityCritical, match: kernelLimits}}

// kernelLimits names the limits of tasks and open files that are reached.
func kernelLimits(w *view) (out []string) {
	if c := w.f.Evidence.Cgroup; c != nil && c.PIDsMax > 0 && float64(c.PIDs) >= pidsFull*float64(c.PIDsMax) {
		out = append(out, fmt.Sprintf("tasks of the runtime's cgroup: %d of %d", c.PIDs, c.PIDsMax))
	}
	n := w.f.Evidence.Node
	if n == nil {
		return out
	}
	if n.ThreadsMax > 0 && float64(n.Threads) >= nodeFull*float64(n.ThreadsMax) {
		out = append(out, fmt.Sprintf("threads of the node: %d of %d", n.Threads, n.ThreadsMax))
	}
	if n.FilesMax > 0 && float64(n.Files) >= nodeFull*float64(n.FilesMax) {
		out = append(out, fmt.Sprintf("open files of the node: %d of %d", n.Files, n.FilesMax))
	}
	return out
}

// nodeReasons speak of the node's pressure. A busy node is no fault: the lists must be
// slow too, or connections must wait. A list that hangs is not its effect: pressure makes slow, it does not stop.
var nodeReasons = []Reason{{ID: NodePressure, Layer: LayerNode, Severity: SeverityWarning, match: nodePressure}}

func nodePressure(w *view) (out []string) {
	n := w.f.Evidence.Node
	slow := w.listsSlow()
	if n == nil || !slow && w.link != linkQueueFull && !w.queueFull() && !w.notAccepting() {
		return nil
	}
	above := func(value, limit float64) bool { return w.near(NodePressure, value, limit, 1, calmShare) }
	if busy := w.busyCPUs(n); slow && above(n.CPUSome, cpuSome) && busy != "" {
		out = append(out, fmt.Sprintf("CPU pressure: some %.0f %% of the last 10s", n.CPUSome), busy)
	}
	if above(n.MemoryFull, memFull) {
		out = append(out, fmt.Sprintf("memory pressure: full %.0f %% of the last 10s", n.MemoryFull))
	}
	if above(n.IOFull, ioFull) {
		out = append(out, fmt.Sprintf("I/O pressure: full %.0f %% of the last 10s", n.IOFull))
	}
	return out
}

// busyCPUs returns what shows that the node is short of CPUs, "" for nothing: CPU
// pressure also counts containers at their own quotas on an idle node.
func (w *view) busyCPUs(n *Node) string {
	p := w.f.Evidence.Process
	switch {
	case n.CPUIdle >= 0 && n.CPUIdle <= w.band(NodePressure, idleMost, idleStill):
		return fmt.Sprintf("the CPUs are idle for %.0f %%", 100*n.CPUIdle)
	case n.CPUIdle >= idleEnough: // the cause is not the node: a tracer, a quota
	case p != nil && p.Alive && p.Delay >= waitMost && p.Delay > p.CPU && !w.quotaTakesTime():
		return fmt.Sprintf("the runtime waited for a CPU for %.2gs a second, and ran for %.2gs", p.Delay, p.CPU)
	}
	return ""
}

// listsSlow reports whether the lists of the last two relists were answered, and
// slowly.
func (w *view) listsSlow() bool {
	l := w.f.Relist.Lists
	return len(l) > 1 && l[len(l)-1] >= slowCall && l[len(l)-2] >= slowCall
}
