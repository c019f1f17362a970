package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/view"
)

// Metrics counts and times what the parts of plegd report as it happens. It is
// a relist.Observer, and the observer of the calls and of the fresh dial. Its
// methods are safe to call from any goroutine, neither block nor allocate, and
// look up no label by its hash: every series is resolved once, in NewMetrics,
// which also makes each of them exist at 0 from the first scrape on.
type Metrics struct {
	relist     relistMetrics
	operations operationMetrics
	probe      probeMetrics
	accept     acceptMetrics
	evidence   *evidenceMetrics
	incidents  incidentMetrics
	history    *view.History
	eventDelay prometheus.Histogram
}

var _ relist.Observer = (*Metrics)(nil)

// NewMetrics registers the metrics with reg. It panics when one of their names
// is taken there already, which only a mistake in the wiring can do.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{
		relist:     newRelistMetrics(reg),
		operations: newOperationMetrics(reg),
		probe:      newProbeMetrics(reg),
		accept:     newAcceptMetrics(reg),
		evidence:   newEvidenceMetrics(reg),
		incidents:  newIncidentMetrics(reg),
		history:    view.NewHistory(time.Now()),
		eventDelay: newEventDelay(reg),
	}
}

// RelistDone is told of every relist that ended.
func (m *Metrics) RelistDone(duration, serial time.Duration, ok bool) {
	m.relist.duration.Observe(duration.Seconds())
	m.relist.serial.Observe(serial.Seconds())
	m.relist.relists.inc(ok)
	m.history.Add(time.Now(), duration, ok)
}

// Recent returns what the relists of the last ten minutes took, and the verdicts.
func (m *Metrics) Recent(now time.Time) view.Recent { return m.history.At(now) }

// RelistInterval is told, at the start of a relist, the time since the start of
// the last successful one.
func (m *Metrics) RelistInterval(d time.Duration) { m.relist.interval.Observe(d.Seconds()) }

// EventGenerated is told of every pod lifecycle event before its delivery.
func (m *Metrics) EventGenerated(t relist.EventType) {
	if c, ok := m.relist.events[t]; ok {
		c.Inc()
	}
}

// EventDiscarded is told of every event dropped because the channel was full.
func (m *Metrics) EventDiscarded() { m.relist.discards.Inc() }

// InspectionDone is told of every inspection of a pod that ended.
func (m *Metrics) InspectionDone(ok bool) { m.relist.inspections.inc(ok) }

// CallDone is told of every call to the runtime that ended.
func (m *Metrics) CallDone(c cri.Call) { m.operations.done(c) }

// EventDelay is told of every event of the runtime's how old it was when it
// came.
func (m *Metrics) EventDelay(d time.Duration) { m.eventDelay.Observe(d.Seconds()) }

// ProbeDone is told of every fresh dial that ended.
func (m *Metrics) ProbeDone(p health.Probe) { m.probe.done(p) }

// AcceptFailed is told of every fresh dial that failed because the runtime does
// not accept, with one of the causes that AcceptFailure returns.
func (m *Metrics) AcceptFailed(cause string) { m.accept.failed(cause) }

// resultCounters are the two series of a counter by result.
type resultCounters struct{ success, failure prometheus.Counter }

func newResultCounters(reg prometheus.Registerer, name, help string) resultCounters {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{labelResult})
	reg.MustRegister(v)
	return resultCounters{success: v.WithLabelValues(resultSuccess), failure: v.WithLabelValues(resultFailure)}
}

func (c resultCounters) inc(ok bool) {
	if ok {
		c.success.Inc()
		return
	}
	c.failure.Inc()
}
