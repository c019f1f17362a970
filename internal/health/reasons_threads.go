package health

import "fmt"

// threadReasons are about single threads of the runtime that are blocked.
var threadReasons = []Reason{
	{
		ID: RuntimeThreadStuck, hops: true, Layer: LayerProcess, Severity: SeverityWarning,
		criticalWhile: func(w *view) bool { return w.listsSuffer() },

		match: threadStuck,
	},
}

func threadStuck(w *view) []string {
	if out := w.chainEvidence(RuntimeThreadStuck); out != nil && w.hop == nil {
		return out
	}
	if w.freezerHoldsThreads() {
		return nil
	}
	if threads := w.blockedIn(waitOther, blockedWhileServing); len(threads) > 0 {
		p := w.f.Evidence.Process
		return []string{fmt.Sprintf("pid %d (%s): %s", p.PID, p.Comm, w.blockedText(threads))}
	}
	return nil
}
