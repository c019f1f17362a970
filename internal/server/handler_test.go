package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func TestHandler(t *testing.T) {
	hostile := viewtest.Unhealthy()
	hostile.KubeletMessage = "network: \x1b[2J\nhealthy"
	for _, tt := range []struct {
		name, method, path string
		snap               facts.Snapshot
		code               int
		contentType        string
		body               []string
	}{
		{"metrics", "GET", "/metrics", viewtest.Healthy(), 200, "text/plain", []string{"pleg_healthy 1\n"}},
		{"healthz degraded", "GET", "/healthz", viewtest.Degraded(), 200, "text/plain", []string{"degraded: PodInspectionStall\n"}},
		{"healthz starting", "GET", "/healthz", viewtest.Starting(), 200, "text/plain", []string{"starting: Starting\n"}},
		{"healthz unhealthy", "GET", "/healthz", viewtest.Unhealthy(), 503, "text/plain", []string{
			"unhealthy: RuntimeUnresponsive\n",
			"[container runtime is down, PLEG is not healthy: pleg was last seen active 3m13s ago; threshold is 3m0s]\n",
		}},
		{"healthz escapes", "GET", "/healthz", hostile, 503, "text/plain", []string{"\nkubelet: network: \\x1b[2J\\nhealthy\n"}},
		{"a line", "GET", "/api/v1/status?o=line", viewtest.Unhealthy(), 200, "text/plain", []string{"unhealthy RuntimeUnresponsive"}},
		{"text", "GET", "/api/v1/status?o=text", viewtest.Unhealthy(), 200, "text/plain", []string{"containerd"}},
		{"healthy when the node is not", "GET", "/-/healthy", viewtest.Unhealthy(), 200, "text/plain", []string{"alive"}},
		{"not ready", "GET", "/-/ready", viewtest.Starting(), 503, "text/plain", []string{"no relist has been attempted"}},
		{"status", "GET", "/api/v1/status", viewtest.Degraded(), 200, "application/json", []string{`"reason": "PodInspectionStall"`, `"plegd_version": "1.0.0"`}},
		{"page", "GET", "/", viewtest.Unhealthy(), 200, "text/html", []string{"<h1>RuntimeUnresponsive</h1>", "pleg was last seen active"}},
		{"unknown", "GET", "/api/v1/nothing", viewtest.Healthy(), 404, "text/plain", []string{"not found"}},
		{"profiles", "GET", "/debug/pprof/", viewtest.Healthy(), 404, "text/plain", nil},
		{"post", "POST", "/metrics", viewtest.Healthy(), 405, "text/plain", []string{"Method Not Allowed"}},
		{"reload", "POST", "/-/reload", viewtest.Healthy(), 405, "text/plain", nil},
		{"reload by GET", "GET", "/-/reload", viewtest.Healthy(), 404, "text/plain", nil},
		{"head", "HEAD", "/healthz", viewtest.Unhealthy(), 503, "text/plain", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			w.Header().Set("X-Frame-Options", "sameorigin") // of --web.config.file, which takes precedence
			testHandler(viewtest.NewSource(tt.snap), true).ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, http.NoBody))
			check.Equal(t, w.Code, tt.code, "code")
			if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, tt.contentType) {
				t.Errorf("Content-Type %q, want %s", got, tt.contentType)
			}
			for _, want := range tt.body {
				check.Contains(t, w.Body.String(), want, "body")
			}
			if allow := w.Header().Get("Allow"); (allow == "GET, HEAD") != (tt.code == 405) {
				t.Errorf("Allow: %q", allow)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "sameorigin",
			} {
				check.Equal(t, w.Header().Get(name), want, "%s", name)
			}
			csp := w.Header().Get("Content-Security-Policy")
			if !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || !strings.Contains(csp, "; script-src 'sha256-") || strings.Contains(csp, "unsafe") {
				t.Errorf("Content-Security-Policy: %s", csp)
			}
		})
	}
}

// TestStatusDocument keeps the example in the documentation true. A status is read back
// as it was, and a value that is not known is absent, and not 0.
func TestStatusDocument(t *testing.T) {
	body := func(s facts.Snapshot) string {
		return answer(testHandler(viewtest.NewSource(s), true), view.PathStatus).Body.String()
	}
	h := testHandler(viewtest.NewSource(viewtest.Degraded()), true, func(o *HandlerOptions) { o.Node = "worker-7" })
	viewtest.Golden(t, viewtest.DocsDir+"api/status.json", answer(h, view.PathStatus).Body.String())
	for name, want := range map[string]facts.Snapshot{
		"starting": viewtest.Starting(), "healthy": viewtest.Healthy(), "degraded": viewtest.Degraded(), "unhealthy": viewtest.Unhealthy(),
	} {
		var got facts.Snapshot
		dec := json.NewDecoder(strings.NewReader(body(want)))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&got); err != nil || dec.More() {
			t.Fatalf("%s: %v, more %v", name, err, dec.More())
		}
		want.Node = ""
		check.Same(t, got, want, name+" comes back")
	}
	text := body(viewtest.Starting())
	for _, unknown := range []string{`"last_seen"`, `"not_ready_in_seconds"`, `"runtime_ready"`, `"queue"`, `"process"`, "0001-01-01"} {
		if strings.Contains(text, unknown) {
			t.Errorf("%s is there:\n%s", unknown, text)
		}
	}
}

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
	check.Same(t, again, viewtest.Incident(), "an incident comes back")
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
