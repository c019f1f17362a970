package health

import "time"

// EveryCall is the operation of a symptom in which the runtime answers nothing.
const EveryCall = "every call"

// stuckInspectionAfter is the age from which the call of an inspection is a symptom of
// PodInspectionStall.
const stuckInspectionAfter = time.Second

// Symptom is a call that hangs, or a process: the begin of the wait chain.
type Symptom struct {
	// Operation is the call as the kubelet's metrics name it, empty for a process. Since
	// is the begin of the fault, Called that of the call under way.
	Operation     string
	Since, Called time.Time
	// UID is the pod of an inspection.
	UID string
	// Suspected is true for a call that does not count as hanging yet.
	Suspected bool
	// Process is the process that the primary reason is about, 0 for a call; Kind is its
	// kind.
	Process int
	Kind    LinkKind
}

// IsList reports whether the symptom is a list.
func (s *Symptom) IsList() bool {
	return s.Operation == string(PhaseListPodSandbox) || s.Operation == string(PhaseListContainers)
}

// FindSymptom returns the call that hangs by a verdict, or else the process that its
// primary reason is about, or else a call that is suspected to hang. last is the symptom
// found before, zero for none: a call that is suspected, and then hangs, is one fault.
// ok is false without a symptom.
func FindSymptom(f *Facts, v *Verdict, now time.Time, last Symptom) (s Symptom, ok bool) {
	for _, find := range []func(*Facts, *Verdict, time.Time, Symptom) Symptom{
		unresponsiveSymptom, listSymptom, inspectionSymptom,
		statusSymptom, subjectSymptom, suspectedListSymptom, suspectedInspectionSymptom,
	} {
		if s = find(f, v, now, last); s != (Symptom{}) {
			return s, true
		}
	}
	return Symptom{}, false
}

// activeSince returns since when a reason is active, zero if it is not.
func (v *Verdict) activeSince(id string) time.Time {
	if a := v.active(id); a != nil {
		return a.Since
	}
	return time.Time{}
}

// begun returns the begin of the fault: that of the last symptom, if it was a single call.
func (s *Symptom) begun(since time.Time) time.Time {
	if s.Operation == "" || s.Operation == EveryCall {
		return since
	}
	return s.Since
}

func unresponsiveSymptom(_ *Facts, v *Verdict, _ time.Time, _ Symptom) (s Symptom) {
	if since := v.activeSince(RuntimeUnresponsive); !since.IsZero() {
		s = Symptom{Operation: EveryCall, Since: since, Called: since}
	}
	return s
}

func listSymptom(f *Facts, v *Verdict, _ time.Time, last Symptom) (s Symptom) {
	since := v.activeSince(RuntimeListStall)
	if since.IsZero() {
		return s
	}
	s.Since = last.begun(since)
	if in := f.Relist.InFlight; in != nil && in.Phase != PhaseInspect {
		s.Operation, s.Called = string(in.Phase), in.PhaseStart
		return s
	}
	if !last.IsList() {
		return Symptom{}
	}
	s.Operation, s.Called = last.Operation, last.Called // between two attempts
	return s
}

func inspectionSymptom(f *Facts, v *Verdict, now time.Time, last Symptom) (s Symptom) {
	since := v.activeSince(PodInspectionStall)
	if since.IsZero() {
		return s
	}
	stuck := func(p *PodInspection) bool {
		return p.Err.timedOut() || p.Err == nil && now.Sub(p.called()) >= stuckInspectionAfter
	}
	for _, of := range [][]PodInspection{f.Relist.Inspecting, f.Relist.Failing} {
		for i := range of {
			if p := &of[i]; stuck(p) {
				return Symptom{Operation: p.Operation, Since: last.begun(since), Called: p.called(), UID: p.UID}
			}
		}
	}
	return s
}

// statusSymptom is a Status that hangs: a network plugin may keep the runtime from it.
func statusSymptom(f *Facts, v *Verdict, now time.Time, last Symptom) (s Symptom) {
	since, called := v.activeSince(RuntimeNotReady), f.Status.InFlightSince
	switch {
	case since.IsZero():
		return s
	case called.IsZero() || now.Sub(called) < stuckInspectionAfter:
		if called = last.Called; last.Operation != opStatus || f.Status.LastErr == nil {
			return s
		} // between two attempts
	}
	return Symptom{Operation: opStatus, Since: last.begun(since), Called: called}
}

func subjectSymptom(f *Facts, v *Verdict, _ time.Time, _ Symptom) (s Symptom) {
	if s.Process, s.Kind = Subject(f.At(v.Hop), v.Reason); s.Process == 0 {
		return Symptom{}
	}
	s.Since = v.Active[0].Since
	return s
}

func suspectedListSymptom(f *Facts, _ *Verdict, now time.Time, _ Symptom) (s Symptom) {
	if phase, since, ok := suspectedList(f, now); ok {
		s = Symptom{Operation: string(phase), Since: since, Called: since, Suspected: true}
	}
	return s
}

func suspectedInspectionSymptom(f *Facts, _ *Verdict, now time.Time, _ Symptom) (s Symptom) {
	if p := suspectedInspection(f, now); p != nil {
		s = Symptom{Operation: p.Operation, Since: p.CallStart, Called: p.CallStart, UID: p.UID, Suspected: true}
	}
	return s
}

// suspectedList returns a list that has been unanswered for longer than usual while
// Version was answered, before it counts as hanging: plegd can follow the wait chain
// meanwhile.
func suspectedList(f *Facts, now time.Time) (phase Phase, since time.Time, ok bool) {
	w := &view{f: f, now: now}
	if phase, since, ok = w.listUnanswered(suspectAfter); !ok || !f.answeredSince(since) {
		return "", time.Time{}, false
	}
	return phase, since, true
}

// suspectedInspection returns the inspection of a pod whose call is unanswered for
// longer than the last one took while Version has been answered, before it is said to
// hang; nil where there is none.
func suspectedInspection(f *Facts, now time.Time) *PodInspection {
	for i := range f.Relist.Inspecting {
		p := &f.Relist.Inspecting[i]
		usual := f.Calls[p.Operation].LastOKDuration
		if now.Sub(p.CallStart) >= max(3*usual, usual+suspectAfter) && f.answeredSince(p.CallStart) {
			return p
		}
	}
	return nil
}
