package exporter

import "github.com/plegd/plegd/internal/health"

// contractReasons are the reasons that plegd has, and two that it is to have, so
// that the series are counted as they will be.
func contractReasons() []ReasonLabel {
	out := []ReasonLabel{{"RuntimeStorageFull", "critical"}, {"PodStartsFailing", "critical"}}
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
