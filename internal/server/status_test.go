package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// TestStatusExample keeps the example in the documentation true.
func TestStatusExample(t *testing.T) {
	b, err := encodeJSON(viewtest.Document(viewtest.Degraded(), true))
	if err != nil {
		t.Fatal(err)
	}
	viewtest.Golden(t, viewtest.DocsDir+"api/status.json", string(b))
}

func TestStatusRoundTrip(t *testing.T) {
	for name, snap := range map[string]view.Snapshot{"starting": viewtest.Starting(), "healthy": viewtest.Healthy(), "degraded": viewtest.Degraded(), "unhealthy": viewtest.Unhealthy()} {
		want := viewtest.Document(snap, true)
		b, err := encodeJSON(want)
		if err != nil {
			t.Fatal(err)
		}
		var got view.StatusDocument
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, &got); diff != "" {
			t.Errorf("%s comes back differently (-want +got):\n%s", name, diff)
		}
	}
}

// TestStatusNulls checks that what is not known is null and not 0.
func TestStatusNulls(t *testing.T) {
	b, err := encodeJSON(viewtest.Document(viewtest.Starting(), true))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"last_seen", "last_seen_age_seconds", "modelled_last_seen", "modelled_last_seen_age_seconds", "not_ready_in_seconds",
		"runtime", "relist.in_flight", "relist.last", "status_check.last_good", "status_check.conditions.runtime_ready",
		"probe", "pods.running", "pods.containers", "evidence.queue", "evidence.connections", "evidence.process",
		"evidence.children", "evidence.cgroup", "evidence.node", "evidence.kubelet", "evidence.docker",
	} {
		var v any = got
		for key := range strings.SplitSeq(path, ".") {
			m, ok := v.(map[string]any)
			if !ok {
				t.Fatalf("%s: nothing there", path)
			}
			if v, ok = m[key]; !ok {
				t.Errorf("%s is missing; want null", path)
			}
		}
		if v != nil {
			t.Errorf("%s = %v, want null", path, v)
		}
	}
	// A list without entries is [], so that nobody has to ask whether it is.
	for _, want := range []string{`"slowest": []`, `"stuck": []`, `"failing": []`, `"operations": {}`, `"sources": {}`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

// TestNoNames checks that no name of a pod gets out where names may not be
// shown, in whatever text it stands.
func TestNoNames(t *testing.T) {
	s := viewtest.Degraded()
	s.Facts.Relist.Last.Failed = 1
	d := viewtest.Document(s, false)
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
	if d.Pods.Stuck[0].Pod != nil || len(d.Pods.Stuck) != 1 || d.Pods.Stuck[0].Seconds < 8 {
		t.Errorf("stuck: %+v; want one entry without its pod", d.Pods.Stuck)
	}
	if e := d.Pods.Failing[0].Error; e.Code != "DeadlineExceeded" || e.Message != "" {
		t.Errorf("the error of a failing pod: %+v; want its code alone", e)
	}
}

func TestNames(t *testing.T) {
	d := viewtest.Document(viewtest.Degraded(), true)
	if got := d.Pods.Stuck[0].Pod; got == nil || got.Namespace != "batch" || got.UID != "b9e1" {
		t.Errorf("stuck pod: %+v", got)
	}
	if !strings.Contains(d.Next, "nightly-report-28872000-k4j2p") {
		t.Errorf("next: %s", d.Next)
	}
}

// TestSnapshotUnchanged: the snapshot is shared with others.
func TestSnapshotUnchanged(t *testing.T) {
	s := viewtest.Degraded()
	view.BuildStatus(s, false)
	if diff := cmp.Diff(viewtest.Degraded(), s); diff != "" {
		t.Errorf("building the document changed the snapshot:\n%s", diff)
	}
	d := view.BuildStatus(s, true)
	*d.Operations["version"].Bytes = 7
	if s.Facts.Calls["version"].Bytes == 7 {
		t.Error("the document shares memory with the facts")
	}
}
