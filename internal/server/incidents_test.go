package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

type fakeIncidents struct{ err error }

func (f fakeIncidents) Get(_ context.Context, id string) (*incident.Incident, error) {
	if f.err != nil {
		return nil, f.err
	}
	if id != viewtest.IncidentID {
		return nil, fmt.Errorf("%s: %w", id, incident.ErrUnknown)
	}
	return viewtest.Incident(), nil
}

func incidentHandler(names bool, err error) http.Handler {
	s := viewtest.Healthy()
	src := viewtest.NewSource(s)
	src.List = []incident.Summary{viewtest.Incident().Summary}
	_, metrics := newTestRegistry(src)
	opts := HandlerOptions{Build: exporter.Build{Version: "1.0.0"}, Incidents: fakeIncidents{err}}
	if names {
		opts.Access = FullAccess
	}
	return newHandler(src, metrics, opts, viewtest.Clock)
}

func answer(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// TestIncidentExamples keeps the examples in the documentation true.
func TestIncidentExamples(t *testing.T) {
	viewtest.Golden(t, viewtest.DocsDir+"api/incidents.json", answer(incidentHandler(true, nil), view.PathIncidents).Body.String())
	viewtest.Golden(t, viewtest.DocsDir+"api/incident.json", answer(incidentHandler(true, nil), view.PathIncidents+"/"+viewtest.IncidentID).Body.String())
	again, err := incident.Decode(answer(incidentHandler(true, nil), view.PathIncidents+"/"+viewtest.IncidentID).Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(viewtest.Incident(), again); diff != "" {
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
		{view.PathIncidents + "/" + viewtest.IncidentID, nil, 200, viewtest.IncidentID},
		{view.PathIncidents + "/20261121T030245Z-000000", nil, 404, "no incident has the id 20261121T030245Z-000000"},
		{view.PathIncidents + "/..%2f..%2fetc%2fpasswd", nil, 404, "no incident"},
		{view.PathIncidents + "/%1b[31m", nil, 404, `\x1b[31m`},
		{view.PathIncidents + "/" + viewtest.IncidentID, errors.New("the disk is gone"), 503, "the disk is gone"},
		{view.PathIncidents + "/", nil, 404, ""},
	} {
		w := answer(incidentHandler(true, tt.err), tt.path)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s: %d %s", tt.path, w.Code, w.Body)
		}
	}
	if w := answer(testHandler(viewtest.NewSource(viewtest.Healthy()), true), view.PathIncidents); w.Code != 200 || strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("without incidents: %d %s", w.Code, w.Body)
	}
	if w := answer(testHandler(viewtest.NewSource(viewtest.Healthy()), true), view.PathIncidents+"/"+viewtest.IncidentID); w.Code != 404 {
		t.Errorf("where none are kept: %d", w.Code)
	}
}

// TestIncidentPages: a page for people, JSON for programs.
func TestIncidentPages(t *testing.T) {
	for path, want := range map[string][2]string{
		view.PathIncidentPages + "/" + viewtest.IncidentID: {"text/html; charset=utf-8", "<h1>ShimStuck</h1>"},
		view.PathIncidents + "/" + viewtest.IncidentID:     {"application/json; charset=utf-8", `"id": "` + viewtest.IncidentID},
	} {
		w := answer(incidentHandler(true, nil), path)
		if w.Code != 200 || w.Header().Get("Content-Type") != want[0] || !strings.Contains(w.Body.String(), want[1]) {
			t.Errorf("%s: %d %s:\n%s", path, w.Code, w.Header(), w.Body)
		}
	}
	for _, path := range []string{view.PathIncidentPages, view.PathIncidentPages + "/", view.PathIncidentPages + "/20261121T030245Z-000000", view.PathIncidentPages + "/x.md"} {
		if w := answer(incidentHandler(true, nil), path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
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
	if err != nil || len(list) != 1 || list[0].ID != viewtest.IncidentID {
		t.Errorf("%v, %v", list, err)
	}
	one, err := FetchIncident(t.Context(), socket, viewtest.IncidentID)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := json.Marshal(one); !bytes.Contains(b, []byte("api-7d9f8b6c5")) {
		t.Error("the control socket names no pod")
	}
	for _, id := range []string{"20261121T030245Z-000000", "../x", ""} {
		if _, err := FetchIncident(t.Context(), socket, id); !errors.Is(err, incident.ErrUnknown) {
			t.Errorf("%q: %v", id, err)
		}
	}
}
