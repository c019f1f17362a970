package exporter

import (
	"regexp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build describes the binary, for plegd_build_info and the status document.
type Build struct {
	// Version is plegd's version, Revision the commit it was built from.
	Version, Revision string
}

// NewRegistry returns a registry with the metrics of plegd's own process.
func NewRegistry(b Build) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	registerSelf(reg, b)
	return reg
}

func registerSelf(reg prometheus.Registerer, b Build) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: MetricBuildInfo,
		Help: "Version of plegd. Always 1.",
		ConstLabels: prometheus.Labels{
			"version":   b.Version,
			"revision":  b.Revision,
			"goversion": runtime.Version(),
			"goos":      runtime.GOOS,
			"goarch":    runtime.GOARCH,
		},
	})
	info.Set(1)
	reg.MustRegister(info,
		collectors.NewGoCollector(
			collectors.WithGoCollectorMemStatsMetricsDisabled(),
			collectors.WithoutGoCollectorRuntimeMetrics(regexp.MustCompile("^/")),
			collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{
				Matcher: regexp.MustCompile("^/memory/classes/heap/objects:bytes$"),
			}),
		),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
