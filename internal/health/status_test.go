package health

import (
	"testing"
	"time"
)

// TestStatusFailedWithTheLists: a Status that failed while the lists did says
// nothing once they are answered again, until it fails beside them.
func TestStatusFailedWithTheLists(t *testing.T) {
	f := healthyFacts(t0)
	failed := &CallError{Operation: "status", Code: "Unknown", Message: "Cannot connect to the Docker daemon"}
	f.Status.LastErr = failed
	f.Calls = map[string]Call{"list_containers": {LastOK: t0}, "status": {LastFailed: t0.Add(-time.Second), LastErr: failed}}
	for name, tt := range map[string]struct {
		answered time.Time
		want     string
	}{
		"the lists have never failed":      {time.Time{}, RuntimeNotReady},
		"they failed, and so did Status":   {t0.Add(-100 * time.Millisecond), ""},
		"they were answered before it was": {t0.Add(-2 * time.Second), RuntimeNotReady},
	} {
		t.Run(name, func(t *testing.T) {
			f := f
			f.Relist.AnsweredSince = tt.answered
			if v := Judge(&f, t0, nil); v.Reason != tt.want {
				t.Errorf("%q, want %q: %v", v.Reason, tt.want, v.Active)
			}
		})
	}
}
