package exporter

// contractReasons is every reason that plegd is going to know, so that the
// series are counted as they will be.
func contractReasons() []ReasonLabel {
	var out []ReasonLabel
	for _, id := range []string{
		"Starting", "RuntimeSocketMissing", "RuntimeSocketUnlinked", "RuntimeNotListening", "RuntimeSocketPermissionDenied",
		"AcceptFDExhausted", "AcceptQueueFull", "AcceptStalled", "RuntimeFrozen", "RuntimeStorageStall", "RuntimeStorageLocked",
		"RuntimeThrottled", "RuntimeStarting", "RuntimeRestarting", "DockerDaemonUnreachable", "DockerContainerdUnreachable", "RuntimeUnresponsive",
		"RuntimeListStall", "ListResponseTooLarge", "RuntimeNotReady", "NetworkNotReady", "CRIVersionUnsupported",
		"PodInspectionStall", "PodInspectionFailing", "ShimStuck", "RelistSlow", "ChangeBurst", "TooManyContainers",
		"FDsRunningOut", "ResponseNearLimit", "NodeCPUStall", "NodeMemoryStall", "NodeIOStall", "PIDsExhausted",
		"FileTableFull", "RuntimeHelperStuck", "KubeletStalled", "KubeletDown", "EventSubscriberStuck", "EventStreamBroken", "EventsMissed",
		"EventChannelFull", "RelistLoopStalled", "Unknown",
	} {
		out = append(out, ReasonLabel{ID: id, Severity: "critical"})
	}
	return out
}

// fewReasons are the reasons of the fake snapshots, for golden files that one
// can read.
func fewReasons() []ReasonLabel {
	return []ReasonLabel{{"Starting", "info"}, {"RuntimeUnresponsive", "critical"}, {"PodInspectionStall", "critical"}, {"ShimStuck", "warning"}}
}
