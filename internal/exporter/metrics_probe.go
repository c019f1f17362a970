package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/health"
)

// probeCauses lists the causes that each stage of a fresh dial can fail for.
// Not every cause can come at every stage, and a series that can never move
// costs as much as any other.
func probeCauses() map[health.Stage][]health.Cause {
	return map[health.Stage][]health.Cause{
		health.StageConnect: {health.CauseMissing, health.CauseNotSocket, health.CauseRefused,
			health.CausePermissionDenied, health.CauseQueueFull, health.CauseTimeout, health.CauseError},
		health.StageSettings: {health.CauseTimeout, health.CauseClosed, health.CauseProtocol, health.CauseError},
		health.StageRPC: {health.CauseTimeout, health.CauseClosed, health.CauseProtocol,
			health.CauseUnimplemented, health.CauseNotInitialized, health.CauseError},
	}
}

// probeMetrics are those that each fresh dial feeds. The maps are never written
// to after newProbeMetrics.
type probeMetrics struct {
	connect, settings, rpc prometheus.Observer
	failures               map[health.Stage]map[health.Cause]prometheus.Counter
}

func newProbeMetrics(reg prometheus.Registerer) probeMetrics {
	duration := prometheus.NewHistogramVec(histogramOpts(MetricProbeDuration,
		"Time each stage of a fresh dial to the runtime's socket took: connect(2), the server's HTTP/2 SETTINGS, one Version call (while all is well, of one dial in 15 s).",
		probeBuckets()), []string{labelStage})
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricProbeFailures,
		Help: "Fresh dials to the runtime's socket that failed, by the stage they got to and the cause. Failures here while the calls succeed: the runtime takes no new connections.",
	}, []string{labelStage, labelCause})
	reg.MustRegister(duration, failures)

	m := probeMetrics{
		connect:  duration.WithLabelValues(string(health.StageConnect)),
		settings: duration.WithLabelValues(string(health.StageSettings)),
		rpc:      duration.WithLabelValues(string(health.StageRPC)),
		failures: make(map[health.Stage]map[health.Cause]prometheus.Counter),
	}
	for stage, causes := range probeCauses() {
		m.failures[stage] = make(map[health.Cause]prometheus.Counter)
		for _, cause := range causes {
			m.failures[stage][cause] = failures.WithLabelValues(string(stage), string(cause))
		}
	}
	return m
}

// done counts a fresh dial. A stage that was not reached has no time and is not
// observed. A cause that the stage does not list counts as an error of it.
func (m probeMetrics) done(p health.Probe) {
	observe(m.connect, p.Connect)
	observe(m.settings, p.Settings)
	observe(m.rpc, p.RPC)
	if p.OK {
		return
	}
	causes, ok := m.failures[p.Stage]
	if !ok {
		return
	}
	c, ok := causes[p.Cause]
	if !ok {
		c = causes[health.CauseError]
	}
	c.Inc()
}

func observe(o prometheus.Observer, d time.Duration) {
	if d > 0 {
		o.Observe(d.Seconds())
	}
}
