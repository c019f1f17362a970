package health

// selfReasons speak of plegd itself, and of not knowing.
var selfReasons = []Reason{
	{
		ID: Unknown, Layer: LayerCalls, Severity: SeverityCritical, fallback: true,
		match: unknown,
	},
	{
		ID: Starting, Layer: LayerHints, Severity: SeverityInfo, fallback: true,
		match: func(w *view) []string {
			early := !w.firstAttemptMade() && !w.kubelet.nodeReady
			if w.verdict.hasReason() || !w.starting && !early {
				return nil
			}
			return w.startingEvidence()
		},
	},
}

// unknown is the evidence that something is wrong that no critical reason accounts
// for. A warning accounts for nothing: it may have stood for days. Nor does a fault of
// the kubelet, of a pod or of the network account for lists that fail.
func unknown(w *view) []string {
	if !w.firstAttemptMade() || w.again {
		return nil
	}
	relistsFail := w.troubleFor() >= unknownAfter && (w.critical == 0 || w.critical > LayerCalls)
	rulesFail := !w.starting && !w.kubelet.nodeReady && w.critical == 0
	if !relistsFail && !rulesFail {
		return nil
	}
	return w.callEvidence()
}
