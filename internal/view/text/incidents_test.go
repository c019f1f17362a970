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
	list[0].Outcome, list[0].Closed, list[0].Stored = incident.Open, nil, false
	if err := WriteIncidentsText(&b, list, false); err != nil {
		t.Fatal(err)
	}
	viewtest.Golden(t, filepath.Join("testdata", "incidents.golden"), b.String())
	b.Reset()
	if err := WriteIncidentsText(&b, nil, true); err != nil || b.String() != "no incidents\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
