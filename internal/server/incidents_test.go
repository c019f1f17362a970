package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func incidentHandler(err error) http.Handler {
	src := viewtest.NewSource(viewtest.Healthy())
	src.List = []incident.Summary{viewtest.Incident().Summary}
	return testHandler(src, true, func(o *HandlerOptions) {
		o.Incident = func(_ context.Context, id string) (*incident.Incident, error) {
			if err == nil && id != viewtest.IncidentID {
				return nil, fmt.Errorf("%s: %w", id, incident.ErrUnknown)
			}
			return viewtest.Incident(), err
		}
	})
}

// TestIncidentExamples keeps the examples in the documentation true.
func TestIncidentExamples(t *testing.T) {
	h, one := incidentHandler(nil), view.PathIncidents+"/"+viewtest.IncidentID
	viewtest.Golden(t, viewtest.DocsDir+"api/incidents.json", answer(h, view.PathIncidents).Body.String())
	viewtest.Golden(t, viewtest.DocsDir+"api/incident.json", answer(h, one).Body.String())
	again, err := incident.Decode(answer(h, one).Body.Bytes())
	must.Do(t, err)
	if diff := cmp.Diff(viewtest.Incident(), again); diff != "" {
		t.Errorf("it comes back differently (-want +got):\n%s", diff)
	}
}

func TestIncidentAnswers(t *testing.T) {
	const html, text, js = "text/html", "text/plain", "application/json"
	none := testHandler(viewtest.NewSource(viewtest.Healthy()), true)
	for _, tt := range []struct {
		h          http.Handler
		path       string
		code       int
		kind, body string
	}{
		{incidentHandler(nil), view.PathIncidents + "/" + viewtest.IncidentID, 200, js, `"id": "` + viewtest.IncidentID},
		{incidentHandler(nil), view.PathIncidentPages + "/" + viewtest.IncidentID, 200, html, viewtest.IncidentID},
		{incidentHandler(nil), view.PathIncidents + "/20261121T030245Z-000000", 404, text, "no incident has the id 20261121T030245Z-000000"},
		{incidentHandler(nil), view.PathIncidentPages + "/20261121T030245Z-000000", 404, text, "no incident has the id"},
		{incidentHandler(nil), view.PathIncidents + "/..%2f..%2fetc%2fpasswd", 404, text, "no incident"},
		{incidentHandler(nil), view.PathIncidents + "/%1b[31m", 404, text, `\x1b[31m`},
		{incidentHandler(errors.New("the disk is gone")), view.PathIncidents + "/" + viewtest.IncidentID, 503, text, "the disk is gone"},
		{none, view.PathIncidents, 200, js, "[]\n"},
	} {
		w := answer(tt.h, tt.path)
		if w.Code != tt.code || !strings.Contains(w.Body.String(), tt.body) || !strings.HasPrefix(w.Header().Get("Content-Type"), tt.kind) {
			t.Errorf("%s: %d %s %s", tt.path, w.Code, w.Header(), w.Body)
		}
	}
}
