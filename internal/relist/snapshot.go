package relist

import (
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// Phase is a step of a relist.
type Phase uint8

// The phases of a relist in their order; Idle is between two relists.
const (
	Idle Phase = iota
	ListingSandboxes
	ListingContainers
	Inspecting
)

// recentLists is how many list times a snapshot remembers.
const recentLists = 16

// Snapshot is what the loop has done and is doing. It never changes; a new one
// is published at every change of phase. Only the inspections that it points to
// move on, by atomics.
type Snapshot struct {
	// Attempts counts the relists started.
	Attempts uint64
	// Phase is the phase under way, Start the start of the relist under way and
	// PhaseStart that of the phase; both are zero between two relists.
	Phase             Phase
	Start, PhaseStart time.Time
	// Early tells that a kubelet would have begun this relist before its period
	// was over, too.
	Early bool
	// Period lies between the end of a relist and the start of the next; the one
	// in force. Evented is true while the loop relies on events.
	Period  time.Duration
	Evented bool
	// Trust is how far events told what relists found.
	Trust Trust
	// ListTime is the time of each list of the relist under way, as far as done.
	ListSandboxes, ListContainers time.Duration
	// Refused is set when the lists of the relist under way were streamed, since
	// the kubelet's would be refused for their size.
	Refused *cri.Error
	// Inspections are those of the relist under way, nil before they begin.
	Inspections []*Inspection
	// LastSeen is the start of the last relist whose lists succeeded.
	LastSeen time.Time
	// Last is the last relist that ended, nil before the first.
	Last *Result
	// Failures counts the failed relists since the last successful one.
	Failures int
	// Lists are the times of both lists together in the recent successful
	// relists, oldest first.
	Lists []time.Duration
	// Reinspect counts the pods that wait for reinspection.
	Reinspect int
	// Discarded counts the events that were dropped because the channel was
	// full, LastDiscard is when one last was.
	Discarded   uint64
	LastDiscard time.Time
	// Counted is true once a relist has succeeded; the counts are its.
	Counted     bool
	RunningPods int
	Containers  [cri.NumStates]int
}

// Result is a relist that ended.
type Result struct {
	// Seq numbers the relists from 1.
	Seq uint64
	// Start is its start, Listed the end of its lists, End its end.
	Start, Listed, End            time.Time
	ListSandboxes, ListContainers time.Duration
	// Err is why a list failed, nil when both succeeded. Err.Operation tells
	// which.
	Err *cri.Error
	// Refused is why the kubelet's list would have failed where plegd's was
	// streamed, nil when it was not.
	Refused *cri.Error
	// Serial is what the relist would have taken one call after another.
	Serial time.Duration
	// Changed counts the pods with events, Failed the inspections that failed.
	Changed, Failed int
	// Inspections holds every inspection of the relist, Hinted those that events
	// had asked for since the one before.
	Inspections, Hinted []*Inspection
	// Again are those made once more, only to learn how the runtime answers now,
	// of pods that had been answered late; those that were answered.
	Again []*Inspection
	// Early tells that a kubelet would have begun it before its period was over,
	// too; Period is what was in force at its end.
	Early  bool
	Period time.Duration
}

// Inspection is the inspection of one pod. Its fields but the atomic ones never
// change.
type Inspection struct {
	UID, Namespace, Name string
	// Failures counts the failed inspections of the pod in a row before this one.
	Failures int

	call atomic.Pointer[inspectionCall]
	done atomic.Pointer[InspectionResult]
}

type inspectionCall struct {
	op           cri.Operation
	began, start time.Time
}

// InspectionResult is how an inspection ended.
type InspectionResult struct {
	// Start and End are when the first call began and the last one ended.
	Start, End time.Time
	// Operation is the last call made, LastCall its duration.
	Operation cri.Operation
	LastCall  time.Duration
	// Cut is true when plegd's own deadline ended it: nobody knows how much
	// longer the last call would have taken.
	Cut bool
	// Err is why it failed, nil when it succeeded.
	Err *cri.Error
}

// Progress returns the call under way, when the inspection began and when this
// call did; ok is false when the inspection has not begun or has ended.
func (i *Inspection) Progress() (op cri.Operation, began, call time.Time, ok bool) {
	c := i.call.Load()
	if c == nil || i.done.Load() != nil {
		return "", time.Time{}, time.Time{}, false
	}
	return c.op, c.began, c.start, true
}

// Result returns how the inspection ended, nil while it has not.
func (i *Inspection) Result() *InspectionResult { return i.done.Load() }
