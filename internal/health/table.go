package health

import (
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// table is every reason that plegd can name. Its order decides between reasons of the same severity and layer. A row
// has the reason, then its rules, then its needs and its relations to other reasons.
var table = withPages([]Reason{
	{
		ID: RuntimeFrozen, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: frozen, CriticalWhile: (*signals).stopsCalls, NodeNext: (*signals).frozenNext,
	},
	{
		ID: RuntimeThrottled, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: throttled, CriticalWhile: func(s *signals) bool { return s.nodeLate },
		Reads: []string{"cgroup"},
	},
	{
		ID: RuntimeMemoryLimited, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: memoryLimited, CriticalWhile: func(s *signals) bool { return s.callsLate },
		Reads: []string{"cgroup"},
	},
	{
		ID: RuntimeStorageStall, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: storageStalled, CriticalWhile: func(s *signals) bool { return s.callsLate },
		Reads: []string{"process", "cgroup", "storage", "ledger"}, Logged: (*signals).loggedStall,
	},
	{
		ID: RuntimeStorageLocked, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: storageLocked, CriticalWhile: func(s *signals) bool { return s.callsLate },
		Reads: []string{"process"},
	},
	{
		ID: RuntimeStarved, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: starved, CriticalWhile: func(s *signals) bool { return s.nodeLate },
		Reads: []string{"process", "cgroup", "node", "ledger"},
	},
	{
		ID: RuntimeThreadStuck, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: threadStuck, CriticalWhile: func(s *signals) bool { return s.callsLate },
		Reads: []string{"process"}, Logged: (*signals).loggedHang,
	},
	{
		ID: KernelLimitReached, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: kernelLimits, CriticalWhile: func(s *signals) bool { return s.nodeLate },
		Reads: []string{"process", "cgroup", "storage", "node"},
	},
	{
		ID: AcceptFDExhausted, Layer: LayerProcess, Severity: facts.SeverityCritical, OnHops: true,
		Match: acceptNeedsDescriptor, NodeNext: (*signals).descriptorNext,
		Reads: []string{"process", "queue"}, Suppresses: []string{FDsRunningOut}, CausedBy: provenByChain,
	},
	{ID: RuntimeSocketTakenOver, Layer: LayerSocket, Severity: facts.SeverityCritical, OnHops: true, Match: takenOver},
	{
		ID: RuntimeSocketMissing, Layer: LayerSocket, Severity: facts.SeverityCritical, OnHops: true,
		Match: socketMissing, NodeNext: (*signals).endNext,
		Reads: []string{"process", "queue", "listener", "kernel_log"}, Logged: (*signals).loggedEnd,
	},
	{
		ID: RuntimeNotListening, Layer: LayerSocket, Severity: facts.SeverityCritical, OnHops: true,
		Match: notListening, NodeNext: (*signals).endNext,
		Reads: []string{"process", "queue", "listener", "kernel_log"}, Logged: (*signals).loggedEnd,
	},
	{ID: RuntimeSocketPermissionDenied, Layer: LayerPlegd, Severity: facts.SeverityCritical, Match: permissionDenied},
	{
		ID: RuntimeSocketUnlinked, Layer: LayerSocket, Severity: facts.SeverityWarning, OnHops: true,
		Match: socketUnlinked, CriticalWhile: func(s *signals) bool { return s.relistsSlow },
		Reads: []string{"process", "queue", "listener"}, Suppresses: []string{RuntimeSocketMissing},
	},
	{
		ID: AcceptStalled, Layer: LayerSocket, Severity: facts.SeverityCritical, OnHops: true,
		Match: acceptStalled,
		Reads: []string{"process", "queue", "listener"},
	},
	{
		ID: CRIPluginNotLoaded, Layer: LayerCalls, Severity: facts.SeverityCritical,
		Match: pluginNotLoaded, NodeNext: (*signals).pluginNext,
		Suppresses: []string{CRIVersionUnsupported},
	},
	{ID: CRIVersionUnsupported, Layer: LayerCalls, Severity: facts.SeverityCritical, Match: unsupported},
	{
		ID: RuntimeRestarting, Layer: LayerProcess, Severity: facts.SeverityWarning, OnHops: true,
		Match: restarting, CriticalWhile: (*signals).restartsGoOn, NodeNext: (*signals).restartNext,
		Reads: []string{"kernel_log"}, Logged: (*signals).loggedKill,
	},
	{
		ID: RuntimeStorageFull, Layer: LayerProcess, Severity: facts.SeverityWarning,
		Match: storageFull, CriticalWhile: func(s *signals) bool { return s.callsLate }, NodeNext: (*signals).storageNext,
		Reads: []string{"storage", "kernel_log"}, Logged: (*signals).loggedDisk,
	},
	{
		ID: RuntimeStarting, Layer: LayerProcess, Severity: facts.SeverityCritical, OnHops: true, Event: true,
		Match: runtimeStarting,
	},
	{
		ID: RuntimeUnresponsive, Layer: LayerCalls, Severity: facts.SeverityCritical, OnHops: true,
		Match: unresponsive,
		Reads: callSources, CausedBy: provenByChain,
	},
	{
		ID: RuntimeListStall, Layer: LayerCalls, Severity: facts.SeverityCritical,
		Match: listStall,
		Reads: callSources, CausedBy: provenByChain,
	},
	{ID: ListResponseTooLarge, Layer: LayerCalls, Severity: facts.SeverityCritical, Match: tooLarge},
	{
		ID: RuntimeNotReady, Layer: LayerCalls, Severity: facts.SeverityCritical,
		Match: notReady,
		Reads: callSources, CausedBy: provenByChain,
	},
	{
		ID: NodeStatusStalled, Layer: LayerCalls, Severity: facts.SeverityWarning,
		Match: nodeStatusStalled,
		Reads: callSources,
	},
	{
		ID: NetworkNotReady, Layer: LayerPods, Severity: facts.SeverityWarning, Reported: true,
		Match: networkNotReady, CriticalWhile: (*signals).networkLost,
	},
	{ID: SystemBusStalled, Layer: LayerPods, Severity: facts.SeverityCritical, Match: func(s *signals) lines { return s.chainEvidence(SystemBusStalled) }},
	{
		ID: ShimStuck, Layer: LayerPods, Severity: facts.SeverityWarning,
		Match: shimStuck, CriticalWhile: (*signals).holdsUpCalls,
		Reads: []string{"children", "ledger"}, Logged: (*signals).loggedHang,
	},
	{
		ID: RuntimeHelperStuck, Layer: LayerPods, Severity: facts.SeverityWarning,
		Match: helperStuck, CriticalWhile: func(s *signals) bool { return s.callCause == RuntimeHelperStuck },
		Reads: []string{"children", "ledger"}, Logged: (*signals).loggedHang,
	},
	{
		ID: RuntimePeerStuck, Layer: LayerPods, Severity: facts.SeverityWarning,
		Match: peerStuck, CriticalWhile: (*signals).peerHoldsUpCalls,
		Reads: []string{"process", "children", "ledger"}, Logged: (*signals).loggedHang,
	},
	{
		ID: PodsLost, Layer: LayerPods, Severity: facts.SeverityWarning,
		Match: func(s *signals) lines { return s.findingEvidence(PodsLost) },
		Reads: []string{"ledger"},
	},
	{
		ID: PodInspectionStall, Layer: LayerPods, Severity: facts.SeverityWarning,
		Match: inspectionStall, CriticalWhile: func(s *signals) bool { return s.inspectionsHang },
		Reads: callSources, CausedBy: provenByChain,
	},
	{
		ID: PodStartsFailing, Layer: LayerPods, Severity: facts.SeverityWarning,
		Match: podStartsFailing, NodeNext: (*signals).imageNext,
		Reads: callSources, CausedBy: provenByChain,
	},
	{
		ID: PodStopsFailing, Layer: LayerPods, Severity: facts.SeverityWarning,
		Match: podStopsFailing, NodeNext: (*signals).stopNext,
		Reads: []string{"ledger"},
	},
	{
		ID: RelistSlow, Layer: LayerHints, Severity: facts.SeverityWarning,
		Match: relistSlow, CriticalWhile: (*signals).relistRuleFails,
		Reads: callSources, CausedBy: slices.Concat(provenByChain, []string{TooManyContainers}),
	},
	{ID: FDsRunningOut, Layer: LayerHints, Severity: facts.SeverityWarning, OnHops: true, Match: fdsRunningOut},
	{ID: TooManyContainers, Layer: LayerHints, Severity: facts.SeverityWarning, Gradual: true, Match: tooMany},
	{ID: EventStreamBroken, Layer: LayerHints, Severity: facts.SeverityWarning, Match: eventStreamBroken},
	{ID: NodePressure, Layer: LayerNode, Severity: facts.SeverityWarning, Match: nodePressure, Reads: []string{"node"}},
	{
		ID: KubeletStalled, Layer: LayerKubelet, Severity: facts.SeverityCritical,
		Match: kubeletStalled,
		Reads: []string{"kubelet_process"}, Suppresses: []string{KubeletDisconnected},
	},
	{
		ID: KubeletDown, Layer: LayerKubelet, Severity: facts.SeverityCritical,
		Match: kubeletDown, Suppresses: []string{KubeletDisconnected},
		Reads: []string{"kubelet_process", "kernel_log"}, Logged: (*signals).loggedKubeletEnd,
	},
	{
		ID: KubeletDisconnected, Layer: LayerKubelet, Severity: facts.SeverityCritical,
		Match: kubeletDisconnected,
		Reads: []string{"kubelet_api"},
	},
	{ID: NodePaused, Layer: LayerKubelet, Severity: facts.SeverityWarning, Match: nodePaused},
	{ID: RelistLoopStalled, Layer: LayerPlegd, Severity: facts.SeverityCritical, Match: loopStalled},
	{ID: Unknown, Layer: LayerCalls, Severity: facts.SeverityCritical, Fallback: unknown, Reads: callSources},
	{ID: Starting, Layer: LayerHints, Severity: facts.SeverityInfo, Fallback: plegdStarting},
})
