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
	// Layer is where the reason lies: of two that are equally severe, the lower layer
	// is the cause of the other.
	Layer Layer
	// Severity is how bad it is; a warning is critical while criticalWhile holds.
	Severity Severity
	Page

	// gradual is true of what grows over hours and shows in every list: looking at the
	// rest of the node more often adds nothing.
	gradual bool
	// event is true of what happens once and passes: that it matches again later is no flicker.
	event bool
	// fallback is true of a row that matches only where no other reason says enough: it
	// is asked last.
	fallback bool
	// hops is true of a row that holds for each hop of a call's way, not for the runtime
	// alone.
	hops bool
	// match returns the evidence, nil where the reason does not match.
	match func(*view) []string
	// criticalWhile makes a warning critical; nil for never.
	criticalWhile func(*view) bool
	// next returns Next with this node's own values, "" where these are not known;
	// nil: it has none.
	next func(*view) string
}

// nextHere returns what to do next with this node's own values, "" where the row
// has Next alone.
func (r *Reason) nextHere(w *view) string {
	if r.next == nil {
		return ""
	}
	return r.next(w)
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

// Reasons returns the table: every reason, the primary one of several first.
// The rows are the caller's to read only.
func Reasons() []Reason { return slices.Clone(table) }

// reasonOf returns a row; it panics for an id that the table does not hold.
func reasonOf(id string) *Reason {
	for i := range table {
		if table[i].ID == id {
			return &table[i]
		}
	}
	panic("no reason " + id)
}

// table is every reason that plegd can name. Its order decides between reasons of
// the same severity and layer.
var table = withPages(processReasons, kernelReasons, nodeLimitReasons, socketReasons, runtimeReasons,
	chainReasons, storageReasons, podReasons, loadReasons, nodeReasons, otherReasons, selfReasons)

// Known reports whether the table has a reason of this id.
func Known(id string) bool {
	return slices.ContainsFunc(table, func(r Reason) bool { return r.ID == id })
}
