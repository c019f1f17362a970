package exporter

import "github.com/prometheus/client_golang/prometheus"

// The metrics of the Collector.
var (
	lastSeen = desc("pleg_last_seen_seconds",
		"Unix time at which the last successful relist started; 0 before the first. In custom rules add > 0.")
	lastSeenAge = desc("pleg_last_seen_age_seconds",
		"Time since the last successful relist started, by the monotonic clock.")
	notReadyIn = desc("pleg_not_ready_in_seconds",
		"Earliest time until the API shows the node NotReady if nothing changes; 0 when it does. Absent while no "+
			"rule of the kubelet is about to fail.")
	rulesFailIn = desc("pleg_rules_fail_in_seconds",
		"Time until the kubelet stops managing pods by its own rules if nothing changes; 0 when it has. Absent "+
			"while no rule is about to fail.")
	healthy = desc("pleg_healthy",
		"1 while the kubelet's PLEG rule holds: the last successful relist is younger than pleg_threshold_seconds.")
	syncLoopAllowed = desc("pleg_sync_loop_allowed",
		"1 while the kubelet has no runtime error. At 0 it skips pod synchronization.")
	nodeReadyPredicted = desc("pleg_node_ready_predicted",
		"1 while the node's Ready condition in the API is predicted to be True, as far as the runtime and its "+
			"network decide.")
	threshold = desc("pleg_threshold_seconds",
		"Effective age of the last successful relist from which the kubelet calls the PLEG unhealthy.")
	relistPeriod = desc("pleg_relist_period_seconds",
		"Effective time from the end of a relist to the start of the next.")
	verdictState = desc("pleg_verdict",
		"1 for the current state, 0 for the others. degraded: a reason is active and the kubelet's rules hold.", "state")
	verdictLastChange = desc("pleg_verdict_last_change_timestamp_seconds",
		"Unix time at which the state last changed.")
	reason = desc("pleg_reason",
		"Active reasons, always 1. The one to act on is in pleg_primary_reason.", "reason", "severity")
	primaryReason = desc("pleg_primary_reason",
		"The primary reason, always 1; absent when healthy. Explained by plegd reasons ID.", "reason")
	primaryReasonInfo = desc("pleg_primary_reason_info",
		"What an alert says about the primary reason, always 1; absent when healthy. cause and next are lines of "+
			"the reason's page, culprit the kind of the last link of the wait chain; none names a part of the node.",
		"reason", "cause", "next", "culprit")
	culprit = desc("pleg_culprit",
		"The last link of the wait chain, always 1; absent without a chain. id is a fingerprint that nodes with "+
			"the same culprit share: file server, driver or cgroup slice.", "kind", "id")
	nodeInfo = desc("pleg_node_info",
		"Versions of the node's parts. Always 1. A label is empty while its value is not known.",
		"runtime_name", "runtime_version", "kernel_version", "os_image", "cgroup_version", "plegd_version")
	relistInFlight = desc("pleg_relist_inflight_seconds",
		"Age of the current phase of the relist in flight; 0 for the other phases. Grows during a hang.", "phase")
	runningPods = desc("pleg_running_pods",
		"Pods with a running sandbox at the last successful relist, as kubelet_running_pods.")
	runningContainers = desc("pleg_running_containers",
		"Containers at the last successful relist by state, as kubelet_running_containers.", "container_state")
	responseBytes = desc("pleg_runtime_response_bytes",
		"Size of the last response to each list, including refused ones.", "operation_type")
	responseLimit = desc("pleg_runtime_response_limit_bytes",
		"Largest response that the kubelet accepts. A larger list fails every relist.")
	statusLastSeen = desc("pleg_runtime_status_last_seen_seconds",
		"Unix time of the last good Status response (RuntimeReady=true); 0 before the first. The kubelet stops "+
			"managing pods 30 s later.")
	runtimeCondition = desc("pleg_runtime_condition",
		"1 if the condition was true in the last Status response, 0 if false.", "type")
	eventedInUse = desc("pleg_evented_in_use",
		"1 while plegd uses an event stream of the runtime, 0 while it relies on relists alone.")
	eventedErrors = desc("pleg_evented_connection_errors_total",
		"Event streams that failed, as kubelet_evented_pleg_connection_error_count.")
	eventedSuccess = desc("pleg_evented_connection_success_total",
		"Event streams requested, answered or not, as kubelet_evented_pleg_connection_success_count: one for "+
			"each --events-lease.")
	eventedEvents = desc("pleg_evented_events_total", "Events received from the runtime, by type.", "type")
	queueLength   = desc("pleg_socket_accept_queue_length",
		"Pending connections in the accept queue of the runtime's socket.")
	queueLimit     = desc("pleg_socket_accept_queue_limit", "Accept queue limit (listen backlog).")
	processOpenFDs = desc("pleg_runtime_process_open_fds",
		"Open file descriptors of the process behind the held connection. At pleg_runtime_process_max_fds it "+
			"accepts no connection.")
	processMaxFDs = desc("pleg_runtime_process_max_fds", "Soft limit of its open file descriptors (RLIMIT_NOFILE).")
	processStart  = desc("pleg_runtime_process_start_time_seconds",
		"Unix time at which the process behind the held connection started.")
	evidenceUp = desc("pleg_evidence_up",
		"1 while a source of evidence answers, 0 while it fails. SOURCE/PART is 0 while a part of it is "+
			"denied, too large or late. Of plegd itself: state and incidents, its state "+
			"directory can be used; web and control, its addresses and control socket are served.", "source")
	kubeletUp = desc("pleg_kubelet_up",
		"1 while the kubelet's healthz is good, 0 while it fails, hangs or is refused.")
	kubeletLastSeen = desc("pleg_kubelet_last_seen_seconds",
		"The kubelet's own last seen, by its metrics, with --kubelet-metrics-url.")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}
