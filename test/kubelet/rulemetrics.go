//go:build e2e

package kubelet

// ruleMetrics are the gauges and counters of plegd that the rules in
// deploy/prometheus read.
var ruleMetrics = map[string]bool{
	"pleg_primary_reason": true, "pleg_reason": true, "pleg_verdict": true, "pleg_threshold_seconds": true,
	"pleg_relist_period_seconds": true, "pleg_not_ready_in_seconds": true, "pleg_rules_fail_in_seconds": true,
	"pleg_sync_loop_allowed": true, "pleg_node_ready_predicted": true, "pleg_last_seen_seconds": true,
	"pleg_last_seen_age_seconds": true,
	// Not in a rule: it shows that the kubelet's own metrics were read.
	"pleg_kubelet_last_seen_seconds": true,
}
