package exporter

// Names of the exported metrics. Dashboards and alert rules depend on them.
const (
	// Last seen, the kubelet's rules and the verdict.
	MetricLastSeen           = "pleg_last_seen_seconds"
	MetricLastSeenAge        = "pleg_last_seen_age_seconds"
	MetricNotReadyIn         = "pleg_not_ready_in_seconds"
	MetricRulesFailIn        = "pleg_rules_fail_in_seconds"
	MetricHealthy            = "pleg_healthy"
	MetricSyncLoopAllowed    = "pleg_sync_loop_allowed"
	MetricNodeReadyPredicted = "pleg_node_ready_predicted"
	MetricThreshold          = "pleg_threshold_seconds"
	MetricRelistPeriod       = "pleg_relist_period_seconds"
	MetricVerdict            = "pleg_verdict"
	MetricVerdictLastChange  = "pleg_verdict_last_change_timestamp_seconds"
	MetricReason             = "pleg_reason"
	MetricPrimaryReason      = "pleg_primary_reason"
	MetricCulprit            = "pleg_culprit"
	MetricNodeInfo           = "pleg_node_info"

	// The relist loop.
	MetricRelistDuration    = "pleg_relist_duration_seconds"
	MetricRelistInterval    = "pleg_relist_interval_seconds"
	MetricRelists           = "pleg_relists_total"
	MetricEvents            = "pleg_events_total"
	MetricDiscardEvents     = "pleg_discard_events_total"
	MetricInspections       = "pleg_inspections_total"
	MetricRelistInFlight    = "pleg_relist_inflight_seconds"
	MetricRunningPods       = "pleg_running_pods"
	MetricRunningContainers = "pleg_running_containers"

	// The runtime: calls and fresh dials.
	MetricOperations            = "pleg_runtime_operations_total"
	MetricOperationsDuration    = "pleg_runtime_operations_duration_seconds"
	MetricOperationsErrors      = "pleg_runtime_operations_errors_total"
	MetricProbeDuration         = "pleg_socket_probe_duration_seconds"
	MetricProbeFailures         = "pleg_socket_probe_failures_total"
	MetricResponseBytes         = "pleg_runtime_response_bytes"
	MetricResponseLimit         = "pleg_runtime_response_limit_bytes"
	MetricRuntimeStatusLastSeen = "pleg_runtime_status_last_seen_seconds"
	MetricRuntimeCondition      = "pleg_runtime_condition"

	// The runtime's event stream, only where plegd uses it.
	MetricEventedInUse   = "pleg_evented_in_use"
	MetricEventedErrors  = "pleg_evented_connection_errors_total"
	MetricEventedSuccess = "pleg_evented_connection_success_total"
	MetricEventedEvents  = "pleg_evented_events_total"

	// Evidence from outside the calls.
	MetricAcceptFailures  = "pleg_socket_accept_failures_total"
	MetricQueueLength     = "pleg_socket_accept_queue_length"
	MetricQueueLimit      = "pleg_socket_accept_queue_limit"
	MetricProcessOpenFDs  = "pleg_runtime_process_open_fds"
	MetricProcessMaxFDs   = "pleg_runtime_process_max_fds"
	MetricProcessStart    = "pleg_runtime_process_start_time_seconds"
	MetricProcessRestarts = "pleg_runtime_process_restarts_total"
	MetricCPUThrottled    = "pleg_runtime_cpu_throttled_seconds_total"
	MetricEvidenceUp      = "pleg_evidence_up"
	MetricKubeletUp       = "pleg_kubelet_up"
	MetricKubeletLastSeen = "pleg_kubelet_last_seen_seconds"

	// plegd itself.
	MetricIncidents = "pleg_incidents_total"
	MetricBuildInfo = "plegd_build_info"
)

// Names of the labels.
const (
	labelResult         = "result"
	labelPhase          = "phase"
	labelType           = "type"
	labelContainerState = "container_state"
	labelState          = "state"
	labelReason         = "reason"
	labelSeverity       = "severity"
	labelKind           = "kind"
	labelID             = "id"
	labelOperation      = "operation_type"
	labelStage          = "stage"
	labelCause          = "cause"
	labelSource         = "source"
)
