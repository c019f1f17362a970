package health

import "time"

// EveryCall is the operation of a symptom in which the runtime answers nothing.
const EveryCall = "every call"

// stuckInspectionAfter is the age from which the call of an inspection, or a Status, is a symptom.
const stuckInspectionAfter = time.Second

// Symptom is a call that hangs, or a process: the begin of the wait chain.
type Symptom struct {
	// Operation is the call, empty for a process; Since is the begin of the fault, Called that of the call.
	Operation     string
	Since, Called time.Time
	UID           string // the pod of an inspection
	Suspected     bool   // the call does not count as hanging yet
	Process       int    // the process that the primary reason is about, 0 for a call
}

// IsList reports whether the symptom is a list.
func (s *Symptom) IsList() bool {
	return s.Operation == string(PhaseListPodSandbox) || s.Operation == string(PhaseListContainers)
}

// begun returns the begin of the fault: that of the last symptom, if it was a single call.
func (s *Symptom) begun(since time.Time) time.Time {
	if s.Operation == "" || s.Operation == EveryCall {
		return since
	}
	return s.Since
}

// FindSymptom returns the call that hangs by a verdict, or else the process that its primary reason
// is about, or else a call that is suspected to hang. last is the symptom found before, zero for
// none: a call that is suspected, and then hangs, is one fault. ok is false without a symptom.
func FindSymptom(f *Facts, v *Verdict, now time.Time, last Symptom) (s Symptom, ok bool) {
	if s = hanging(f, v, now, last); s.Operation != "" {
		return s, true
	}
	if pid := Subject(f.At(v.Hop), v.Reason); pid != 0 {
		return Symptom{Process: pid, Since: v.Active[0].Since}, true
	}
	s = suspected(f, now)
	return s, s.Operation != ""
}

// hanging returns the call that hangs by a verdict; between two attempts that of the last symptom.
func hanging(f *Facts, v *Verdict, now time.Time, last Symptom) Symptom {
	w, in, status := &view{f: f, now: now}, f.Relist.InFlight, &f.Status
	every, list := v.active(RuntimeUnresponsive), v.active(RuntimeListStall)
	switch {
	case every != nil:
		return Symptom{Operation: EveryCall, Since: every.Since, Called: every.Since}
	case list != nil && in != nil && in.Phase != PhaseInspect:
		return Symptom{Operation: string(in.Phase), Since: last.begun(list.Since), Called: in.PhaseStart}
	case list != nil && last.IsList():
		return Symptom{Operation: last.Operation, Since: last.begun(list.Since), Called: last.Called}
	}
	stalled := w.stalledInspections(stuckInspectionAfter)
	if a := v.active(PodInspectionStall); a != nil && len(stalled) > 0 {
		p := stalled[0]
		return Symptom{Operation: p.Operation, Since: last.begun(a.Since), Called: p.called(), UID: p.UID}
	}
	switch a := v.active(RuntimeNotReady); { // a network plugin may keep the runtime from answering Status
	case a == nil:
	case w.unanswered(status.InFlightSince, stuckInspectionAfter):
		return Symptom{Operation: opStatus, Since: last.begun(a.Since), Called: status.InFlightSince}
	case last.Operation == opStatus && status.LastErr != nil:
		return Symptom{Operation: opStatus, Since: last.begun(a.Since), Called: last.Called}
	}
	return Symptom{}
}

// suspected returns a list or the call of an inspection that has been unanswered for longer than usual while Version
// was answered, before it counts as hanging: plegd can follow the wait chain meanwhile.
func suspected(f *Facts, now time.Time) Symptom {
	w := &view{f: f, now: now}
	answeredSince := func(t time.Time) bool { return f.Version.Ended.After(t) || f.Probe.OK && f.Probe.At.After(t) }
	if in := w.listUnanswered(suspectAfter); in != nil && answeredSince(in.PhaseStart) {
		return Symptom{Operation: string(in.Phase), Since: in.PhaseStart, Called: in.PhaseStart, Suspected: true}
	}
	for _, p := range f.Relist.Inspecting {
		usual := f.Calls[p.Operation].LastOKDuration
		if w.age(p.CallStart) >= max(3*usual, usual+suspectAfter) && answeredSince(p.CallStart) {
			return Symptom{Operation: p.Operation, Since: p.CallStart, Called: p.CallStart, UID: p.UID, Suspected: true}
		}
	}
	return Symptom{}
}
