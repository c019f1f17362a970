package health

import "slices"

// The reasons, as pleg_reason labels them.
const (
	Starting = "Starting"

	RuntimeSocketMissing          = "RuntimeSocketMissing"
	RuntimeSocketTakenOver        = "RuntimeSocketTakenOver"
	RuntimeSocketUnlinked         = "RuntimeSocketUnlinked"
	RuntimeNotListening           = "RuntimeNotListening"
	RuntimeSocketPermissionDenied = "RuntimeSocketPermissionDenied"
	AcceptFDExhausted             = "AcceptFDExhausted"
	AcceptStalled                 = "AcceptStalled"

	RuntimeFrozen        = "RuntimeFrozen"
	RuntimeStorageStall  = "RuntimeStorageStall"
	RuntimeThreadStuck   = "RuntimeThreadStuck"
	RuntimeStorageLocked = "RuntimeStorageLocked"
	RuntimeStorageFull   = "RuntimeStorageFull"
	RuntimeMemoryLimited = "RuntimeMemoryLimited"
	RuntimeStarved       = "RuntimeStarved"
	RuntimeThrottled     = "RuntimeThrottled"
	RuntimeStarting      = "RuntimeStarting"
	RuntimeRestarting    = "RuntimeRestarting"

	RuntimeUnresponsive   = "RuntimeUnresponsive"
	RuntimeListStall      = "RuntimeListStall"
	ListResponseTooLarge  = "ListResponseTooLarge"
	RuntimeNotReady       = "RuntimeNotReady"
	NodeStatusStalled     = "NodeStatusStalled"
	NetworkNotReady       = "NetworkNotReady"
	CRIVersionUnsupported = "CRIVersionUnsupported"

	PodInspectionStall = "PodInspectionStall"
	ShimStuck          = "ShimStuck"
	SystemBusStalled   = "SystemBusStalled"
	RuntimeHelperStuck = "RuntimeHelperStuck"
	PodStartsFailing   = "PodStartsFailing"

	RelistSlow        = "RelistSlow"
	TooManyContainers = "TooManyContainers"
	FDsRunningOut     = "FDsRunningOut"

	NodePressure       = "NodePressure"
	KernelLimitReached = "KernelLimitReached"

	KubeletStalled = "KubeletStalled"
	KubeletDown    = "KubeletDown"

	EventStreamBroken = "EventStreamBroken"

	RelistLoopStalled = "RelistLoopStalled"
	Unknown           = "Unknown"
)

// Reason is one row of the table. Its text is its page.
type Reason struct {
	ID string
	// Layer is where the reason lies: of two equally severe ones the lower layer is the cause.
	Layer Layer
	// Severity is how bad it is; a warning is critical while criticalWhile holds.
	Severity Severity
	Page

	// gradual is true of what grows over hours and shows in every list: sampling the node
	// more often adds nothing.
	gradual bool
	// event is true of what happens once and passes: that it matches again later is no flicker.
	event bool
	// fallback is true of a row that is asked last, and matches only where no other reason
	// says enough.
	fallback bool
	// hops is true of a row that holds for each hop of a call's way, not for the runtime alone.
	hops bool
	// match returns the evidence, nil where the reason does not match.
	match func(*view) lines
	// criticalWhile makes a warning critical; nil for never.
	criticalWhile func(*view) bool
	// next returns Next with this node's own values, "" where these are not known; nil for
	// a row that has none.
	next func(*view) string
}

// Severities are the severities that the reason may have.
func (r *Reason) Severities() []Severity {
	if r.criticalWhile != nil {
		return []Severity{SeverityCritical, SeverityWarning}
	}
	return []Severity{r.Severity}
}

// severity is the reason's in this case.
func (r *Reason) severity(w *view) Severity {
	if r.criticalWhile != nil && r.criticalWhile(w) {
		return SeverityCritical
	}
	return r.Severity
}

// Runbook is the path of the reason's page below the project's root.
func (r *Reason) Runbook() string { return "docs/reasons/" + r.ID + ".md" }

// Reasons returns the table. The rows are the caller's to read only.
func Reasons() []Reason { return slices.Clone(table) }

// place is a reason's place in the table, -1 for an id that it does not hold.
func place(id string) int { return slices.IndexFunc(table, func(r Reason) bool { return r.ID == id }) }

// Known reports whether the table has a reason of this id.
func Known(id string) bool { return place(id) >= 0 }

// reasonOf returns a row; it panics for an id that the table does not hold.
func reasonOf(id string) *Reason { return &table[place(id)] }

// table is every reason that plegd can name. Its order decides between reasons of the same
// severity and layer.
var table = withPages([]Reason{
	{ID: RuntimeFrozen, Layer: LayerProcess, Severity: SeverityCritical, hops: true,
		match: frozen, next: (*view).frozenNext},
	{ID: RuntimeThrottled, Layer: LayerProcess, Severity: SeverityCritical, hops: true, match: throttled},
	{ID: RuntimeMemoryLimited, Layer: LayerProcess, Severity: SeverityWarning, hops: true,
		match: memoryLimited, criticalWhile: (*view).relistSuffers},
	{ID: RuntimeStorageStall, Layer: LayerProcess, Severity: SeverityWarning, hops: true,
		match: storageStalled, criticalWhile: (*view).relistSuffers},
	{ID: RuntimeStorageLocked, Layer: LayerProcess, Severity: SeverityWarning, hops: true,
		match: storageLocked, criticalWhile: (*view).relistSuffers},
	{ID: RuntimeStarved, Layer: LayerProcess, Severity: SeverityCritical, hops: true, match: starved},
	{ID: RuntimeThreadStuck, Layer: LayerProcess, Severity: SeverityWarning, hops: true,
		match: threadStuck, criticalWhile: (*view).listsSuffer},
	{ID: KernelLimitReached, Layer: LayerProcess, Severity: SeverityCritical, hops: true, match: kernelLimits},
	{ID: AcceptFDExhausted, Layer: LayerProcess, Severity: SeverityCritical, hops: true, match: acceptNeedsDescriptor},
	{ID: RuntimeSocketTakenOver, Layer: LayerSocket, Severity: SeverityCritical, hops: true,
		match: takenOver, next: takenOverNext},
	{ID: RuntimeSocketMissing, Layer: LayerSocket, Severity: SeverityCritical, hops: true,
		match: socketMissing, next: (*view).endNext},
	{ID: RuntimeNotListening, Layer: LayerSocket, Severity: SeverityCritical, hops: true,
		match: notListening, next: (*view).endNext},
	{ID: RuntimeSocketPermissionDenied, Layer: LayerPlegd, Severity: SeverityCritical, match: permissionDenied},
	{ID: RuntimeSocketUnlinked, Layer: LayerSocket, Severity: SeverityWarning, hops: true,
		match: socketUnlinked, criticalWhile: (*view).relistSuffers},
	{ID: AcceptStalled, Layer: LayerSocket, Severity: SeverityCritical, hops: true, match: acceptStalled},
	{ID: CRIVersionUnsupported, Layer: LayerCalls, Severity: SeverityCritical, match: unsupported},
	{ID: RuntimeRestarting, Layer: LayerProcess, Severity: SeverityCritical, hops: true, match: restarting},
	{ID: RuntimeStarting, Layer: LayerProcess, Severity: SeverityCritical, hops: true, event: true,
		match: runtimeStarting},
	{ID: RuntimeUnresponsive, Layer: LayerCalls, Severity: SeverityCritical, hops: true, match: unresponsive},
	{ID: RuntimeListStall, Layer: LayerCalls, Severity: SeverityCritical, match: listStall},
	{ID: ListResponseTooLarge, Layer: LayerCalls, Severity: SeverityCritical, match: tooLarge},
	{ID: RuntimeNotReady, Layer: LayerCalls, Severity: SeverityCritical, match: notReady},
	{ID: NodeStatusStalled, Layer: LayerCalls, Severity: SeverityWarning, match: nodeStatusStalled},
	{ID: NetworkNotReady, Layer: LayerPods, Severity: SeverityCritical, match: networkNotReady},
	{ID: SystemBusStalled, Layer: LayerPods, Severity: SeverityCritical, match: busStalled},
	{ID: RuntimeStorageFull, Layer: LayerProcess, Severity: SeverityWarning,
		match: storageFull, criticalWhile: (*view).relistSuffers, next: storageNext},
	{ID: ShimStuck, Layer: LayerPods, Severity: SeverityWarning, match: shimStuck, criticalWhile: (*view).holdsUpCalls},
	{ID: RuntimeHelperStuck, Layer: LayerPods, Severity: SeverityWarning,
		match: helperStuck, criticalWhile: (*view).helperHoldsUp},
	{ID: PodInspectionStall, Layer: LayerPods, Severity: SeverityWarning,
		match: inspectionStall, criticalWhile: (*view).inspectionsHang},
	{ID: PodStartsFailing, Layer: LayerPods, Severity: SeverityWarning, match: podStartsFailing},
	{ID: RelistSlow, Layer: LayerHints, Severity: SeverityWarning,
		match: relistSlow, criticalWhile: (*view).relistRuleFails},
	{ID: FDsRunningOut, Layer: LayerHints, Severity: SeverityWarning, hops: true, match: fdsRunningOut},
	{ID: TooManyContainers, Layer: LayerHints, Severity: SeverityWarning, gradual: true, match: tooMany},
	{ID: EventStreamBroken, Layer: LayerHints, Severity: SeverityWarning, match: eventStreamBroken},
	{ID: NodePressure, Layer: LayerNode, Severity: SeverityWarning, match: nodePressure},
	{ID: KubeletStalled, Layer: LayerKubelet, Severity: SeverityCritical, match: kubeletStalled},
	{ID: KubeletDown, Layer: LayerKubelet, Severity: SeverityCritical, match: kubeletDown},
	{ID: RelistLoopStalled, Layer: LayerPlegd, Severity: SeverityCritical, match: loopStalled},
	{ID: Unknown, Layer: LayerCalls, Severity: SeverityCritical, fallback: true, match: unknown},
	{ID: Starting, Layer: LayerHints, Severity: SeverityInfo, fallback: true, match: plegdStarting},
})
