package main

// nodes selects the fleet that the reader has chosen, one the node.
const (
	nodes = `cluster=~"$cluster", job=~"$job"`
	one   = nodes + `, node="$node"`
)

// fleetPanels is the first row: how many, why, and which.
func fleetPanels(l *layout) {
	l.row("Fleet")
	l.put(stat("Nodes", "Nodes from which there are metrics.", "", "0", "value", steps("text"),
		query{`count(pleg_threshold_seconds{` + nodes + `})`, ""}), 3, 4)
	l.put(stat("NotReady", "Nodes on which the kubelet no longer manages pods, by its own rules.", "", "0", "value", steps("green", 1, "red"),
		query{`sum(pleg_verdict{` + nodes + `, state="unhealthy"})`, ""}), 3, 4)
	l.put(stat("Degraded", "Something is wrong, and the kubelet still calls the node Ready.", "", "0", "value", steps("green", 1, "orange"),
		query{`sum(pleg_verdict{` + nodes + `, state="degraded"})`, ""}), 3, 4)
	l.put(stat("Next NotReady in", "Of the nodes that are still Ready, if nothing changes.", "s", "none in sight", "value", steps("red", 60, "orange"),
		query{`min(pleg_not_ready_in_seconds{` + nodes + `} > 0)`, ""}), 4, 4)
	l.put(stat("Oldest last seen", "Age of the last successful relist of the node that is worst off.", "s", "never", "value_and_name", steps("green", 30, "orange", 120, "red"),
		query{`topk(1, pleg_last_seen_age_seconds{` + nodes + `})`, "{{node}}"}), 5, 4)
	l.put(stat("plegd down", "Nodes whose plegd cannot be scraped.", "", "0", "value", steps("green", 1, "orange"),
		query{`count(up{` + nodes + `} == 0) or vector(0)`, ""}), 3, 4)
	l.put(stat("Never seen", "Nodes on which no relist has ever succeeded.", "", "0", "value", steps("green", 1, "orange"),
		query{`count(pleg_last_seen_seconds{` + nodes + `} == 0) or vector(0)`, ""}), 3, 4)
	l.put(stacked("Nodes by primary reason", "Many at once: look for what they share.", "",
		query{`sum by (reason) (pleg_primary_reason{` + nodes + `}) > 0`, "{{reason}}"}), 12, 8)
	l.put(stacked("Nodes by verdict", "", "",
		query{`sum by (state) (pleg_verdict{` + nodes + `})`, "{{state}}"}), 12, 8)
	table := panel{
		Type: "table", Title: "Nodes with a reason", Description: "Choose one of them above.",
		Targets: targets([]query{{`pleg_primary_reason{` + nodes + `} == 1`, ""}}, func(t *target) {
			t.Format, t.Instant, t.Range = "table", true, false
		}),
		FieldConfig: &fieldConfig{Overrides: []any{}, Defaults: fieldDefaults{Links: []link{{
			Title: "Runbook", Type: "link", URL: "https://github.com/plegd/plegd/blob/main/docs/reasons/${__data.fields.reason}.md", TargetBlank: true,
		}}}},
		Transformations: []transformation{{ID: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time": true, "Value": true, "__name__": true, "job": true, "instance": true},
		}}},
	}
	l.put(table, 8, 8)
	l.put(lines("The ten oldest last seen", "A healthy node stays near the relist period.", "s",
		query{`topk(10, pleg_last_seen_age_seconds{` + nodes + `})`, "{{node}}"}), 8, 8)
	l.put(heatmap("Relists of the fleet, at the kubelet's pace", "What relists would have taken call after call, as the kubelet makes them.",
		`sum by (le) (rate(pleg_relist_serial_duration_seconds_bucket{`+nodes+`}[$__rate_interval]))`), 8, 8)
}

// nodePanels is the second row: one node.
func nodePanels(l *layout) {
	l.row("Node $node")
	l.put(stat("Verdict", "", "", "no data", "name", steps("text"),
		query{`pleg_verdict{` + one + `} == 1`, "{{state}}"}), 4, 4)
	l.put(stat("Primary reason", "plegd reasons ID says what to do.", "", "none", "name", steps("orange"),
		query{`pleg_primary_reason{` + one + `} == 1`, "{{reason}}"}), 6, 4)
	l.put(stat("NotReady in", "Earliest time until the API shows it, if nothing changes.", "s", "not in sight", "value", steps("red", 60, "orange"),
		query{`pleg_not_ready_in_seconds{` + one + `}`, ""}), 4, 4)
	l.put(stat("Last seen", "Age of the last successful relist.", "s", "never", "value", steps("green", 30, "orange", 120, "red"),
		query{`pleg_last_seen_age_seconds{` + one + `}`, ""}), 4, 4)
	l.put(stat("Runtime", "", "", "no answer yet", "name", steps("text"),
		query{`pleg_runtime_info{` + one + `}`, "{{runtime_name}} {{runtime_version}}"}), 6, 4)
	l.put(timeline("Verdict timeline", "", "so", "",
		query{`pleg_verdict{` + one + `}`, "{{state}}"}), 12, 7)
	l.put(timeline("Reasons", "Every reason that was active.", "active", "",
		query{`max by (reason) (pleg_reason{` + one + `}) and on (reason) (max by (reason) (max_over_time(pleg_reason{` + one + `}[$__range])) == 1)`, "{{reason}}"}), 12, 7)
	l.put(lines("Last seen and countdown", "The kubelet stops managing pods at the threshold; the API shows NotReady when the countdown ends.", "s",
		query{`pleg_last_seen_age_seconds{` + one + `}`, "last seen"},
		query{`pleg_modelled_last_seen_age_seconds{` + one + `}`, "the modelled kubelet's"},
		query{`pleg_threshold_seconds{` + one + `}`, "threshold"},
		query{`pleg_not_ready_in_seconds{` + one + `}`, "NotReady in"}), 12, 8)
	l.put(lines("Relist under way", "Grows while a call does not return.", "s",
		query{`pleg_relist_inflight_seconds{` + one + `}`, "{{phase}}"}), 12, 8)
	l.put(heatmap("Relists", "How long relists took. One that hangs is not in here until it ends.",
		`sum by (le) (rate(pleg_relist_duration_seconds_bucket{`+one+`}[$__rate_interval]))`), 12, 8)
	l.put(lines("Relist p99", "plegd's inspections run in parallel, the kubelet's one after the other.", "s",
		query{`histogram_quantile(0.99, sum by (le) (rate(pleg_relist_duration_seconds_bucket{` + one + `}[$__rate_interval])))`, "plegd"},
		query{`histogram_quantile(0.99, sum by (le) (rate(pleg_relist_serial_duration_seconds_bucket{` + one + `}[$__rate_interval])))`, "at the kubelet's pace"}), 12, 8)
	l.put(lines("Calls a second", "", "reqps",
		query{`sum by (operation_type) (rate(pleg_runtime_operations_total{` + one + `}[$__rate_interval]))`, "{{operation_type}}"}), 8, 8)
	l.put(lines("Calls, p99", "", "s",
		query{`histogram_quantile(0.99, sum by (operation_type, le) (rate(pleg_runtime_operations_duration_seconds_bucket{` + one + `}[$__rate_interval])))`, "{{operation_type}}"}), 8, 8)
	l.put(lines("Failed calls a second", "DeadlineExceeded: it hangs. Unavailable: it is gone.", "reqps",
		query{`sum by (operation_type, grpc_code) (rate(pleg_runtime_operations_errors_total{` + one + `}[$__rate_interval]))`, "{{operation_type}} {{grpc_code}}"}), 8, 8)
	l.put(lines("Accept queue", "Connections that the runtime has yet to accept. One more than the limit fits.", "",
		query{`pleg_socket_accept_queue_length{` + one + `}`, "length"},
		query{`pleg_socket_accept_queue_limit{` + one + `}`, "limit"},
		query{`sum by (cause) (increase(pleg_socket_accept_failures_total{` + one + `}[$__rate_interval]))`, "failures: {{cause}}"}), 8, 8)
	l.put(lines("File descriptors of the runtime", "At the limit it accepts nobody, and logs nothing.", "",
		query{`pleg_runtime_process_open_fds{` + one + `}`, "open"},
		query{`pleg_runtime_process_max_fds{` + one + `}`, "limit"}), 8, 8)
	l.put(lines("Fresh dial, p99", "A new connection to the runtime's socket, stage by stage.", "s",
		query{`histogram_quantile(0.99, sum by (stage, le) (rate(pleg_socket_probe_duration_seconds_bucket{` + one + `}[$__rate_interval])))`, "{{stage}}"}), 8, 8)
	l.put(stacked("Threads of the runtime", "All in T: stopped. Some in D all the time: it waits for the disk.", "",
		query{`pleg_runtime_process_threads{` + one + `}`, "{{state}}"}), 8, 8)
	l.put(lines("Size of the lists", "Above the limit every relist fails.", "bytes",
		query{`pleg_runtime_response_bytes{` + one + `}`, "{{operation_type}}"},
		query{`pleg_runtime_response_limit_bytes{` + one + `}`, "limit"}), 8, 8)
	l.put(lines("Containers", "", "",
		query{`pleg_running_containers{` + one + `}`, "{{container_state}}"},
		query{`pleg_running_pods{` + one + `}`, "pods"}), 8, 8)
	l.put(timeline("Evidence", "Which sources answer.", "answers", "does not",
		query{`pleg_evidence_up{` + one + `}`, "{{source}}"}), 12, 7)
	l.put(lines("Pod lifecycle events a second", "", "",
		query{`sum by (type) (rate(pleg_events_total{` + one + `}[$__rate_interval]))`, "{{type}}"},
		query{`rate(pleg_discard_events_total{` + one + `}[$__rate_interval])`, "dropped"}), 12, 7)
}
