package exporter

import "github.com/plegd/plegd/internal/health"

// allReasons are the reasons that plegd has, each with its severities.
func allReasons() (out []ReasonLabel) {
	for _, r := range health.Reasons() {
		for _, severity := range r.Severities() {
			out = append(out, ReasonLabel{ID: r.ID, Severity: string(severity)})
		}
	}
	return out
}

// fewReasons are the reasons of the fake snapshots, for golden files that one
// can read.
func fewReasons() []ReasonLabel {
	return []ReasonLabel{{"Starting", "info"}, {"RuntimeUnresponsive", "critical"}, {"PodInspectionStall", "critical"}, {"ShimStuck", "warning"}}
}
