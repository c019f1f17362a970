package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/view"
)

// Metrics holds the counters and histograms that are fed as things happen. Its
// methods do not block and are safe for concurrent use, except Observe.
type Metrics struct {
	relistDuration  prometheus.Histogram
	relistInterval  prometheus.Summary
	relists         counters[bool]
	events          counters[relist.EventType]
	discards        prometheus.Counter
	inspections     counters[bool]
	operations      counters[string]
	operationErrors counters[string]
	operationTime   map[string]prometheus.Observer
	probeDuration   prometheus.Summary
	probeFailures   counters[health.Stage]
	acceptFailures  counters[string]
	restarts        prometheus.Counter
	throttled       prometheus.Counter
	incidents       prometheus.Counter
	history         *view.History

	// Of Observe alone.
	restartsTotal int
	cgroup        *health.Cgroup // the last sample that was counted
}

var _ relist.Observer = (*Metrics)(nil)

// NewMetrics returns metrics that are registered with reg. All their series exist
// from the first scrape.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := factory{reg}
	operationTime := prometheus.NewSummaryVec(prometheus.SummaryOpts{Name: MetricOperationsDuration,
		Help: "Duration of calls to the runtime, including failed ones."}, []string{labelOperation})
	m := &Metrics{
		relistDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: MetricRelistDuration,
			Help: "Duration of relists, including failed ones. A relist in flight is not observed: see " +
				MetricRelistInFlight + ".",
			Buckets:                         []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 180},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}),
		relistInterval: f.summary(MetricRelistInterval,
			"Time from the start of the last successful relist to the start of the next relist."),
		relists: newCounters(reg, MetricRelists, labelResult,
			"Relists that ended. A failed list fails a relist, a failed inspection does not.", results()),
		events: newCounters(reg, MetricEvents, labelType, "Pod lifecycle events, by type, before delivery. "+
			"ContainerChanged is internal and never delivered.", byName(relist.EventTypes())),
		discards: f.counter(MetricDiscardEvents,
			"Pod lifecycle events dropped because the event channel was full, as kubelet_pleg_discard_events."),
		inspections: newCounters(reg, MetricInspections, labelResult, "Inspections of changed pods that ended "+
			"(PodSandboxStatus of the pod and ContainerStatus of its containers).", results()),
		operations: newCounters(reg, MetricOperations, labelOperation,
			"Calls to the runtime that ended. A call in flight shows in "+
				MetricRelistInFlight+".", byName(cri.Operations())),
		operationErrors: newCounters(reg, MetricOperationsErrors, labelOperation,
			"Calls to the runtime that failed.", byName(cri.Operations())),
		operationTime: make(map[string]prometheus.Observer),
		probeDuration: f.summary(MetricProbeDuration,
			"Time a fresh dial to the runtime's socket took until the server's HTTP/2 SETTINGS frame."),
		probeFailures: newCounters(reg, MetricProbeFailures, labelStage,
			"Fresh dials to the runtime's socket that failed, by stage. "+
				"If calls succeed at the same time, the runtime accepts no new connections.", byName(health.Stages())),
		acceptFailures: newCounters(reg, MetricAcceptFailures, labelCause,
			"Fresh dials that failed because the runtime does not accept connections. "+
				"fd_exhausted: it has no file descriptor left; queue_full: its accept queue is full; stalled: neither.",
			byName(acceptCauses())),
		restarts: f.counter(MetricProcessRestarts, "Changes of the process behind the held connection."),
		throttled: f.counter(MetricCPUThrottled,
			"Time that the CPU quota of the runtime's cgroup throttled it, since the start of plegd."),
		incidents: f.counter(MetricIncidents,
			"Incidents opened."),
		history: view.NewHistory(time.Now()),
	}
	reg.MustRegister(m.relistDuration, operationTime)
	for _, op := range cri.Operations() {
		m.operationTime[op] = operationTime.WithLabelValues(op)
	}
	return m
}

// RelistDone observes a relist that ended.
func (m *Metrics) RelistDone(duration time.Duration, ok bool) {
	m.relistDuration.Observe(duration.Seconds())
	m.relists.inc(ok)
	m.history.Add(time.Now(), duration, ok)
}

// Recent returns the relists and verdicts of the last minutes, for the page.
func (m *Metrics) Recent(now time.Time) view.Recent { return m.history.At(now) }

// Restore adds the bins of an earlier process to Recent, the last one of which was written
// at written.
func (m *Metrics) Restore(written time.Time, bins []view.RelistBin) { m.history.Restore(written, bins) }

// RelistInterval observes the time since the start of the last successful relist.
func (m *Metrics) RelistInterval(d time.Duration) { m.relistInterval.Observe(d.Seconds()) }

// EventGenerated counts an event before its delivery.
func (m *Metrics) EventGenerated(t relist.EventType) { m.events.inc(t) }

// EventDiscarded counts an event dropped because the channel was full.
func (m *Metrics) EventDiscarded() { m.discards.Inc() }

// InspectionDone counts an inspection of a pod that ended.
func (m *Metrics) InspectionDone(ok bool) { m.inspections.inc(ok) }

// CallDone observes a call to the runtime that ended.
func (m *Metrics) CallDone(c cri.Call) {
	m.operations.inc(c.Operation)
	if o, ok := m.operationTime[c.Operation]; ok {
		o.Observe(c.Duration.Seconds())
	}
	if c.Code != cri.CodeOK {
		m.operationErrors.inc(c.Operation)
	}
}

// ProbeDone observes a fresh dial that ended.
func (m *Metrics) ProbeDone(p health.Probe) {
	if p.Settings > 0 {
		m.probeDuration.Observe((p.Connect + p.Settings).Seconds())
	}
	if !p.OK {
		m.probeFailures.inc(p.Stage)
	}
}

// AcceptFailed counts a result of AcceptFailure.
func (m *Metrics) AcceptFailed(cause string) { m.acceptFailures.inc(cause) }

// IncidentOpened counts an incident.
func (m *Metrics) IncidentOpened() { m.incidents.Inc() }

// Observe counts the changes since the previous snapshot. One goroutine calls it for
// every new snapshot.
func (m *Metrics) Observe(s *health.Snapshot) {
	m.history.Judged(s.At, s.State)
	e := &s.Facts.Evidence
	if p := e.Process; p != nil && p.RestartsTotal > m.restartsTotal {
		m.restarts.Add(float64(p.RestartsTotal - m.restartsTotal))
		m.restartsTotal = p.RestartsTotal
	}
	now, before := e.Cgroup, m.cgroup
	if now == nil || before != nil && !now.At.After(before.At) {
		return
	}
	m.cgroup = now
	switch {
	case before == nil || now.Path != before.Path: // time from before plegd watched it
	case now.ThrottledTotal >= before.ThrottledTotal:
		m.throttled.Add((now.ThrottledTotal - before.ThrottledTotal).Seconds())
	default: // the cgroup was recreated at the same path
		m.throttled.Add(now.ThrottledTotal.Seconds())
	}
}

// counters are the counters of one metric by the value of its label.
type counters[K comparable] map[K]prometheus.Counter

func newCounters[K comparable](reg prometheus.Registerer, name, label, help string, values map[K]string) counters[K] {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	reg.MustRegister(v)
	out := make(counters[K], len(values))
	for key, value := range values {
		out[key] = v.WithLabelValues(value)
	}
	return out
}

// inc increments the counter of key; an unknown key is ignored.
func (c counters[K]) inc(key K) {
	if counter, ok := c[key]; ok {
		counter.Inc()
	}
}

func results() map[bool]string { return map[bool]string{true: "success", false: "failure"} }

func byName[K ~string](keys []K) map[K]string {
	out := make(map[K]string, len(keys))
	for _, k := range keys {
		out[k] = string(k)
	}
	return out
}

// factory makes registered metrics without labels.
type factory struct{ reg prometheus.Registerer }

func (f factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	f.reg.MustRegister(c)
	return c
}

// summary returns a metric that has a sum and a count, and no quantiles.
func (f factory) summary(name, help string) prometheus.Summary {
	s := prometheus.NewSummary(prometheus.SummaryOpts{Name: name, Help: help})
	f.reg.MustRegister(s)
	return s
}
