package exporter

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build says what was built, for plegd_build_info and the status document.
type Build struct {
	// Version is plegd's version, Revision the commit it was built from.
	Version, Revision string
}

// NewRegistry returns a registry with what plegd tells of itself: what was
// built, the Go runtime and the process.
func NewRegistry(b Build) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	registerSelf(reg, b)
	return reg
}

func registerSelf(reg prometheus.Registerer, b Build) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: MetricBuildInfo,
		Help: "Always 1; the labels say which plegd this is.",
		ConstLabels: prometheus.Labels{
			"version":   b.Version,
			"revision":  b.Revision,
			"goversion": runtime.Version(),
			"goos":      runtime.GOOS,
			"goarch":    runtime.GOARCH,
		},
	})
	info.Set(1)
	// Without go_memstats_*: 21 series that repeat what the runtime's own profile
	// and process_resident_memory_bytes tell, on every node of a cluster.
	reg.MustRegister(info, collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()))
	if process, err := newProcessCollector(); err == nil { // as the library's, it is silent without /proc
		reg.MustRegister(process)
	}
}
