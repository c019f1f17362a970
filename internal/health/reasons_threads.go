package health

import "fmt"

// threadReasons speak of single threads of the runtime that do not go on.
var threadReasons = []Reason{
	{
		ID: RuntimeThreadStuck, Layer: LayerProcess, Severity: SeverityWarning,
		criticalWhile: func(w *view) bool { return w.listsSuffer() },

		match: threadStuck,
	},
}

func threadStuck(w *view) []string {
	if out := w.chainEvidence(RuntimeThreadStuck); out != nil {
		return out
	}
	if w.freezerHoldsThreads() {
		return nil
	}
	for _, p := range w.callProcesses() {
		if threads := w.blockedOf(p, waitOther, blockedWhileServing); len(threads) > 0 {
			return []string{fmt.Sprintf("pid %d (%s): %s", p.PID, p.Comm, w.blockedText(threads))}
		}
	}
	return nil
}

// callProcesses are the processes on a call's way: the runtime, and behind cri-dockerd
// dockerd and its containerd.
func (w *view) callProcesses() []*Process {
	out := []*Process{w.f.Evidence.Process}
	if d := w.f.Evidence.Docker; d != nil {
		for _, hop := range []*DockerProcess{d.Daemon, d.Containerd} {
			if hop != nil && !hop.Frozen {
				out = append(out, hop.Process)
			}
		}
	}
	return out
}
