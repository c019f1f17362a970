package exporter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
)

const fakeID = "20261121T030245Z-0a1b2c"

// fakeIncident is the incident of unhealthy's node.
func fakeIncident() *incident.Incident {
	moment := func(s Snapshot, offset time.Duration, previous *health.Verdict) incident.Moment {
		return incident.Moment{At: t0.Add(-80 * time.Second).Add(offset), Offset: offset.Seconds(), Verdict: &s.Verdict, Previous: previous, Facts: &s.Facts}
	}
	before, bad, worse := healthy(), degraded(), unhealthy()
	closed := t0
	one := &incident.Incident{
		Summary: incident.Summary{
			SchemaVersion: incident.SchemaVersion, ID: fakeID, Outcome: incident.Recovered, Opened: ago(80 * time.Second), Closed: &closed,
			Duration: 80, State: health.StateUnhealthy, Reason: "PodInspectionStall", Episodes: 1, Stored: true,
			Reasons: []incident.ReasonTimes{
				{ID: "PodInspectionStall", Severity: health.SeverityCritical, Last: 47.25, Active: 47.5, Primary: 47.5},
				{ID: "ShimStuck", Severity: health.SeverityWarning, Last: 47.25, Active: 47.5},
				{ID: "RuntimeUnresponsive", Severity: health.SeverityCritical, First: 47.5, Last: 79.75, Active: 32.5, Primary: 32.5},
			},
		},
		PlegdVersion: "1.0.0", FactsSchema: health.FactsSchema, Revision: 6, Updated: t0,
		BootID:          "6e1f0b1c-0000-4000-8000-5d2f5e0c9a11",
		OpenedMonotonic: 183_402 * time.Second, UpdatedMonotonic: 183_482 * time.Second,
		KubeletMessage: worse.Verdict.KubeletMessage, Endpoint: worse.Facts.Endpoint.Path, Runtime: worse.Facts.Runtime,
		Gaps: []incident.Gap{},
		Relists: []incident.Relist{
			{Start: ago(82 * time.Second), Seconds: 0.012, ListPodSandbox: 0.0031, ListContainers: 0.0042, Serial: 0.021, Changed: 2, Inspected: 2, Slowest: bad.Facts.Relist.Slowest[:1]},
		},
		Timeline: []incident.Moment{
			moment(bad, 0, &before.Verdict), moment(worse, 47500*time.Millisecond, &bad.Verdict), moment(before, 80*time.Second, &worse.Verdict),
		},
	}
	return one
}

type fakeIncidents struct{ err error }

func (f fakeIncidents) Get(_ context.Context, id string) (*incident.Incident, error) {
	if f.err != nil {
		return nil, f.err
	}
	if id != fakeID {
		return nil, fmt.Errorf("%s: %w", id, incident.ErrUnknown)
	}
	return fakeIncident(), nil
}

func incidentHandler(names bool, err error) http.Handler {
	s := healthy()
	s.Incidents = []incident.Summary{fakeIncident().Summary}
	reg, _ := newPedantic(newFakeSource(s), fewReasons())
	opts := HandlerOptions{Build: Build{Version: "1.0.0"}, Incidents: fakeIncidents{err}}
	if names {
		opts.Names = NamesAlways
	}
	return newHandler(newFakeSource(s), reg, opts, clock)
}

func answer(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// TestIncidentExamples keeps the examples in the documentation true.
func TestIncidentExamples(t *testing.T) {
	golden(t, docsDir+"api/incidents.json", answer(incidentHandler(true, nil), PathIncidents).Body.String())
	golden(t, docsDir+"api/incident.json", answer(incidentHandler(true, nil), PathIncidents+"/"+fakeID).Body.String())
	again, err := incident.Decode(answer(incidentHandler(true, nil), PathIncidents+"/"+fakeID).Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fakeIncident(), again); diff != "" {
		t.Errorf("it comes back differently (-want +got):\n%s", diff)
	}
}

func TestIncidentAnswers(t *testing.T) {
	for _, tt := range []struct {
		path string
		err  error
		code int
		body string
	}{
		{PathIncidents + "/" + fakeID, nil, 200, fakeID},
		{PathIncidents + "/20261121T030245Z-000000", nil, 404, "no incident has the id 20261121T030245Z-000000"},
		{PathIncidents + "/..%2f..%2fetc%2fpasswd", nil, 404, "no incident"},
		{PathIncidents + "/%1b[31m", nil, 404, `\x1b[31m`},
		{PathIncidents + "/" + fakeID, errors.New("the disk is gone"), 503, "the disk is gone"},
		{PathIncidents + "/", nil, 404, ""},
	} {
		w := answer(incidentHandler(true, tt.err), tt.path)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
		}
	}
	if w := answer(testHandler(newFakeSource(healthy()), true), PathIncidents); w.Code != 200 || strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("without incidents: %d %s", w.Code, w.Body)
	}
	if w := answer(testHandler(newFakeSource(healthy()), true), PathIncidents+"/"+fakeID); w.Code != 404 {
		t.Errorf("where none are kept: %d", w.Code)
	}
}

// TestIncidentNamesNoPods over TCP without authentication, and keeps the rest.
func TestIncidentNamesNoPods(t *testing.T) {
	open, closed := answer(incidentHandler(true, nil), PathIncidents+"/"+fakeID).Body.String(), answer(incidentHandler(false, nil), PathIncidents+"/"+fakeID).Body.String()
	for _, secret := range []string{
		"nightly-report", "batch", "b9e1", "checkout-7d9f8b6c5", "coredns", "kube-system", "77aa", sandboxID[:12], `find sandbox`,
	} {
		if !strings.Contains(open, secret) {
			t.Errorf("the example does not hold %q: it proves nothing", secret)
		}
		if strings.Contains(closed, secret) {
			t.Errorf("%q gets out", secret)
		}
	}
	one, err := incident.Decode(strings.NewReader(closed))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(one.Timeline[0].Facts.Relist.Inspecting); got != 2 {
		t.Errorf("%d pods under inspection can be counted, want 2", got)
	}
	if one.ID != fakeID || one.Timeline[0].Verdict.Reason != "PodInspectionStall" || one.Timeline[0].Facts.Relist.Failing[0].Operation != "container_status" {
		t.Error("what is no name has been taken out")
	}
	if list := answer(incidentHandler(false, nil), PathIncidents).Body.String(); strings.Contains(list, "nightly") {
		t.Error("the list names a pod")
	}
}

func TestIncidentText(t *testing.T) {
	var b bytes.Buffer
	one := fakeIncident()
	one.Timeline[1].Verdict.Active[0].Evidence = append(one.Timeline[1].Verdict.Active[0].Evidence, "\x1b[2Jgone\nforged line")
	if err := WriteIncidentText(&b, one, false); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), '\x1b') || strings.Contains(b.String(), "\nforged") {
		t.Error("the runtime's text reaches the terminal as it is")
	}
	golden(t, filepath.Join("testdata", "incident.golden"), b.String())
	b.Reset()
	list := []incident.Summary{fakeIncident().Summary, fakeIncident().Summary}
	list[0].Outcome, list[0].Closed, list[0].Stored, list[0].Episodes = incident.Open, nil, false, 3
	if err := WriteIncidentsText(&b, list, false); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "incidents.golden"), b.String())
	b.Reset()
	if err := WriteIncidentsText(&b, nil, true); err != nil || b.String() != "no incidents\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// TestFetchIncidents asks a daemon.
func TestFetchIncidents(t *testing.T) {
	socket := socketPath(t)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: incidentHandler(true, nil), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	list, err := FetchIncidents(t.Context(), socket)
	if err != nil || len(list) != 1 || list[0].ID != fakeID {
		t.Errorf("%v, %v", list, err)
	}
	one, err := FetchIncident(t.Context(), socket, fakeID)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := json.Marshal(one); !bytes.Contains(b, []byte("nightly-report")) {
		t.Error("the control socket names no pod")
	}
	for _, id := range []string{"20261121T030245Z-000000", "../x", ""} {
		if _, err := FetchIncident(t.Context(), socket, id); !errors.Is(err, incident.ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
