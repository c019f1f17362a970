package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/relist"
)

// Metrics holds the counters and histograms that are fed as things happen. Its
// methods do not block and are safe for concurrent use, except Observe.
type Metrics struct {
	relistDuration  prometheus.Histogram
	relistInterval  prometheus.Summary
	relists         *prometheus.CounterVec
	events          *prometheus.CounterVec
	inspections     *prometheus.CounterVec
	operations      *prometheus.CounterVec
	operationErrors *prometheus.CounterVec
	operationTime   *prometheus.SummaryVec
	probeDuration   prometheus.Summary
	probeFailures   *prometheus.CounterVec
	acceptFailures  *prometheus.CounterVec
	restarts        prometheus.Counter
	throttled       prometheus.Counter
	incidents       prometheus.Counter
	refused         prometheus.Counter

	// Of Observe alone.
	probed        time.Time // the last probe that was counted
	restartsTotal int
	cgroup        *facts.Cgroup // the last sample that was counted
}

var _ relist.Observer = (*Metrics)(nil)

// NewMetrics returns metrics that are registered with reg. All their series exist
// from the first scrape.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := factory{promauto.With(reg)}
	m := &Metrics{
		relistDuration: f.NewHistogram(prometheus.HistogramOpts{
			Name: "pleg_relist_duration_seconds",
			Help: "Duration of relists, including failed ones. A relist in flight is not observed: see " +
				"pleg_relist_inflight_seconds.",
			Buckets:                         []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 180},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}),
		relistInterval: f.summary("pleg_relist_interval_seconds",
			"Time from the start of the last successful relist to the start of the next relist."),
		relists: counters(f, "pleg_relists_total",
			"Relists that ended. A failed list fails a relist, a failed inspection does not.", "result", results()),
		events: counters(f, "pleg_events_total",
			"Pod lifecycle events, by type. The kubelet delivers all but ContainerChanged.",
			"type", relist.EventTypes()),
		inspections: counters(f, "pleg_inspections_total", "Inspections of changed pods that ended "+
			"(PodSandboxStatus of the pod and ContainerStatus of its containers).", "result", results()),
		operations: counters(f, "pleg_runtime_operations_total",
			"Calls to the runtime that ended. A call in flight shows in pleg_relist_inflight_seconds.",
			"operation_type", cri.Operations()),
		operationErrors: counters(f, "pleg_runtime_operations_errors_total", "Calls to the runtime that failed.",
			"operation_type", cri.Operations()),
		operationTime: f.NewSummaryVec(prometheus.SummaryOpts{Name: "pleg_runtime_operations_duration_seconds",
			Help: "Duration of calls to the runtime, including failed ones."}, []string{"operation_type"}),
		probeDuration: f.summary("pleg_socket_probe_duration_seconds",
			"Time a fresh dial to the runtime's socket took until the server's HTTP/2 SETTINGS frame."),
		probeFailures: counters(f, "pleg_socket_probe_failures_total",
			"Fresh dials to the runtime's socket that failed, by stage. "+
				"If calls succeed at the same time, the runtime accepts no new connections.", "stage", facts.Stages()),
		acceptFailures: counters(f, "pleg_socket_accept_failures_total",
			"Fresh dials that failed because the runtime does not accept connections. fd_exhausted: it has no file "+
				"descriptor left; queue_full: its accept queue is full; stalled: neither.", "cause", acceptCauses()),
		restarts: f.counter("pleg_runtime_process_restarts_total", "Changes of the process behind the held connection."),
		throttled: f.counter("pleg_runtime_cpu_throttled_seconds_total",
			"Time that the CPU quota of the runtime's cgroup throttled it, since the start of plegd."),
		incidents: f.counter("pleg_incidents_total", "Incidents opened."),
		refused: f.counter("pleg_web_refused_connections_total",
			"Connections to plegd's web address that were closed because a client, or all together, had too many."),
	}
	f.counter("pleg_discard_events_total",
		"Dropped pod lifecycle events, as kubelet_pleg_discard_events. plegd drops none.")
	for _, op := range cri.Operations() {
		m.operationTime.WithLabelValues(op)
	}
	return m
}

// RelistDone observes a relist that ended.
func (m *Metrics) RelistDone(duration time.Duration, ok bool) {
	m.relistDuration.Observe(duration.Seconds())
	m.relists.WithLabelValues(result(ok)).Inc()
}

// RelistInterval observes the time since the start of the last successful relist.
func (m *Metrics) RelistInterval(d time.Duration) { m.relistInterval.Observe(d.Seconds()) }

// Event counts a pod lifecycle event.
func (m *Metrics) Event(e relist.Event) { m.events.WithLabelValues(string(e.Type)).Inc() }

// InspectionDone counts an inspection of a pod that ended.
func (m *Metrics) InspectionDone(ok bool) { m.inspections.WithLabelValues(result(ok)).Inc() }

// CallDone observes a call to the runtime that ended.
func (m *Metrics) CallDone(c cri.Call) {
	m.operations.WithLabelValues(c.Operation).Inc()
	m.operationTime.WithLabelValues(c.Operation).Observe(c.Duration.Seconds())
	if c.Code != cri.CodeOK {
		m.operationErrors.WithLabelValues(c.Operation).Inc()
	}
}

// ProbeDone observes a fresh dial that ended.
func (m *Metrics) ProbeDone(p facts.Probe) {
	if p.Settings > 0 {
		m.probeDuration.Observe((p.Connect + p.Settings).Seconds())
	}
	if !p.OK {
		m.probeFailures.WithLabelValues(string(p.Stage)).Inc()
	}
}

// IncidentOpened counts an incident.
func (m *Metrics) IncidentOpened() { m.incidents.Inc() }

// ConnectionRefused counts a connection to plegd's web address that was closed for the limits.
func (m *Metrics) ConnectionRefused() { m.refused.Inc() }

// Observe counts the changes since the previous snapshot. One goroutine calls it for
// every new snapshot.
func (m *Metrics) Observe(s *facts.Snapshot) {
	e := &s.Facts.Evidence
	if probe := s.Facts.Probe; !probe.At.Equal(m.probed) {
		m.probed = probe.At
		if cause := acceptFailure(probe, e); cause != "" {
			m.acceptFailures.WithLabelValues(cause).Inc()
		}
	}
	if p := e.Process; p != nil && p.RestartsTotal > m.restartsTotal {
		m.restarts.Add(float64(p.RestartsTotal - m.restartsTotal))
		m.restartsTotal = p.RestartsTotal
	}
	m.observeCgroup(e.Cgroup)
}

// observeCgroup counts the throttling since the previous sample.
func (m *Metrics) observeCgroup(sample *facts.Cgroup) {
	previous := m.cgroup
	if sample == nil || previous != nil && !sample.At.After(previous.At) {
		return
	}
	m.cgroup = sample
	switch {
	case previous == nil || sample.Path != previous.Path: // time from before plegd watched it
	case sample.ThrottledTotal >= previous.ThrottledTotal:
		m.throttled.Add((sample.ThrottledTotal - previous.ThrottledTotal).Seconds())
	default: // the cgroup was recreated at the same path
		m.throttled.Add(sample.ThrottledTotal.Seconds())
	}
}

func result(ok bool) string {
	if ok {
		return "success"
	}
	return "failure"
}

func results() []string { return []string{result(true), result(false)} }

// factory makes registered metrics.
type factory struct{ promauto.Factory }

func (f factory) counter(name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// summary returns a metric that has a sum and a count, and no quantiles.
func (f factory) summary(name, help string) prometheus.Summary {
	return f.NewSummary(prometheus.SummaryOpts{Name: name, Help: help})
}

// counters returns a counter for each value of a label.
func counters[V ~string](f factory, name, help, label string, values []V) *prometheus.CounterVec {
	vec := f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		vec.WithLabelValues(string(v))
	}
	return vec
}
