package health

// selfReasons speak of plegd itself, and of not knowing.
var selfReasons = []Reason{
	{
		ID: Unknown, Layer: LayerCalls, Severity: SeverityCritical, fallback: true,
		Meaning: "Something is wrong, and the evidence is too thin to say what.",
		Needs:   "relists fail or hang, or the kubelet would report NotReady, and no critical reason says why.",
		Thresholds: []Threshold{
			{"for %s", unknownAfter},
		},
		Next: "Go by the evidence: it is all that plegd has seen.",
		Steps: []string{
			"`plegd status`: what failed, with the runtime's own words.",
			"`journalctl -u {unit} -u kubelet -b --since -15min`.",
			"Please report what it turned out to be: it is a row missing from the table.",
		},
		Restart: HelpsMaybe,
		match:   unknown,
	},
	{
		ID: Starting, Layer: LayerHints, Severity: SeverityInfo, fallback: true,
		Meaning: "plegd has just started and has yet to see a relist and a Status succeed.",
		Needs:   "nothing else fits, and none of the kubelet's rules has had its full time since plegd started.",
		Thresholds: []Threshold{
			{"until %s for Status", RuntimeDownAfter},
			{"until --relist-threshold for the relist", nil},
		},
		Next:    "Wait a moment.",
		Steps:   []string{"Nothing: the next verdict says more."},
		Restart: HelpsNo,
		match: func(w *view) []string {
			early := !w.on(sigFirstAttemptMade) && !w.kubelet.nodeReady
			if w.verdict.suffers() || !w.starting && !early {
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
	if !w.on(sigFirstAttemptMade) || w.on(sigAnsweringAgain) {
		return nil
	}
	relistsFail := w.troubleFor() >= unknownAfter && (w.critical == 0 || w.critical > LayerCalls)
	rulesFail := !w.starting && !w.kubelet.nodeReady && w.critical == 0
	if !relistsFail && !rulesFail {
		return nil
	}
	return w.callEvidence()
}
