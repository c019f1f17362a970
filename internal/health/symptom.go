package health

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// faultBegan returns when the fault began: with the last symptom, if it was a single call, else with the reason.
func faultBegan(last *facts.Symptom, a *facts.Active) time.Time {
	if last.Operation == "" || last.Operation == facts.EveryCall {
		return a.Since
	}
	return last.Since
}

// FindSymptom returns the call that hangs by a verdict, or else the process that its primary reason
// is about, or else a call that is suspected to hang. last is the symptom found before, zero for
// none: a call that is suspected, and then hangs, is one fault. ok is false without a symptom.
func FindSymptom(f *facts.Facts, v *facts.Verdict, moment time.Time, last facts.Symptom) (found facts.Symptom, ok bool) {
	s := &signals{f: f, moment: moment} // the functions below read the facts alone
	found = s.hangingCall(v, &last)
	if found.Operation != "" {
		return found, true
	}
	if pid := Subject(f.At(v.Hop), v.Reason); pid != 0 {
		return facts.Symptom{Process: pid, Since: v.Active[0].Since, Starts: v.Reason == PodStartsFailing}, true
	}
	found = s.suspectedCall()
	return found, found.Operation != ""
}

// FindSecond returns the process that another reason than the primary one is about, and that reason: two faults can be
// there at once, and each has its chain. It leaves out those whose chain is known. ok is false where there is none.
func FindSecond(f *facts.Facts, v *facts.Verdict) (found facts.Symptom, reason string, ok bool) {
	for i := range v.Active {
		a := &v.Active[i]
		pid := Subject(f.At(a.Hop), a.ID)
		isKnown := slices.ContainsFunc(v.Chain, func(l facts.Link) bool { return l.PID == pid })
		isFound := slices.ContainsFunc(f.Evidence.Findings, func(found facts.Finding) bool { return found.Reason == a.ID })
		if pid == 0 || a.ID == v.Reason || a.Severity == facts.SeverityInfo || isKnown || isFound {
			continue
		}
		return facts.Symptom{Process: pid, Since: a.Since, Starts: a.ID == PodStartsFailing}, a.ID, true
	}
	return facts.Symptom{}, "", false
}

// hangingCall returns the call that hangs by a verdict; between two attempts that of the last symptom.
func (s *signals) hangingCall(v *facts.Verdict, last *facts.Symptom) facts.Symptom {
	if every := v.ActiveReason(RuntimeUnresponsive); every != nil && every.Hop == "" {
		return facts.Symptom{Operation: facts.EveryCall, Since: every.Since, Called: every.Since}
	}
	for _, find := range []func(*facts.Verdict, *facts.Symptom) facts.Symptom{s.hangingList, s.hangingInspection, s.hangingStatus} {
		if found := find(v, last); found.Operation != "" {
			return found
		}
	}
	return facts.Symptom{}
}

func (s *signals) hangingList(v *facts.Verdict, last *facts.Symptom) facts.Symptom {
	list := v.ActiveReason(RuntimeListStall)
	if list == nil {
		return facts.Symptom{}
	}
	relist := s.f.Relist.InFlight
	if relist != nil && relist.Phase != facts.PhaseInspect {
		return facts.Symptom{Operation: string(relist.Phase), Since: faultBegan(last, list), Called: relist.PhaseStart}
	}
	if last.IsList() {
		return facts.Symptom{Operation: last.Operation, Since: faultBegan(last, list), Called: last.Called}
	}
	return facts.Symptom{}
}

func (s *signals) hangingInspection(v *facts.Verdict, last *facts.Symptom) facts.Symptom {
	stall := v.ActiveReason(PodInspectionStall)
	stalled := s.stalledInspections(stuckInspectionAfter)
	if stall == nil || len(stalled) == 0 {
		return facts.Symptom{}
	}
	p := stalled[0]
	return facts.Symptom{Operation: p.Operation, Since: faultBegan(last, stall), Called: p.CalledAt(), UID: p.UID}
}

// hangingStatus returns Status: a network plugin may keep the runtime from answering it.
func (s *signals) hangingStatus(v *facts.Verdict, last *facts.Symptom) facts.Symptom {
	a := v.ActiveReason(RuntimeNotReady)
	status := &s.f.Status
	switch {
	case a == nil:
		return facts.Symptom{}
	case s.unanswered(status.InFlightSince, stuckInspectionAfter):
		return facts.Symptom{Operation: opStatus, Since: faultBegan(last, a), Called: status.InFlightSince}
	case last.Operation == opStatus && status.LastErr != nil:
		return facts.Symptom{Operation: opStatus, Since: faultBegan(last, a), Called: last.Called}
	}
	return facts.Symptom{}
}

// suspectedCall returns a list, the call of an inspection or a Status that has been unanswered for longer than usual while
// Version was answered, before it counts as hanging: plegd can follow the wait chain meanwhile.
func (s *signals) suspectedCall() facts.Symptom {
	list := s.listUnanswered(suspectAfter)
	if list != nil && s.otherAnswered(list.PhaseStart) {
		return facts.Symptom{Operation: string(list.Phase), Since: list.PhaseStart, Called: list.PhaseStart, Suspected: true}
	}
	for _, p := range s.f.Relist.Inspecting {
		if p.Waited(s.moment) >= s.lateAfter(p.Operation) && s.otherAnswered(p.CallStart) {
			return facts.Symptom{Operation: p.Operation, Since: p.CallStart, Called: p.CallStart, UID: p.UID, Suspected: true}
		}
	}
	status := s.f.Status.InFlightSince
	if s.unanswered(status, s.lateAfter(opStatus)) && s.otherAnswered(status) {
		return facts.Symptom{Operation: opStatus, Since: status, Called: status, Suspected: true}
	}
	return facts.Symptom{}
}

// lateAfter is the age from which a call is unanswered for longer than usual.
func (s *signals) lateAfter(operation string) time.Duration {
	usual := s.f.Calls[operation].LastOKDuration
	return max(3*usual, usual+suspectAfter)
}

// otherAnswered reports whether Version or a fresh connection has been answered after t.
func (s *signals) otherAnswered(t time.Time) bool {
	return s.f.Version.Ended.After(t) || s.f.Probe.OK && s.f.Probe.At.After(t)
}
