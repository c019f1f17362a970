package health

// selfReasons speak of plegd itself, and of not knowing.
var selfReasons = []Reason{
	{
		ID: Unknown, Severity: SeverityCritical,
		Meaning: "Something is wrong, and the evidence is too thin to say what.",
		Needs:   "relists fail or hang, or the kubelet would report NotReady, and no other reason fits.",
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
		match:   func(*view) []string { return nil },
	},
	{
		ID: Starting, Severity: SeverityInfo,
		Meaning: "plegd has just started and has yet to see a relist and a Status succeed.",
		Needs:   "nothing else fits, and none of the kubelet's rules has had its full time since plegd started.",
		Thresholds: []Threshold{
			{"until %s for Status", RuntimeDownAfter},
			{"until --relist-threshold for the relist", nil},
		},
		Next:    "Wait a moment.",
		Steps:   []string{"Nothing: the next verdict says more."},
		Restart: HelpsNo,
		match:   func(*view) []string { return nil },
	},
}
