package record

import (
	"strings"
	"testing"
	"time"
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

// TestCompareDifferent spoils a recording in each way that must be found.
func TestCompareDifferent(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*Recording)
		want  string
	}{
		"the sync loop is late":        {func(r *Recording) { r.Skips[0].At = after(34) }, "from the sync loop"},
		"the sync loop never skips":    {func(r *Recording) { r.Skips = nil }, "skipped nothing"},
		"outside the window":           {func(r *Recording) { r.Writes[1].At = after(44) }, "inside the window of 0 %"},
		"the API stays Ready":          {func(r *Recording) { r.Writes = r.Writes[:1] }, "the API stayed Ready"},
		"another message":              {func(r *Recording) { r.Writes[1].Message = "container runtime is down" }, "the API's message"},
		"Ready much later":             {func(r *Recording) { r.Writes[2].At = after(85) }, "Ready again"},
		"the API never Ready":          {func(r *Recording) { r.Writes = r.Writes[:2] }, "the API was not"},
		"plegd is silent":              {silence, "plegd did not"},
		"a reason that is never named": {func(r *Recording) { r.WantReason = "KubeletDown" }, "never the primary reason"},
		"a countdown to nothing":       {func(r *Recording) { r.WantReady = true }, "counted down"},
		"a wide window":                {widen, "13.0 s wide"},
	} {
		t.Run(name, func(t *testing.T) {
			r := hang()
			test.spoil(r)
			if got := strings.Join(Compare(r).Problems, "; "); !strings.Contains(got, test.want) {
				t.Errorf("problems %q, want one with %q", got, test.want)
			}
		})
	}
}

func silence(r *Recording) {
	for i := range r.Samples {
		r.Samples[i].NodeReady, r.Samples[i].NotReadyIn, r.Samples[i].NotReadyInLatest = true, nil, nil
	}
}

func widen(r *Recording) {
	for i := range r.Samples {
		if v := r.Samples[i].NotReadyInLatest; v != nil {
			*v += 2
		}
	}
}

// TestFaultEndsInWindow is a fault that ends between the API's NotReady and the end
// of the window that held it: plegd cannot know.
func TestFaultEndsInWindow(t *testing.T) {
	r := hang()
	for i := range r.Samples {
		r.Samples[i].NodeReady = true
	}
	if c := Compare(r); len(c.Problems) > 0 {
		t.Errorf("problems %q", c.Problems)
	}
}

// TestFaultEndsBeforeRule is a fault that ends between the moment at which the
// kubelet's 30-s rule fails and plegd's, whose Status calls have another phase.
func TestFaultEndsBeforeRule(t *testing.T) {
	r := hang()
	r.StatusRule = true
	for i, s := range r.Samples {
		at := r.since(s.At)
		r.Samples[i].RulesOK = true
		if at > 0 && at < 30.5 {
			r.Samples[i].RulesFailIn = ptr(31.5 - at)
		}
	}
	if c := Compare(r); len(c.Problems) > 0 {
		t.Errorf("problems %q", c.Problems)
	}
	for i, s := range r.Samples {
		if s.RulesFailIn != nil {
			r.Samples[i].RulesFailIn = ptr(*s.RulesFailIn + 10)
		}
	}
	if c := Compare(r); len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "plegd's rules held") {
		t.Errorf("problems %q, want that the rules held", c.Problems)
	}
}

// TestFaultEndsAfterRule is the same the other way round.
func TestFaultEndsAfterRule(t *testing.T) {
	r := hang()
	r.Skips, r.StatusRule, r.Recovery = nil, true, after(34)
	if c := Compare(r); len(c.Problems) > 0 {
		t.Errorf("problems %q", c.Problems)
	}
	r.Recovery = after(36)
	if c := Compare(r); len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "skipped nothing") {
		t.Errorf("problems %q, want that the loop skipped nothing", c.Problems)
	}
}

// TestReleasedUpdate is a hang that ends before Version's timeout: the update that
// waited shows NotReady, and plegd says until when it may.
func TestReleasedUpdate(t *testing.T) {
	r := hang()
	r.Recovery, r.Writes[1].At, r.Writes[2].At, r.LoopSilent = after(45), after(45.1), after(55.4), true
	for i, s := range r.Samples {
		at := r.since(s.At)
		s.NodeReady, s.NotReadyIn, s.NotReadyInLatest = true, nil, nil
		if at > 1 && at < 45 {
			s.NotReadyIn, s.NotReadyInLatest = ptr(119-at), ptr(131-at)
		} else if at > 46 && at < 55 {
			s.ReadyIn, s.ReadyInLatest = ptr(54-at), ptr(56-at)
		}
		r.Samples[i] = s
	}
	if c := Compare(r); len(c.Problems) > 0 {
		t.Errorf("problems %q", c.Problems)
	}
	for i, s := range r.Samples {
		if s.ReadyIn != nil {
			*r.Samples[i].ReadyIn, *r.Samples[i].ReadyInLatest = *s.ReadyIn+4, *s.ReadyInLatest+4
		}
	}
	if c := Compare(r); len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "plegd did not") {
		t.Errorf("problems %q, want that plegd did not say so", c.Problems)
	}
}

func TestReasonGone(t *testing.T) {
	r := hang()
	r.WantReason, r.ReasonWithin, r.GoneWithin = "RuntimeFrozen", 15*time.Second, 5*time.Second
	for i, s := range r.Samples {
		if at := r.since(s.At); at > 3 && at < 68 {
			r.Samples[i].Reason = "RuntimeFrozen"
		}
	}
	c := Compare(r)
	if len(c.Problems) != 1 || !strings.Contains(c.Problems[0], "until 7.8 s after the recovery") {
		t.Errorf("problems %q", c.Problems)
	}
}

func TestSaveLoad(t *testing.T) {
	dir := t.TempDir()
	r := hang()
	r.Kubelet, r.Run = "1.36", 1
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	all, err := Load(dir)
	if err != nil || len(all) != 1 || len(Compare(all[0]).Problems) > 0 {
		t.Errorf("read %v, %v", all, err)
	}
}
