package text

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func TestIncidentText(t *testing.T) {
	var b bytes.Buffer
	one := viewtest.Incident()
	one.Timeline[1].Snapshot.Active[0].Evidence = append(one.Timeline[1].Snapshot.Active[0].Evidence, "\x1b[2Jgone\nforged line")
	if err := WriteIncidentText(&b, one, false); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), '\x1b') || strings.Contains(b.String(), "\nforged") {
		t.Error("the runtime's text reaches the terminal as it is")
	}
	viewtest.Golden(t, filepath.Join("testdata", "incident.golden"), b.String())
	b.Reset()
	list := []incident.Summary{viewtest.Incident().Summary, viewtest.Incident().Summary}
	list[0].Outcome, list[0].Closed, list[0].Stored, list[0].Episodes = incident.Open, nil, false, 3
	if err := WriteIncidentsText(&b, list, false); err != nil {
		t.Fatal(err)
	}
	viewtest.Golden(t, filepath.Join("testdata", "incidents.golden"), b.String())
	b.Reset()
	if err := WriteIncidentsText(&b, nil, true); err != nil || b.String() != "no incidents\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestIncidentMarkdown: the post-mortem says what happened, for how long the node was
// NotReady by the model, who the culprit is and what ended it; and nothing from
// outside becomes markup.
func TestIncidentMarkdown(t *testing.T) {
	one := viewtest.StalledIncident()
	var b bytes.Buffer
	if err := WriteIncidentMarkdown(&b, one, "worker-7", true); err != nil {
		t.Fatal(err)
	}
	viewtest.Golden(t, filepath.Join("testdata", "incident.md.golden"), b.String())
	for _, want := range []string{
		"NotReady for 0.9 minutes (56s)", "not read from the API", "It holds names of pods", "payments/api-7d9f8b6c5-x2x4v/app", "containerd-shim, pid 4711, is no longer in state T",
		"kubelet: its relist makes the same call", "`kill -CONT 4711`", "journalctl -u containerd.service",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
	const evil = "<img src=x> **bold** [a](b) | `x` \x1b[2J\n# head"
	one.Timeline[1].Snapshot.Active[0].Evidence = []string{evil}
	one.KubeletMessage, one.Endpoint = evil, evil
	one.Timeline[1].Snapshot.Steps = []string{evil, "`odd"}
	b.Reset()
	if err := WriteIncidentMarkdown(&b, one, evil, true); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<img", "\x1b", "\n# head", " **bold**", " [a](b)"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%q is markup in:\n%s", bad, b.String())
		}
	}
	b.Reset()
	if err := WriteIncidentMarkdown(&b, viewtest.StalledIncident().WithoutNames(), "", false); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"payments", "api-7d9f8b6c5", "checkout"} {
		if strings.Contains(b.String(), name) {
			t.Errorf("%q is in it without names:\n%s", name, b.String())
		}
	}
	b.Reset()
	if err := WriteIncidentsMarkdown(&b, []incident.Summary{one.Summary, viewtest.Incident().Summary}); err != nil || strings.Count(b.String(), "\n") != 4 {
		t.Errorf("a list of two: %v\n%s", err, b.String())
	}
}
