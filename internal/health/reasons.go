package health

import (
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// The reasons, as pleg_reason labels them.
const (
	Starting                      = "Starting"
	RuntimeSocketMissing          = "RuntimeSocketMissing"
	RuntimeSocketTakenOver        = "RuntimeSocketTakenOver"
	RuntimeSocketUnlinked         = "RuntimeSocketUnlinked"
	RuntimeNotListening           = "RuntimeNotListening"
	RuntimeSocketPermissionDenied = "RuntimeSocketPermissionDenied"
	AcceptFDExhausted             = "AcceptFDExhausted"
	AcceptStalled                 = "AcceptStalled"
	RuntimeFrozen                 = "RuntimeFrozen"
	RuntimeStorageStall           = "RuntimeStorageStall"
	RuntimeThreadStuck            = "RuntimeThreadStuck"
	RuntimeStorageLocked          = "RuntimeStorageLocked"
	RuntimeStorageFull            = "RuntimeStorageFull"
	RuntimeMemoryLimited          = "RuntimeMemoryLimited"
	RuntimeStarved                = "RuntimeStarved"
	RuntimeThrottled              = "RuntimeThrottled"
	RuntimeStarting               = "RuntimeStarting"
	RuntimeRestarting             = "RuntimeRestarting"
	RuntimeUnresponsive           = "RuntimeUnresponsive"
	RuntimeListStall              = "RuntimeListStall"
	ListResponseTooLarge          = "ListResponseTooLarge"
	RuntimeNotReady               = "RuntimeNotReady"
	NodeStatusStalled             = "NodeStatusStalled"
	NetworkNotReady               = "NetworkNotReady"
	CRIVersionUnsupported         = "CRIVersionUnsupported"
	PodInspectionStall            = "PodInspectionStall"
	ShimStuck                     = "ShimStuck"
	SystemBusStalled              = "SystemBusStalled"
	RuntimeHelperStuck            = "RuntimeHelperStuck"
	PodStartsFailing              = "PodStartsFailing"
	RelistSlow                    = "RelistSlow"
	TooManyContainers             = "TooManyContainers"
	FDsRunningOut                 = "FDsRunningOut"
	NodePressure                  = "NodePressure"
	KernelLimitReached            = "KernelLimitReached"
	KubeletStalled                = "KubeletStalled"
	KubeletDown                   = "KubeletDown"
	EventStreamBroken             = "EventStreamBroken"
	RelistLoopStalled             = "RelistLoopStalled"
	Unknown                       = "Unknown"
)

// Reason is one row of the table. Its text is its page.
type Reason struct {
	ID       string
	Layer    facts.Layer    // where the reason lies: of two equally severe ones the lower layer is the cause
	Severity facts.Severity // how bad it is; a warning is critical while criticalWhile holds
	traits   trait
	// match returns the evidence, nil where the reason does not match.
	match func(*view) lines
	// criticalWhile makes a warning critical; nil for never.
	criticalWhile func(*view) bool
	// next returns Next with this node's own values, "" where these are not known; nil for a row that has none.
	next func(*view) string
	Page
}

// trait is a set of properties of a reason.
type trait int

const (
	// onHops: it holds for each hop of a call's way, not for the runtime alone.
	onHops trait = 1 << iota
	// gradual: it grows over hours and shows in every list; sampling the node more often adds nothing.
	gradual
	// event: it happens once and passes; that it matches again later is no flicker.
	event
	// fallback: it is asked last, and matches only where no other reason says enough.
	fallback
)

func (r *Reason) is(t trait) bool { return r.traits&t != 0 }

// Severities are the severities that the reason may have.
func (r *Reason) Severities() []facts.Severity {
	if r.criticalWhile != nil {
		return []facts.Severity{facts.SeverityCritical, facts.SeverityWarning}
	}
	return []facts.Severity{r.Severity}
}

// severity is the reason's in this case.
func (r *Reason) severity(w *view) facts.Severity {
	if r.criticalWhile != nil && r.criticalWhile(w) {
		return facts.SeverityCritical
	}
	return r.Severity
}

// Reasons returns the table. The rows are the caller's to read only.
func Reasons() []Reason { return slices.Clone(table) }

// place is a reason's place in the table, -1 for an id that it does not hold.
func place(id string) int { return slices.IndexFunc(table, func(r Reason) bool { return r.ID == id }) }

// Known reports whether the table has a reason of this id.
func Known(id string) bool { return place(id) >= 0 }

// reasonOf returns a row; it panics for an id that the table does not hold.
func reasonOf(id string) *Reason { return &table[place(id)] }

// table is every reason that plegd can name. Its order decides between reasons of the same severity and layer.
var table = []Reason{
	row(RuntimeFrozen, LayerProcess, facts.SeverityCritical, onHops, frozen, nil, (*view).frozenNext),
	row(RuntimeThrottled, LayerProcess, facts.SeverityCritical, onHops, throttled, nil, nil),
	row(RuntimeMemoryLimited, LayerProcess, facts.SeverityWarning, onHops, memoryLimited, (*view).relistSuffers, nil),
	row(RuntimeStorageStall, LayerProcess, facts.SeverityWarning, onHops, storageStalled, (*view).relistSuffers, nil),
	row(RuntimeStorageLocked, LayerProcess, facts.SeverityWarning, onHops, storageLocked, (*view).relistSuffers, nil),
	row(RuntimeStarved, LayerProcess, facts.SeverityCritical, onHops, starved, nil, nil),
	row(RuntimeThreadStuck, LayerProcess, facts.SeverityWarning, onHops, threadStuck, (*view).listsSuffer, nil),
	row(KernelLimitReached, LayerProcess, facts.SeverityCritical, onHops, kernelLimits, nil, nil),
	row(AcceptFDExhausted, LayerProcess, facts.SeverityCritical, onHops, acceptNeedsDescriptor, nil, nil),
	row(RuntimeSocketTakenOver, LayerSocket, facts.SeverityCritical, onHops, takenOver, nil, nil),
	row(RuntimeSocketMissing, LayerSocket, facts.SeverityCritical, onHops, socketMissing, nil, (*view).endNext),
	row(RuntimeNotListening, LayerSocket, facts.SeverityCritical, onHops, notListening, nil, (*view).endNext),
	row(RuntimeSocketPermissionDenied, LayerPlegd, facts.SeverityCritical, 0, permissionDenied, nil, nil),
	row(RuntimeSocketUnlinked, LayerSocket, facts.SeverityWarning, onHops, socketUnlinked, (*view).relistSuffers, nil),
	row(AcceptStalled, LayerSocket, facts.SeverityCritical, onHops, acceptStalled, nil, nil),
	row(CRIVersionUnsupported, LayerCalls, facts.SeverityCritical, 0, unsupported, nil, nil),
	row(RuntimeRestarting, LayerProcess, facts.SeverityCritical, onHops, restarting, nil, nil),
	row(RuntimeStarting, LayerProcess, facts.SeverityCritical, onHops|event, runtimeStarting, nil, nil),
	row(RuntimeUnresponsive, LayerCalls, facts.SeverityCritical, onHops, unresponsive, nil, nil),
	row(RuntimeListStall, LayerCalls, facts.SeverityCritical, 0, listStall, nil, nil),
	row(ListResponseTooLarge, LayerCalls, facts.SeverityCritical, 0, tooLarge, nil, nil),
	row(RuntimeNotReady, LayerCalls, facts.SeverityCritical, 0, notReady, nil, nil),
	row(NodeStatusStalled, LayerCalls, facts.SeverityWarning, 0, nodeStatusStalled, nil, nil),
	row(NetworkNotReady, LayerPods, facts.SeverityCritical, 0, networkNotReady, nil, nil),
	row(SystemBusStalled, LayerPods, facts.SeverityCritical, 0, busStalled, nil, nil),
	row(RuntimeStorageFull, LayerProcess, facts.SeverityWarning, 0, storageFull, (*view).relistSuffers, nil),
	row(ShimStuck, LayerPods, facts.SeverityWarning, 0, shimStuck, (*view).holdsUpCalls, nil),
	row(RuntimeHelperStuck, LayerPods, facts.SeverityWarning, 0, helperStuck, (*view).helperHoldsUp, nil),
	row(PodInspectionStall, LayerPods, facts.SeverityWarning, 0, inspectionStall, (*view).inspectionsHang, nil),
	row(PodStartsFailing, LayerPods, facts.SeverityWarning, 0, podStartsFailing, nil, nil),
	row(RelistSlow, LayerHints, facts.SeverityWarning, 0, relistSlow, (*view).relistRuleFails, nil),
	row(FDsRunningOut, LayerHints, facts.SeverityWarning, onHops, fdsRunningOut, nil, nil),
	row(TooManyContainers, LayerHints, facts.SeverityWarning, gradual, tooMany, nil, nil),
	row(EventStreamBroken, LayerHints, facts.SeverityWarning, 0, eventStreamBroken, nil, nil),
	row(NodePressure, LayerNode, facts.SeverityWarning, 0, nodePressure, nil, nil),
	row(KubeletStalled, LayerKubelet, facts.SeverityCritical, 0, kubeletStalled, nil, nil),
	row(KubeletDown, LayerKubelet, facts.SeverityCritical, 0, kubeletDown, nil, nil),
	row(RelistLoopStalled, LayerPlegd, facts.SeverityCritical, 0, loopStalled, nil, nil),
	row(Unknown, LayerCalls, facts.SeverityCritical, fallback, unknown, nil, nil),
	row(Starting, LayerHints, facts.SeverityInfo, fallback, plegdStarting, nil, nil),
}
