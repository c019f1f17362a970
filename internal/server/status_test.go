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
		"in_flight", "last", "last_good", "runtime_ready", "pods", "queue", "process", "children", "cgroup", "docker", "previous",
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
