package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/view"
)

// newTestRegistry returns a registry, and a gatherer of what the daemon exports.
func newTestRegistry(src Source) (*prometheus.Registry, prometheus.TransactionalGatherer) {
	reg := prometheus.NewPedanticRegistry()
	exporter.NewMetrics(reg)
	reg.MustRegister(exporter.NewCollector(src, func() exporter.Node { return exporter.Node{} }, "1.0.0"))
	return reg, prometheus.ToTransactionalGatherer(reg)
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
