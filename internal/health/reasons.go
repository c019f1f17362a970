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
	CRIPluginNotLoaded            = "CRIPluginNotLoaded"
	CRIVersionUnsupported         = "CRIVersionUnsupported"
	PodInspectionStall            = "PodInspectionStall"
	ShimStuck                     = "ShimStuck"
	SystemBusStalled              = "SystemBusStalled"
	RuntimeHelperStuck            = "RuntimeHelperStuck"
	RuntimePeerStuck              = "RuntimePeerStuck"
	PodStartsFailing              = "PodStartsFailing"
	PodStopsFailing               = "PodStopsFailing"
	PodsLost                      = "PodsLost"
	RelistSlow                    = "RelistSlow"
	TooManyContainers             = "TooManyContainers"
	FDsRunningOut                 = "FDsRunningOut"
	NodePressure                  = "NodePressure"
	KernelLimitReached            = "KernelLimitReached"
	KubeletStalled                = "KubeletStalled"
	KubeletDown                   = "KubeletDown"
	KubeletDisconnected           = "KubeletDisconnected"
	EventStreamBroken             = "EventStreamBroken"
	NodePaused                    = "NodePaused"
	RelistLoopStalled             = "RelistLoopStalled"
	Unknown                       = "Unknown"
)

// Reason is one row of the table. Its text is its page.
type Reason struct {
	// ID is the reason as pleg_reason labels it.
	ID string
	// Layer is where the reason lies: of two equally severe ones the lower layer is the cause.
	Layer facts.Layer
	// Severity is how bad the reason is. A warning is critical while CriticalWhile holds; nil for never.
	Severity      facts.Severity
	CriticalWhile func(*signals) bool
	// Match returns the evidence, nil where the reason does not match.
	Match func(*signals) lines
	// Fallback stands for Match in a row that is asked last: it knows what the other rows have found.
	Fallback func(*signals, findings) lines
	// NodeNext returns the next step with this node's own values, "" where these are not known; nil for the page's.
	NodeNext func(*signals) string
	// Suppresses are the reasons that add nothing at the same hop while this one is active.
	Suppresses []string
	// CausedBy are the reasons that take this one's place as the primary one once they are proven.
	CausedBy []string
	// Reads are the sources of evidence without which this reason, or its cause, may be another one: the evidence
	// lists the parts that they could not read.
	Reads []string
	// Logged reports whether a message of the kernel's is evidence of the reason, once Match has matched; nil for none.
	Logged func(*signals, *facts.KernelMessage) bool
	// OnHops is true where the reason holds for each hop of the CRI call path, not for the runtime alone.
	OnHops bool
	// Gradual is true for a reason that grows over hours and shows in every list: sampling the
	// node more often adds nothing.
	Gradual bool
	// Reported is true for a reason that the runtime reports in its Status: the kubelet's rule fails by it without a
	// further cause, and samples of the node add nothing.
	Reported bool
	// Event is true for a reason that happens once and passes: that it matches again later is no flicker.
	Event bool
	Page
}

// Severities are the severities that the reason may have.
func (r *Reason) Severities() []facts.Severity {
	if r.CriticalWhile != nil {
		return []facts.Severity{facts.SeverityCritical, facts.SeverityWarning}
	}
	return []facts.Severity{r.Severity}
}

// severity is the reason's in this case.
func (r *Reason) severity(s *signals) facts.Severity {
	if r.CriticalWhile != nil && r.CriticalWhile(s) {
		return facts.SeverityCritical
	}
	return r.Severity
}

// provenByChain are the reasons that a chain of waiting from a call proves.
var provenByChain = []string{SystemBusStalled, RuntimeHelperStuck, ShimStuck, RuntimeThreadStuck, RuntimePeerStuck}

// Reasons returns the table. The rows are the caller's to read only.
func Reasons() []Reason { return slices.Clone(table) }

// Lookup returns a row of the table; ok is false for an id that it does not hold.
func Lookup(id string) (r Reason, ok bool) {
	i := place(id)
	if i < 0 {
		return Reason{}, false
	}
	return table[i], true
}

// place is a reason's place in the table, -1 for an id that it does not hold.
func place(id string) int {
	for i := range table { // a row is large: no copies
		if table[i].ID == id {
			return i
		}
	}
	return -1
}

// Known reports whether the table has a reason of this id.
func Known(id string) bool { return place(id) >= 0 }

// reasonOf returns a row; it panics for an id that the table does not hold.
func reasonOf(id string) *Reason { return &table[place(id)] }
