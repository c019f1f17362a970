package server

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func testHandler(src Source, names bool) http.Handler {
	reg, metrics := newTestRegistry(src)
	opts := HandlerOptions{Build: exporter.Build{Version: "1.0.0"}, Registerer: reg}
	if names {
		opts.Access = FullAccess
	}
	return newHandler(src, metrics, opts, viewtest.Clock)
}

func TestHandler(t *testing.T) {
	noRelist := viewtest.Starting()
	for _, tt := range []struct {
		name, method, path string
		snap               health.Snapshot
		code               int
		contentType        string
		body               []string
	}{
		{"metrics", "GET", "/metrics", viewtest.Healthy(), 200, "text/plain", []string{"pleg_healthy 1\n", "promhttp_metric_handler_requests_total"}},
		{"healthz healthy", "GET", "/healthz", viewtest.Healthy(), 200, "text/plain", []string{"healthy\n"}},
		{"healthz degraded", "GET", "/healthz", viewtest.Degraded(), 200, "text/plain", []string{"degraded: PodInspectionStall\n"}},
		{"healthz starting", "GET", "/healthz", viewtest.Starting(), 200, "text/plain", []string{"starting: Starting\n"}},
		{"healthz unhealthy", "GET", "/healthz", viewtest.Unhealthy(), 503, "text/plain", []string{
			"unhealthy: RuntimeUnresponsive\n",
			"[container runtime is down, PLEG is not healthy: pleg was last seen active 3m13s ago; threshold is 3m0s]\n",
		}},
		{"healthy when the node is not", "GET", "/-/healthy", viewtest.Unhealthy(), 200, "text/plain", []string{"alive"}},
		{"not ready", "GET", "/-/ready", noRelist, 503, "text/plain", []string{"no relist has been attempted"}},
		{"ready when the node is not", "GET", "/-/ready", viewtest.Unhealthy(), 200, "text/plain", []string{"ready"}},
		{"status", "GET", "/api/v1/status", viewtest.Degraded(), 200, "application/json", []string{`"reason": "PodInspectionStall"`, `"plegd_version": "1.0.0"`}},
		{"page", "GET", "/", viewtest.Unhealthy(), 200, "text/html", []string{"<h1>RuntimeUnresponsive</h1>", "pleg was last seen active"}},
		{"page with a query", "GET", "/?refresh=0", viewtest.Healthy(), 200, "text/html", []string{"Updates are paused"}},
		{"unknown", "GET", "/api/v1/nothing", viewtest.Healthy(), 404, "text/plain", []string{"no such page"}},
		{"under a page", "GET", "/metrics/x", viewtest.Healthy(), 404, "text/plain", nil},
		{"profiles", "GET", "/debug/pprof/", viewtest.Healthy(), 404, "text/plain", nil},
		{"post", "POST", "/metrics", viewtest.Healthy(), 405, "text/plain", []string{"answers only GET and HEAD"}},
		{"post to nowhere", "POST", "/nowhere", viewtest.Healthy(), 405, "text/plain", nil},
		{"put", "PUT", "/api/v1/status", viewtest.Healthy(), 405, "text/plain", nil},
		{"delete", "DELETE", "/", viewtest.Healthy(), 405, "text/plain", nil},
		{"options", "OPTIONS", "/healthz", viewtest.Healthy(), 405, "text/plain", nil},
		{"head", "HEAD", "/healthz", viewtest.Unhealthy(), 503, "text/plain", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			testHandler(viewtest.NewSource(tt.snap), true).ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, http.NoBody))
			if w.Code != tt.code {
				t.Errorf("code %d, want %d", w.Code, tt.code)
			}
			if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, tt.contentType) {
				t.Errorf("Content-Type %q, want %s", got, tt.contentType)
			}
			for _, want := range tt.body {
				if !strings.Contains(w.Body.String(), want) {
					t.Errorf("no %q in:\n%s", want, w.Body)
				}
			}
			if allow := w.Header().Get("Allow"); (allow == "GET, HEAD") != (tt.code == 405) {
				t.Errorf("Allow: %q", allow)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "deny",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") || !strings.Contains(csp, "; script-src 'sha256-") || strings.Contains(csp, "unsafe") {
				t.Errorf("Content-Security-Policy: %s", csp)
			}
		})
	}
}

// TestOperatorHeaders checks that a header from --web.config.file stands.
func TestOperatorHeaders(t *testing.T) {
	w := httptest.NewRecorder()
	w.Header().Set("X-Frame-Options", "sameorigin")
	testHandler(viewtest.NewSource(viewtest.Healthy()), false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	if got := w.Header().Get("X-Frame-Options"); got != "sameorigin" {
		t.Errorf("X-Frame-Options: %s", got)
	}
}

func TestHealthzEscapes(t *testing.T) {
	s := viewtest.Unhealthy()
	s.Verdict.KubeletMessage = "network: \x1b[2J\nhealthy"
	w := httptest.NewRecorder()
	testHandler(viewtest.NewSource(s), false).ServeHTTP(w, httptest.NewRequest(http.MethodGet, view.PathHealthz, http.NoBody))
	if strings.Contains(w.Body.String(), "\x1b") || strings.Count(w.Body.String(), "\n") != 2 {
		t.Errorf("body %q", w.Body)
	}
}

// TestTwoHandlersOneRegistry: the web server and the control server share the
// promhttp metrics.
func TestTwoHandlersOneRegistry(t *testing.T) {
	src := viewtest.NewSource(viewtest.Healthy())
	reg, metrics := newTestRegistry(src)
	for range 2 {
		scrapeOver(t, NewHandler(src, metrics, HandlerOptions{Registerer: reg}))
	}
	const counted = `promhttp_metric_handler_requests_total{code="200"} 2`
	if text := scrapeOver(t, NewHandler(src, metrics, HandlerOptions{})).Body.String(); !strings.Contains(text, counted) {
		t.Errorf("no %s in:\n%s", counted, text)
	}
}

// TestTenScrapers scrapes from ten clients at once while the node changes.
func TestTenScrapers(t *testing.T) {
	src := viewtest.NewSource(viewtest.Healthy())
	reg := exporter.NewRegistry(exporter.Build{})
	m := exporter.NewMetrics(reg)
	reg.MustRegister(exporter.NewCollector(src, func() exporter.Node { return exporter.Node{} }, "1.0.0"))
	server := httptest.NewServer(NewHandler(src, prometheus.ToTransactionalGatherer(reg), HandlerOptions{Registerer: reg}))
	defer server.Close()
	defer server.Client().CloseIdleConnections()

	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 10 {
				resp, err := server.Client().Get(server.URL + view.PathMetrics)
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(body, []byte("pleg_verdict{")) {
					t.Errorf("%d, %v", resp.StatusCode, err)
				}
			}
		})
	}
	for range 50 {
		src.Set(viewtest.Unhealthy())
		m.RelistDone(12*time.Millisecond, true)
		src.Set(viewtest.Healthy())
	}
	wg.Wait()
}

func TestStatusIsOneJSONValue(t *testing.T) {
	w := httptest.NewRecorder()
	testHandler(viewtest.NewSource(viewtest.Healthy()), true).ServeHTTP(w, httptest.NewRequest(http.MethodGet, view.PathStatus, http.NoBody))
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	var d health.Snapshot
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if dec.More() {
		t.Error("more after the document")
	}
}
