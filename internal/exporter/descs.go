package exporter

// desc describes a metric of the Collector.
type desc struct {
	name, help string
	labels     []string
}

// verdictDescs describes the metrics of the verdict, the relist and the runtime.
func verdictDescs() []desc {
	return []desc{
		{MetricLastSeen, "Unix time at which the last successful relist started; 0 before the first. " +
			"In custom rules add > 0.", nil},
		{MetricLastSeenAge, "Time since the last successful relist started, by the monotonic clock.", nil},
		{MetricNotReadyIn, "Earliest time until the API shows the node NotReady if nothing changes; 0 when it does. " +
			"Absent while no rule of the kubelet is about to fail.", nil},
		{MetricRulesFailIn, "Time until the kubelet stops managing pods by its own rules if nothing changes; " +
			"0 when it has. Absent while no rule is about to fail.", nil},
		{MetricHealthy, "1 while the kubelet's PLEG rule holds: the last successful relist is younger than " +
			MetricThreshold + ".", nil},
		{MetricSyncLoopAllowed, "1 while the kubelet has no runtime error. At 0 it skips pod synchronization.", nil},
		{MetricNodeReadyPredicted, "1 while the node's Ready condition in the API is predicted to be True, " +
			"as far as the runtime and its network decide.", nil},
		{MetricThreshold, "Effective age of the last successful relist from which the kubelet calls the PLEG unhealthy.",
			nil},
		{MetricRelistPeriod, "Effective time from the end of a relist to the start of the next.", nil},
		{MetricVerdict, "1 for the current state, 0 for the others. " +
			"degraded: a reason is active and the kubelet's rules hold.", []string{labelState}},
		{MetricVerdictLastChange, "Unix time at which the state last changed.", nil},
		{MetricReason, "Active reasons, always 1. The one to act on is in " + MetricPrimaryReason + ".",
			[]string{labelReason, labelSeverity}},
		{MetricPrimaryReason, "The primary reason, always 1; absent when healthy. Explained by plegd reasons ID.",
			[]string{labelReason}},
		{MetricCulprit, "The last link of the wait chain, always 1; absent without a chain. id is a fingerprint " +
			"that nodes with the same culprit share: file server, driver, device model or cgroup slice.",
			[]string{labelKind, labelID}},
		{MetricNodeInfo, "Versions of the node's parts. Always 1. A label is empty while its value is not known.",
			[]string{"runtime_name", "runtime_version", "kernel_version", "os_image", "cgroup_version", "plegd_version"}},

		{MetricRelistInFlight, "Age of the current phase of the relist in flight; 0 for the other phases. " +
			"Grows during a hang.", []string{labelPhase}},
		{MetricRunningPods, "Pods with a running sandbox at the last successful relist, as kubelet_running_pods.", nil},
		{MetricRunningContainers, "Containers at the last successful relist by state, as kubelet_running_containers.",
			[]string{labelContainerState}},

		{MetricResponseBytes, "Size of the last response to each list, including refused ones.", []string{labelOperation}},
		{MetricResponseLimit, "Largest response that the kubelet accepts. A larger list fails every relist.", nil},
		{MetricRuntimeStatusLastSeen, "Unix time of the last good Status response (RuntimeReady=true); " +
			"0 before the first. The kubelet stops managing pods 30 s later.", nil},
		{MetricRuntimeCondition, "1 if the condition was true in the last Status response, 0 if false.", []string{labelType}},

		{MetricEventedInUse, "1 while plegd uses an event stream of the runtime, 0 while it relies on relists alone.", nil},
		{MetricEventedErrors, "Event streams that failed, as kubelet_evented_pleg_connection_error_count.", nil},
		{MetricEventedSuccess, "Event streams opened, as kubelet_evented_pleg_connection_success_count. " +
			"plegd opens one for each --events-lease.", nil},
		{MetricEventedEvents, "Events received from the runtime, by type.", []string{labelType}},
	}
}

// evidenceDescs describes the metrics of evidence from outside the calls.
func evidenceDescs() []desc {
	return []desc{
		{MetricQueueLength, "Pending connections in the accept queue of the runtime's socket.", nil},
		{MetricQueueLimit, "Accept queue limit (listen backlog).", nil},
		{MetricProcessOpenFDs, "Open file descriptors of the process behind the held connection. At " +
			MetricProcessMaxFDs + " it accepts no connection.", nil},
		{MetricProcessMaxFDs, "Soft limit of its open file descriptors (RLIMIT_NOFILE).", nil},
		{MetricProcessStart, "Unix time at which the process behind the held connection started.", nil},
		{MetricEvidenceUp, "1 while a source of evidence answers, 0 while it fails. Of plegd itself: state, its state " +
			"directory is writable; web and control, its addresses and control socket are served.", []string{labelSource}},
		{MetricKubeletUp, "1 while the kubelet's healthz is good, 0 while it fails, hangs or is refused.", nil},
		{MetricKubeletLastSeen, "The kubelet's own kubelet_pleg_last_seen_seconds, with --kubelet-metrics-url.", nil},
	}
}
