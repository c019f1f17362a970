package facts

import "time"

// EveryCall is the operation of a symptom in which the runtime answers nothing.
const EveryCall = "every call"

// Symptom is a call that hangs, or a process: the begin of the wait chain.
type Symptom struct {
	// Operation is the call, empty for a process; Since is the begin of the fault, Called that of the call.
	Operation     string
	Since, Called time.Time
	UID           string // the pod of an inspection
	Suspected     bool   // the call does not count as hanging yet
	Process       int    // the process that the primary reason is about, 0 for a call
	Starts        bool   // it is a runtime that does not end the starts of pods
}

// IsList reports whether the symptom is a list.
func (s *Symptom) IsList() bool {
	return s.Operation == string(PhaseListPodSandbox) || s.Operation == string(PhaseListContainers)
}
