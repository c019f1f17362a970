package record

import (
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/must"
)

var fault = time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)

func after(s float64) time.Time { return fault.Add(time.Duration(s * float64(time.Second))) }

// hang is a recording of a hang of 60 s of which the API hears at 35 s.
func hang() *Recording {
	r := &Recording{Scenario: "hang", Fault: fault, Recovery: after(60), End: after(90)}
	r.Writes = []Write{{after(-20), true, ""}, {after(35), false, "PLEG is not healthy: pleg was last seen active 3m0.1s ago; threshold is 3m0s"}, {after(65), true, ""}}
	r.Skips = []Skip{{At: after(30.2)}}
	for at := -5.0; at < 90; at += 0.25 {
		s := Sample{At: after(at), RulesOK: at < 30 || at >= 60, NodeReady: at < 42 || at >= 66}
		if at > 1 && at < 42 {
			s.NotReadyIn, s.NotReadyInLatest = ptr(31-at), ptr(42-at)
			s.Message = "PLEG is not healthy: pleg was last seen active 2m1s ago; threshold is 3m0s"
		}
		r.Samples = append(r.Samples, s)
	}
	return r
}

func TestCompareEqual(t *testing.T) {
	c := Compare(hang())
	if len(c.Problems) > 0 {
		t.Errorf("problems in a run that has none: %q", c.Problems)
	}
	if c.Message != "equal" || c.Inside != 1 || len(c.API) != 1 || len(c.Plegd) != 1 {
		t.Errorf("message %q, inside %v, API %v, plegd %v", c.Message, c.Inside, c.API, c.Plegd)
	}
	if got, want := c.Predictions[1].String(), "NotReady at 31 to 42 s"; got != want {
		t.Errorf("prediction at +10 s: %q, want %q", got, want)
	}
}

// TestCompare spoils a recording in each way that must be found, and in ways that plegd cannot
// know of: those are no problems.
func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*Recording)
		want  string // "": no problem
	}{
		"the sync loop is late":        {func(r *Recording) { r.Skips[0].At = after(34) }, "from the sync loop"},
		"the sync loop never skips":    {func(r *Recording) { r.Skips = nil }, "skipped nothing"},
		"outside the window":           {func(r *Recording) { r.Writes[1].At = after(44) }, "inside the window of 0 %"},
		"the API stays Ready":          {func(r *Recording) { r.Writes = r.Writes[:1] }, "certain of NotReady"},
		"another message":              {func(r *Recording) { r.Writes[1].Message = "container runtime is down" }, "the API's message"},
		"Ready much later":             {func(r *Recording) { r.Writes[2].At = after(85) }, "certain of Ready"},
		"the API never Ready":          {func(r *Recording) { r.Writes = r.Writes[:2] }, "certain of Ready"},
		"a reason that is never named": {func(r *Recording) { r.WantReason = "KubeletDown" }, "never the primary reason"},
		"a countdown to nothing":       {func(r *Recording) { r.WantReady = true }, "counted down"},
		"plegd is silent": {each(func(s *Sample, _ float64) {
			s.NodeReady, s.NotReadyIn, s.NotReadyInLatest = true, nil, nil
		}), "certain of Ready"},
		"a wide window": {each(func(s *Sample, _ float64) {
			if s.NotReadyInLatest != nil {
				*s.NotReadyInLatest += 2
			}
		}), "13.0 s wide"},
		"it ends between the API's NotReady and the end of the window": {each(func(s *Sample, at float64) {
			s.NodeReady = true
			if at >= 42 && at < 66 {
				s.ReadyIn, s.ReadyInLatest = ptr(0), ptr(66-at)
			}
		}), ""},
		"NotReady until after the API's Ready": {each(func(s *Sample, at float64) { s.NodeReady = at < 42 || at >= 68 }), "certain of NotReady"},
		// plegd's Status calls have another phase than the kubelet's.
		"it ends just before plegd's 30-s rule":      {beforeRule(0), ""},
		"it ends long before plegd's 30-s rule":      {beforeRule(10), "plegd's rules held"},
		"it ends just before the kubelet's rule":     {func(r *Recording) { r.Skips, r.StatusRule, r.Recovery = nil, true, after(34) }, ""},
		"it ends long after the kubelet's rule":      {func(r *Recording) { r.Skips, r.StatusRule, r.Recovery = nil, true, after(36) }, "skipped nothing"},
		"it ends before Version's timeout":           {released(0), ""},
		"it ends before that, and plegd is too late": {released(4), "certain of Ready"},
		"a reason that stays": {func(r *Recording) {
			r.WantReason, r.ReasonWithin, r.GoneWithin = "RuntimeFrozen", 15*time.Second, 5*time.Second
			each(func(s *Sample, at float64) {
				if at > 3 && at < 68 {
					s.Reason = "RuntimeFrozen"
				}
			})(r)
		}, "until 7.8 s after the recovery"},
	} {
		r := hang()
		test.spoil(r)
		if got := strings.Join(Compare(r).Problems, "; "); !strings.Contains(got, test.want) || (test.want == "") != (got == "") {
			t.Errorf("%s: problems %q, want %q", name, got, test.want)
		}
	}
}

// each changes every sample, given its time since the fault.
func each(change func(s *Sample, at float64)) func(*Recording) {
	return func(r *Recording) {
		for i := range r.Samples {
			change(&r.Samples[i], r.since(r.Samples[i].At))
		}
	}
}

// beforeRule is a fault that ends before the 30-s rule fails, from which plegd is late by some
// seconds.
func beforeRule(late float64) func(*Recording) {
	return func(r *Recording) {
		r.StatusRule = true
		each(func(s *Sample, at float64) {
			if s.RulesOK = true; at > 0 && at < 30.5 {
				s.RulesFailIn = ptr(31.5 - at + late)
			}
		})(r)
	}
}

// released is a hang that ends before Version's timeout: the update that waited shows NotReady,
// and plegd says until when it may, late by some seconds.
func released(late float64) func(*Recording) {
	return func(r *Recording) {
		r.Recovery, r.Writes[1].At, r.Writes[2].At, r.LoopSilent = after(45), after(45.1), after(55.4), true
		each(func(s *Sample, at float64) {
			s.NodeReady, s.NotReadyIn, s.NotReadyInLatest = true, nil, nil
			if at > 1 && at < 45 {
				s.NotReadyIn, s.NotReadyInLatest = ptr(119-at), ptr(131-at)
			} else if at > 46 && at < 55.5-late/2 {
				s.ReadyIn, s.ReadyInLatest = ptr(54-at+late), ptr(56-at+late)
			}
		})(r)
	}
}

func TestSaveLoad(t *testing.T) {
	dir := t.TempDir()
	r := hang()
	r.Kubelet, r.Run = "1.36", 1
	must.Do(t, r.Save(dir))
	all, err := Load(dir)
	if err != nil || len(all) != 1 || len(Compare(all[0]).Problems) > 0 {
		t.Errorf("read %v, %v", all, err)
	}
}
