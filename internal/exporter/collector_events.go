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
	inUse, errors, opened, lapses, received *family
	missed, duplicates, outOfOrder, ignored *family
}

func newEventsCollector(fs *families) *eventsCollector {
	return &eventsCollector{
		inUse: fs.gauge(MetricEventedInUse,
			"1 while plegd uses an event stream of the runtime, as --events says; 0 without --events, and while it relies on relists alone."),
		errors: fs.counter(MetricEventedErrors,
			"Event streams that failed, as kubelet_evented_pleg_connection_error_count. After five the relist loop uses its own period and threshold until a stream lasts again."),
		opened: fs.counter(MetricEventedSuccess,
			"Event streams opened, as kubelet_evented_pleg_connection_success_count. plegd opens one for each --events-lease."),
		lapses: fs.counter(MetricEventedLapses,
			"Times without an open event stream although none had failed: plegd or the runtime was paused. A relist finds what happened meanwhile."),
		received: fs.counter(MetricEventedEvents,
			"Events that the runtime sent, by its type, each counted once.", labelType),
		missed: fs.counter(MetricEventedMissed,
			"Changes that a relist found and that no event reported within two periods. Growing without failures, lapses and overflow: the runtime's events cannot be trusted."),
		duplicates: fs.counter(MetricEventedDuplicates,
			"Copies of events that were dropped. A few are usual: two leases overlap."),
		outOfOrder: fs.counter(MetricEventedOutOfOrder,
			"Events that were made before an event of the same pod that had come earlier."),
		ignored: fs.counter(MetricEventedIgnored,
			"Events without use, by cause: without the sandbox's status, already known from a newer list, of a pod that is gone, or too many at once.", labelCause),
	}
}

func (c *eventsCollector) collect(e *health.Events) {
	if e == nil {
		e = &health.Events{}
	}
	c.inUse.setBool(e.Used())
	c.errors.set(float64(e.Errors))
	c.opened.set(float64(e.Opened))
	c.lapses.set(float64(e.Lapses))
	for kind := range cri.NumEventTypes {
		name := cri.EventType(kind).String()
		c.received.set(float64(e.Received[name]), name)
	}
	c.missed.set(float64(e.Missed))
	c.duplicates.set(float64(e.Duplicates))
	c.outOfOrder.set(float64(e.OutOfOrder))
	c.ignored.set(float64(e.Known), ignoredKnown)
	c.ignored.set(float64(e.NoStatus), ignoredNoStatus)
	c.ignored.set(float64(e.Dropped), ignoredDropped)
	c.ignored.set(float64(e.Gone), ignoredGone)
}

// newEventDelay is the histogram of the events' delay.
func newEventDelay(reg prometheus.Registerer) prometheus.Histogram {
	h := prometheus.NewHistogram(histogramOpts(MetricEventedLatency,
		"Age of an event when plegd receives it, as kubelet_evented_pleg_connection_latency_seconds.",
		eventBuckets()))
	reg.MustRegister(h)
	return h
}
