package exporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
)

// The causes why an event was not used, as MetricEventedIgnored labels them.
const (
	ignoredNoStatus = "no_sandbox_status"
	ignoredKnown    = "already_known"
	ignoredGone     = "pod_gone"
	ignoredDropped  = "overflow"
)

// eventsCollector makes the metrics of the runtime's event stream. All but the
// first are counters, at 0 where plegd listens to no events.
type eventsCollector struct {
	inUse, errors, opened, lapses, received *prometheus.Desc
	missed, duplicates, outOfOrder, ignored *prometheus.Desc
}

func newEventsCollector() *eventsCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &eventsCollector{
		inUse: desc(MetricEventedInUse,
			"1 while plegd uses an event stream of the runtime, as --events says; 0 without --events, and while it relies on relists alone."),
		errors: desc(MetricEventedErrors,
			"Event streams that failed, as kubelet_evented_pleg_connection_error_count. After five the relist loop uses its own period and threshold until a stream lasts again."),
		opened: desc(MetricEventedSuccess,
			"Event streams opened, as kubelet_evented_pleg_connection_success_count. plegd opens one for each --events-lease."),
		lapses: desc(MetricEventedLapses,
			"Times without an open event stream although none had failed: plegd or the runtime was paused. A relist finds what happened meanwhile."),
		received: desc(MetricEventedEvents,
			"Events that the runtime sent, by its type, each counted once.", labelType),
		missed: desc(MetricEventedMissed,
			"Changes that a relist found and that no event reported within two periods. Growing without failures, lapses and overflow: the runtime's events cannot be trusted."),
		duplicates: desc(MetricEventedDuplicates,
			"Copies of events that were dropped. A few are usual: two leases overlap."),
		outOfOrder: desc(MetricEventedOutOfOrder,
			"Events that were made before an event of the same pod that had come earlier."),
		ignored: desc(MetricEventedIgnored,
			"Events without use, by cause: without the sandbox's status, already known from a newer list, of a pod that is gone, or too many at once.", labelCause),
	}
}

func (c *eventsCollector) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.inUse, c.errors, c.opened, c.lapses, c.received, c.missed, c.duplicates, c.outOfOrder, c.ignored} {
		ch <- d
	}
}

func (c *eventsCollector) collect(g gauges, e *health.Events) {
	if e == nil {
		e = &health.Events{}
	}
	g.sendBool(c.inUse, e.Used())
	g.sendCounter(c.errors, float64(e.Errors))
	g.sendCounter(c.opened, float64(e.Opened))
	g.sendCounter(c.lapses, float64(e.Lapses))
	for kind := range cri.NumEventTypes {
		name := cri.EventType(kind).String()
		g.sendCounter(c.received, float64(e.Received[name]), name)
	}
	g.sendCounter(c.missed, float64(e.Missed))
	g.sendCounter(c.duplicates, float64(e.Duplicates))
	g.sendCounter(c.outOfOrder, float64(e.OutOfOrder))
	for cause, n := range map[string]uint64{
		ignoredNoStatus: e.NoStatus, ignoredKnown: e.Known, ignoredGone: e.Gone, ignoredDropped: e.Dropped,
	} {
		g.sendCounter(c.ignored, float64(n), cause)
	}
}

// newEventDelay is the histogram of the events' delay.
func newEventDelay(reg prometheus.Registerer) prometheus.Histogram {
	h := prometheus.NewHistogram(histogramOpts(MetricEventedLatency,
		"Age of an event when plegd receives it, as kubelet_evented_pleg_connection_latency_seconds.",
		eventBuckets()))
	reg.MustRegister(h)
	return h
}
