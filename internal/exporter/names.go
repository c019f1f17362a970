package exporter

// The names of the metrics that plegd exports. They are a contract with
// dashboards and alert rules: a name is never changed, only added to. Those of
// Metrics are fed by what the parts of plegd report as it happens, those of
// Collector are made from a snapshot at each scrape.
const (
	// Collector: last seen, the kubelet's verdicts and plegd's own.
	MetricLastSeen           = "pleg_last_seen_seconds"
	MetricLastSeenAge        = "pleg_last_seen_age_seconds"
	MetricModelledAge        = "pleg_modelled_last_seen_age_seconds"
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

	// Metrics: the relist loop.
	MetricRelistDuration = "pleg_relist_duration_seconds"
	MetricRelistInterval = "pleg_relist_interval_seconds"
	MetricRelistSerial   = "pleg_relist_serial_duration_seconds"
	MetricRelists        = "pleg_relists_total"
	MetricEvents         = "pleg_events_total"
	MetricDiscardEvents  = "pleg_discard_events_total"
	MetricInspections    = "pleg_inspections_total"

	// Collector: the relist loop.
	MetricRelistInFlight    = "pleg_relist_inflight_seconds"
	MetricReinspectPods     = "pleg_reinspect_pods"
	MetricRunningPods       = "pleg_running_pods"
	MetricRunningContainers = "pleg_running_containers"

	// Metrics: the calls and the fresh dial.
	MetricOperations         = "pleg_runtime_operations_total"
	MetricOperationsDuration = "pleg_runtime_operations_duration_seconds"
	MetricOperationsErrors   = "pleg_runtime_operations_errors_total"
	MetricProbeDuration      = "pleg_socket_probe_duration_seconds"
	MetricProbeFailures      = "pleg_socket_probe_failures_total"

	// Collector: the runtime.
	MetricResponseBytes         = "pleg_runtime_response_bytes"
	MetricResponseLimit         = "pleg_runtime_response_limit_bytes"
	MetricRuntimeStatusLastSeen = "pleg_runtime_status_last_seen_seconds"
	MetricRuntimeInfo           = "pleg_runtime_info"
	MetricRuntimeCondition      = "pleg_runtime_condition"

	// Metrics and Collector: what the node says from outside the calls.
	MetricAcceptFailures   = "pleg_socket_accept_failures_total"
	MetricQueueLength      = "pleg_socket_accept_queue_length"
	MetricQueueLimit       = "pleg_socket_accept_queue_limit"
	MetricProcessOpenFDs   = "pleg_runtime_process_open_fds"
	MetricProcessMaxFDs    = "pleg_runtime_process_max_fds"
	MetricProcessStart     = "pleg_runtime_process_start_time_seconds"
	MetricProcessRestarts  = "pleg_runtime_process_restarts_total"
	MetricProcessThreads   = "pleg_runtime_process_threads"
	MetricCPUThrottled     = "pleg_runtime_cpu_throttled_seconds_total"
	MetricEvidenceUp       = "pleg_evidence_up"
	MetricEvidenceDuration = "pleg_evidence_duration_seconds"
	MetricKubeletUp        = "pleg_kubelet_up"
	MetricKubeletLastSeen  = "pleg_kubelet_last_seen_seconds"

	// Metrics: what is remembered.
	MetricIncidents             = "pleg_incidents_total"
	MetricIncidentWriteFailures = "pleg_incident_write_failures_total"
	// Metrics and Collector: the runtime's event stream.
	MetricEventedInUse      = "pleg_evented_in_use"
	MetricEventedErrors     = "pleg_evented_connection_errors_total"
	MetricEventedSuccess    = "pleg_evented_connection_success_total"
	MetricEventedLatency    = "pleg_evented_connection_latency_seconds"
	MetricEventedLapses     = "pleg_evented_lapses_total"
	MetricEventedEvents     = "pleg_evented_events_total"
	MetricEventedMissed     = "pleg_evented_missed_total"
	MetricEventedDuplicates = "pleg_evented_duplicates_total"
	MetricEventedOutOfOrder = "pleg_evented_out_of_order_total"
	MetricEventedIgnored    = "pleg_evented_ignored_total"

	// NewRegistry.
	MetricBuildInfo = "plegd_build_info"
)

// The names of the labels.
const (
	labelResult         = "result"
	labelPhase          = "phase"
	labelType           = "type"
	labelContainerState = "container_state"
	labelState          = "state"
	labelReason         = "reason"
	labelSeverity       = "severity"
	labelKind           = "kind"
	labelOperation      = "operation_type"
	labelCode           = "grpc_code"
	labelStage          = "stage"
	labelCause          = "cause"
	labelSource         = "source"
)

// The values of labelResult.
const (
	resultSuccess = "success"
	resultFailure = "failure"
)
