package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// TestStatusExample keeps the example in the documentation true.
func TestStatusExample(t *testing.T) {
	b, err := encodeJSON(new(viewtest.Degraded()))
	if err != nil {
		t.Fatal(err)
	}
	viewtest.Golden(t, viewtest.DocsDir+"api/status.json", string(b))
}

func TestStatusRoundTrip(t *testing.T) {
	for name, snap := range map[string]health.Snapshot{"starting": viewtest.Starting(), "healthy": viewtest.Healthy(), "degraded": viewtest.Degraded(), "unhealthy": viewtest.Unhealthy()} {
		want := new(snap)
		b, err := encodeJSON(want)
		if err != nil {
			t.Fatal(err)
		}
		var got health.Snapshot
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, &got); diff != "" {
			t.Errorf("%s comes back differently (-want +got):\n%s", name, diff)
		}
	}
}

// TestUnknownIsAbsent: what is not known is left out, and is not 0.
func TestUnknownIsAbsent(t *testing.T) {
	b, err := encodeJSON(new(viewtest.Starting()))
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"last_seen", "last_seen_age_seconds", "modelled_last_seen", "modelled_last_seen_age_seconds", "not_ready_in_seconds",
		"in_flight", "last", "last_good", "runtime_ready", "pods", "queue", "connections", "process", "children", "cgroup", "docker", "previous",
	} {
		if strings.Contains(string(b), `"`+key+`"`) {
			t.Errorf("%s is there:\n%s", key, b)
		}
	}
	for _, key := range []string{"state", "reason", "reasons", "kubelet", "threshold_seconds", "facts"} {
		if !strings.Contains(string(b), `"`+key+`"`) {
			t.Errorf("%s is missing:\n%s", key, b)
		}
	}
	if strings.Contains(string(b), "0001-01-01") {
		t.Errorf("a time that never was:\n%s", b)
	}
}

// TestNoNames checks that no name of a pod gets out where names may not be
// shown, in whatever text it stands.
func TestNoNames(t *testing.T) {
	s := viewtest.Degraded()
	s.Facts.Relist.Last.Failed = 1
	d := health.NamesIn(&s).Redact(&s)
	b, err := encodeJSON(d)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"json": string(b), "text": textOf(t, d, false), "page": pageOf(t, d)} {
		for _, name := range []string{"nightly-report", "batch/", "b9e1", "checkout", "shop/", "coredns", "0c1d", "77aa", "4f0c"} {
			if strings.Contains(text, name) {
				t.Errorf("%s holds %q:\n%s", what, name, text)
			}
		}
		if !strings.Contains(text, "(a pod)") {
			t.Errorf("%s does not say that a name was left out", what)
		}
	}
	if in := d.Facts.Relist.Inspecting; len(in) != 2 || in[0].Name != "" || in[0].Start.IsZero() {
		t.Errorf("under inspection: %+v; want two entries without their pods", in)
	}
	if e := d.Facts.Relist.Failing[0].Err; e.Code != "DeadlineExceeded" || e.Message != "" {
		t.Errorf("the error of a failing pod: %+v; want its code alone", e)
	}
}

// TestSnapshotUnchanged: the snapshot is shared with others.
func TestSnapshotUnchanged(t *testing.T) {
	s := viewtest.Degraded()
	health.NamesIn(&s).Redact(&s)
	if diff := cmp.Diff(viewtest.Degraded(), s); diff != "" {
		t.Errorf("leaving out the names changed the snapshot:\n%s", diff)
	}
}
