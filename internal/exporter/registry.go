package exporter

import (
	"regexp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Build describes the binary, for plegd_build_info and the status document.
type Build struct {
	// Version is plegd's version, Revision the commit it was built from.
	Version, Revision string
}

// NewRegistry returns a registry with the metrics of plegd's own process.
func NewRegistry(b Build) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	promauto.With(reg).NewGauge(prometheus.GaugeOpts{
		Name: "plegd_build_info",
		Help: "Version of plegd. Always 1.",
		ConstLabels: prometheus.Labels{
			"version": b.Version, "revision": b.Revision, "goversion": runtime.Version(),
			"goos": runtime.GOOS, "goarch": runtime.GOARCH,
		},
	}).Set(1)
	reg.MustRegister(
		collectors.NewGoCollector(
			collectors.WithGoCollectorMemStatsMetricsDisabled(),
			collectors.WithoutGoCollectorRuntimeMetrics(regexp.MustCompile("^/")),
			collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{
				Matcher: regexp.MustCompile("^/memory/classes/heap/objects:bytes$"),
			}),
		),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}
