package health

import (
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// TestFindSymptom: the call that hangs by the verdict comes before the primary reason's
// process and before a call that is only suspected, and one fault keeps its begin.
func TestFindSymptom(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	active := func(ids ...string) facts.Verdict {
		v := facts.Verdict{Reason: ids[0]}
		for i, id := range ids {
			v.Active = append(v.Active, facts.Active{ID: id, Since: ago(10 + i)})
		}
		return v
	}
	list := &facts.InFlight{Phase: facts.PhaseListContainers, PhaseStart: ago(12)}
	stuck := facts.PodInspection{UID: "u1", Operation: "container_status", Start: ago(9), CallStart: ago(8)}
	suspected := facts.Symptom{Operation: "list_containers", Since: ago(13), Called: ago(12), Suspected: true}
	for name, tt := range map[string]struct {
		relist facts.Relist
		status facts.Status
		v      facts.Verdict
		last   facts.Symptom
		want   facts.Symptom
	}{
		"nothing": {v: facts.Verdict{State: facts.StateHealthy}},
		"nothing answers, and a list hangs": {
			relist: facts.Relist{InFlight: list}, v: active(RuntimeListStall, RuntimeUnresponsive),
			want: facts.Symptom{Operation: facts.EveryCall, Since: ago(11), Called: ago(11)},
		},
		"a list hangs": {
			relist: facts.Relist{InFlight: list}, v: active(RuntimeListStall),
			want: facts.Symptom{Operation: "list_containers", Since: ago(10), Called: ago(12)},
		},
		"a list that was suspected hangs": {
			relist: facts.Relist{InFlight: list}, v: active(RuntimeListStall), last: suspected,
			want: facts.Symptom{Operation: "list_containers", Since: ago(13), Called: ago(12)},
		},
		"between two lists that hang": {
			v: active(RuntimeListStall), last: facts.Symptom{Operation: "list_podsandbox", Since: ago(20), Called: ago(19)},
			want: facts.Symptom{Operation: "list_podsandbox", Since: ago(20), Called: ago(19)},
		},
		"a list and an inspection hang": {
			relist: facts.Relist{InFlight: list, Inspecting: []facts.PodInspection{stuck}}, v: active(PodInspectionStall, RuntimeListStall),
			want: facts.Symptom{Operation: "list_containers", Since: ago(11), Called: ago(12)},
		},
		"an inspection hangs": {
			relist: facts.Relist{Inspecting: []facts.PodInspection{stuck}}, v: active(PodInspectionStall),
			want: facts.Symptom{Operation: "container_status", Since: ago(10), Called: ago(8), UID: "u1"},
		},
		"an inspection ran into its limit": {
			relist: facts.Relist{Failing: []facts.PodInspection{{UID: "u2", Operation: "podsandbox_status", Start: ago(9), Err: &facts.CallError{Code: "DeadlineExceeded"}}}},
			v:      active(PodInspectionStall),
			want:   facts.Symptom{Operation: "podsandbox_status", Since: ago(10), Called: ago(9), UID: "u2"},
		},
		"Status hangs": {
			status: facts.Status{InFlightSince: ago(6)}, v: active(RuntimeNotReady),
			want: facts.Symptom{Operation: opStatus, Since: ago(10), Called: ago(6)},
		},
		"between two Status that hang": {
			status: facts.Status{LastErr: &facts.CallError{Code: "DeadlineExceeded"}}, v: active(RuntimeNotReady),
			last: facts.Symptom{Operation: opStatus, Since: ago(20), Called: ago(7)},
			want: facts.Symptom{Operation: opStatus, Since: ago(20), Called: ago(7)},
		},
		"Status says that the runtime is not ready": {v: active(RuntimeNotReady)},
	} {
		f := facts.Facts{Relist: tt.relist, Status: tt.status}
		got, ok := FindSymptom(&f, &tt.v, now, tt.last)
		if got != tt.want || ok != (tt.want != facts.Symptom{}) {
			t.Errorf("%s: got %+v, %t\nwant %+v", name, got, ok, tt.want)
		}
	}
}
