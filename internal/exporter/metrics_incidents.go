package exporter

import "github.com/prometheus/client_golang/prometheus"

type incidentMetrics struct{ opened, writeFailures prometheus.Counter }

func newIncidentMetrics(reg prometheus.Registerer) incidentMetrics {
	m := incidentMetrics{
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: MetricIncidents,
			Help: "Incidents opened: the verdict left healthy. One that continues after a restart of plegd is not counted again.",
		}),
		writeFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: MetricIncidentWriteFailures,
			Help: "Failed attempts to read or write the incidents in the state directory. They stay in memory and are tried again.",
		}),
	}
	reg.MustRegister(m.opened, m.writeFailures)
	return m
}

// IncidentOpened is told of every incident that opens.
func (m *Metrics) IncidentOpened() { m.incidents.opened.Inc() }

// IncidentWriteFailed is told of every attempt to store incidents that fails.
func (m *Metrics) IncidentWriteFailed() { m.incidents.writeFailures.Inc() }
