package health

import (
	"fmt"
	"slices"
)

const (
	pidsFull  = 0.98
	nodeFull  = 0.95
	cpuSome   = 80 // per cent over 10 s
	memFull   = 20
	ioFull    = 40
	idleMost  = 0.2 // of the CPUs' time: a node with more is not short of CPU
	idleStill = 0.3
	// waitMost is the time a second that the runtime waits for a CPU on a node
	// that is short of them, more than it runs.
	waitMost  = 0.2
	calmShare = 0.75 // a pressure reason ends below this share of its number
)

// nodeLimitReasons speak of the node's limits: nothing on it works at them.
var nodeLimitReasons = []Reason{
	{
		ID: PIDsExhausted, Layer: LayerProcess, Severity: SeverityCritical,
		Meaning: "No process or thread can be started any more: the runtime can start no shim and no thread.",
		Needs:   "the tasks of the runtime's cgroup, or the threads of the node, are at their limit.",
		Thresholds: []Threshold{
			{"%s of pids.max", Share(pidsFull)},
			{"%s of the smaller of pid_max and threads-max", Share(nodeFull)},
		},
		Next: "Find what started so many processes; raise TasksMax of the runtime's unit where that is the limit.",
		Steps: []string{
			"`ps -eLf | awk '{print $NF}' | sort | uniq -c | sort -rn | head`.",
			"`systemctl show {unit} -p TasksCurrent -p TasksMax`: it should be infinity.",
			"`sysctl kernel.pid_max kernel.threads-max`.",
		},
		Restart: HelpsNo,
		match: func(w *view) []string {
			if c := w.f.Evidence.Cgroup; c != nil && c.PIDsMax > 0 && float64(c.PIDs) >= pidsFull*float64(c.PIDsMax) {
				return []string{fmt.Sprintf("tasks of the runtime's cgroup: %d of %d", c.PIDs, c.PIDsMax)}
			}
			if n := w.f.Evidence.Node; n != nil && n.ThreadsMax > 0 && float64(n.Threads) >= nodeFull*float64(n.ThreadsMax) {
				return []string{fmt.Sprintf("threads of the node: %d of %d", n.Threads, n.ThreadsMax)}
			}
			return nil
		},
	},
	{
		ID: FileTableFull, Layer: LayerProcess, Severity: SeverityCritical,
		Meaning: "The kernel's table of open files is full: no process can open a file or accept a connection.",
		Needs:   "/proc/sys/fs/file-nr.",
		Thresholds: []Threshold{
			{"%s of file-max", Share(nodeFull)},
		},
		Next: "Find which process holds the files, and raise fs.file-max.",
		Steps: []string{
			"`cat /proc/sys/fs/file-nr`: open, unused, most.",
			"`for p in /proc/[0-9]*; do echo \"$(ls $p/fd 2>/dev/null | wc -l) $(cat $p/comm)\"; done | sort -rn | head`.",
		},
		Restart: HelpsMaybe, RestartNote: "Only when the runtime is the one that holds them.",
		match: func(w *view) []string {
			if n := w.f.Evidence.Node; n != nil && n.FilesMax > 0 && float64(n.Files) >= nodeFull*float64(n.FilesMax) {
				return []string{fmt.Sprintf("open files of the node: %d of %d", n.Files, n.FilesMax)}
			}
			return nil
		},
	},
}

// nodeReasons speak of the node's pressure. A busy node is no fault: each needs
// the lists to be slow too. A list that hangs is none of theirs: pressure makes
// slow, it does not stop.
var nodeReasons = []Reason{
	pressure(NodeCPUStall, "The node is short of CPU, and the runtime's answers are slow with it.",
		"CPU pressure and hardly any idle time, or the runtime itself waits for a CPU, while the lists of the last two relists were slow. Pressure alone proves nothing: containers at their own quota count in it on an idle node.",
		"some avg10", cpuSome, []Threshold{{"the CPUs idle for %s at most", Share(idleMost)}, {"ends above %s", Share(idleStill)}, {"or the runtime waits for a CPU for %s seconds a second and longer than it runs", float64(waitMost)}},
		"See what uses the node's CPUs, and give the runtime its share (kubelet: system-reserved, CPUWeight of the unit).",
		[]string{"`top`, `cat /proc/pressure/cpu`.", "`systemctl show {unit} -p CPUWeight` of the runtime's unit: system services should have more than pods."},
		func(n *Node) (float64, string) { return n.CPUSome, "CPU pressure: some %.0f %% of the last 10s" }).and(busyCPUs),
	pressure(NodeMemoryStall, "The node is short of memory: everything waits for it, and the runtime's answers are slow with it.",
		"memory pressure, while the lists of the last two relists were slow.", "full avg10", memFull, nil,
		"See what uses the node's memory; eviction should have begun.",
		[]string{"`cat /proc/pressure/memory`, `ps aux --sort -rss | head`.", "`kubectl describe node`: MemoryPressure, and the pods' requests."},
		func(n *Node) (float64, string) { return n.MemoryFull, "memory pressure: full %.0f %% of the last 10s" }),
	pressure(NodeIOStall, "The node's disks cannot keep up, and the runtime's answers are slow with it.",
		"I/O pressure, while the lists of the last two relists were slow.", "full avg10", ioFull, nil,
		"See what uses the disks, image pulls and logs first.",
		[]string{"`cat /proc/pressure/io`, `iotop -o`, `iostat -x 1`.", "A cloud disk out of burst credits looks like this: see its metrics."},
		func(n *Node) (float64, string) { return n.IOFull, "I/O pressure: full %.0f %% of the last 10s" }),
}

// listsSlow reports whether the lists of the last two relists were answered, and
// slowly.
func (w *view) listsSlow() bool {
	l := w.f.Relist.Lists
	return len(l) > 1 && l[len(l)-1] >= slowCall && l[len(l)-2] >= slowCall
}

func pressure(id, meaning, needs, what string, limit float64, more []Threshold, next string, steps []string, value func(*Node) (float64, string)) Reason {
	return Reason{
		ID: id, Layer: LayerNode, Severity: SeverityWarning, Meaning: meaning, Needs: needs,
		Thresholds: slices.Concat([]Threshold{{what + " of %s", Percent(limit)}, {"ends below %s", Percent(limit * calmShare)}}, more, []Threshold{{"the lists of two relists above %s", slowCall}}),
		Next:       next, Steps: steps, Restart: HelpsNo,
		match: func(w *view) []string {
			n := w.f.Evidence.Node
			if n == nil || !w.on(sigListsSlow) {
				return nil
			}
			v, format := value(n)
			if !w.near(id, v, limit, 1, calmShare) {
				return nil
			}
			return []string{fmt.Sprintf(format, v)}
		},
	}
}

// and adds what else must be so, which says its evidence.
func (r Reason) and(more func(*view) []string) Reason {
	match := r.match
	r.match = func(w *view) []string {
		out := match(w)
		if out == nil {
			return nil
		}
		evidence := more(w)
		if evidence == nil {
			return nil
		}
		return append(out, evidence...)
	}
	return r
}

// busyCPUs says that the node's CPUs are in use, or that the runtime waits for
// one.
func busyCPUs(w *view) []string {
	n, p := w.f.Evidence.Node, w.f.Evidence.Process
	switch {
	case n.CPUIdle >= 0 && n.CPUIdle <= w.band(NodeCPUStall, idleMost, idleStill):
		return []string{fmt.Sprintf("the CPUs are idle for %.0f %%", 100*n.CPUIdle)}
	case p != nil && p.Alive && p.Delay >= waitMost && p.Delay > p.CPU && !w.on(sigQuotaTakesTime):
		return []string{fmt.Sprintf("the runtime waited for a CPU for %.2gs a second, and ran for %.2gs", p.Delay, p.CPU)}
	}
	return nil
}
