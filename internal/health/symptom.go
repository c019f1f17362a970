package health

import (
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// stuckInspectionAfter is the age from which the call of an inspection, or a Status, is a symptom.
const stuckInspectionAfter = time.Second

// faultBegan returns the begin of the fault: that of the last symptom, if it was a single call.
func faultBegan(s *facts.Symptom, since time.Time) time.Time {
	if s.Operation == "" || s.Operation == facts.EveryCall {
		return since
	}
	return s.Since
}

// FindSymptom returns the call that hangs by a verdict, or else the process that its primary reason
// is about, or else a call that is suspected to hang. last is the symptom found before, zero for
// none: a call that is suspected, and then hangs, is one fault. ok is false without a symptom.
func FindSymptom(f *facts.Facts, v *facts.Verdict, now time.Time, last facts.Symptom) (s facts.Symptom, ok bool) {
	if s = hanging(f, v, now, last); s.Operation != "" {
		return s, true
	}
	if pid := Subject(f.At(v.Hop), v.Reason); pid != 0 {
		return facts.Symptom{Process: pid, Since: v.Active[0].Since}, true
	}
	s = suspected(f, now)
	return s, s.Operation != ""
}

// hanging returns the call that hangs by a verdict; between two attempts that of the last symptom.
func hanging(f *facts.Facts, v *facts.Verdict, now time.Time, last facts.Symptom) facts.Symptom {
	w, in, status := &view{f: f, now: now}, f.Relist.InFlight, &f.Status
	every, list := v.ActiveReason(RuntimeUnresponsive), v.ActiveReason(RuntimeListStall)
	switch {
	case every != nil:
		return facts.Symptom{Operation: facts.EveryCall, Since: every.Since, Called: every.Since}
	case list != nil && in != nil && in.Phase != facts.PhaseInspect:
		return facts.Symptom{Operation: string(in.Phase), Since: faultBegan(&last, list.Since), Called: in.PhaseStart}
	case list != nil && last.IsList():
		return facts.Symptom{Operation: last.Operation, Since: faultBegan(&last, list.Since), Called: last.Called}
	}
	stalled := w.stalledInspections(stuckInspectionAfter)
	if a := v.ActiveReason(PodInspectionStall); a != nil && len(stalled) > 0 {
		p := stalled[0]
		return facts.Symptom{Operation: p.Operation, Since: faultBegan(&last, a.Since), Called: p.CalledAt(), UID: p.UID}
	}
	switch a := v.ActiveReason(RuntimeNotReady); { // a network plugin may keep the runtime from answering Status
	case a == nil:
	case w.unanswered(status.InFlightSince, stuckInspectionAfter):
		return facts.Symptom{Operation: opStatus, Since: faultBegan(&last, a.Since), Called: status.InFlightSince}
	case last.Operation == opStatus && status.LastErr != nil:
		return facts.Symptom{Operation: opStatus, Since: faultBegan(&last, a.Since), Called: last.Called}
	}
	return facts.Symptom{}
}

// suspected returns a list or the call of an inspection that has been unanswered for longer than usual while Version
// was answered, before it counts as hanging: plegd can follow the wait chain meanwhile.
func suspected(f *facts.Facts, now time.Time) facts.Symptom {
	w := &view{f: f, now: now}
	answeredSince := func(t time.Time) bool { return f.Version.Ended.After(t) || f.Probe.OK && f.Probe.At.After(t) }
	if in := w.listUnanswered(suspectAfter); in != nil && answeredSince(in.PhaseStart) {
		return facts.Symptom{Operation: string(in.Phase), Since: in.PhaseStart, Called: in.PhaseStart, Suspected: true}
	}
	for _, p := range f.Relist.Inspecting {
		usual := f.Calls[p.Operation].LastOKDuration
		if w.age(p.CallStart) >= max(3*usual, usual+suspectAfter) && answeredSince(p.CallStart) {
			return facts.Symptom{Operation: p.Operation, Since: p.CallStart, Called: p.CallStart, UID: p.UID, Suspected: true}
		}
	}
	return facts.Symptom{}
}
