package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// TestBrokenCollector checks that one broken collector leaves the others.
func TestBrokenCollector(t *testing.T) {
	reg, metrics := newTestRegistry(viewtest.NewSource(viewtest.Healthy()))
	desc := prometheus.NewDesc("broken", "Broken.", nil, nil)
	reg.MustRegister(collectorFunc{desc, func(ch chan<- prometheus.Metric) {
		ch <- prometheus.NewInvalidMetric(desc, errors.New("out of order"))
	}})
	log := newLogRecorder()
	h := newHandler(viewtest.NewSource(viewtest.Healthy()), metrics, HandlerOptions{Registerer: reg, Log: log.log}, viewtest.Clock)
	for range 3 {
		if body := scrapeOver(t, h).Body.String(); !strings.Contains(body, exporter.MetricRelists) {
			t.Errorf("the other metrics are gone: %s", body)
		}
	}
	if got := log.count("some metrics could not be collected"); got != 1 {
		t.Errorf("said %d times, want once", got)
	}
}

type collectorFunc struct {
	desc    *prometheus.Desc
	collect func(chan<- prometheus.Metric)
}

func (c collectorFunc) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c collectorFunc) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

func BenchmarkScrape(b *testing.B) {
	reg := exporter.NewRegistry(exporter.Build{})
	m := exporter.NewMetrics(reg)
	m.RelistDone(12*time.Millisecond, true)
	src := viewtest.NewSource(viewtest.Unhealthy())
	reg.MustRegister(exporter.NewCollector(src, func() exporter.Node { return exporter.Node{} }, "1.0.0"))
	h := NewHandler(src, prometheus.ToTransactionalGatherer(reg), HandlerOptions{Registerer: reg})
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, view.PathMetrics, http.NoBody)
		r.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
		r.Header.Set("Accept-Encoding", "gzip")
		h.ServeHTTP(w, r)
		size = w.Body.Len()
	}
	b.ReportMetric(float64(size), "B/scrape")
}
