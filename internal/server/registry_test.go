package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/view"
)

// newTestRegistry returns a registry with what the daemon exports.
func newTestRegistry(src Source) (*prometheus.Registry, *exporter.Metrics) {
	reg := prometheus.NewPedanticRegistry()
	m := exporter.NewMetrics(reg)
	reg.MustRegister(exporter.NewCollector(src, []exporter.ReasonLabel{{ID: "RuntimeUnresponsive", Severity: "critical"}}))
	return reg, m
}

// scrapeOver returns what h answers for /metrics.
func scrapeOver(t *testing.T, h http.Handler) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, view.PathMetrics, http.NoBody))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d: %s", w.Code, w.Body)
	}
	return w
}
