package exporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/relist"
)

// relistMetrics are those that the relist loop feeds as it goes.
type relistMetrics struct {
	duration, interval, serial prometheus.Histogram
	relists                    resultCounters
	events                     map[relist.EventType]prometheus.Counter
	discards                   prometheus.Counter
	inspections                resultCounters
}

func newRelistMetrics(reg prometheus.Registerer) relistMetrics {
	m := relistMetrics{
		duration: prometheus.NewHistogram(histogramOpts(MetricRelistDuration,
			"Time a relist took, failed ones too. A relist under way is not in here: see "+MetricRelistInFlight+".",
			relistBuckets())),
		interval: prometheus.NewHistogram(histogramOpts(MetricRelistInterval,
			"Time from the start of the last successful relist to the start of the next relist: the period plus what the relist took. Grows through failures.",
			relistBuckets())),
		serial: prometheus.NewHistogram(histogramOpts(MetricRelistSerial,
			"Time a relist would have taken with its calls one after another, as the kubelet makes them. Far above "+MetricRelistDuration+": the kubelet's relist is that much slower than plegd's.",
			relistBuckets())),
		relists: newResultCounters(reg, MetricRelists,
			"Relists that ended, by result. A failed inspection does not fail a relist, a failed list does."),
		events: make(map[relist.EventType]prometheus.Counter),
		discards: prometheus.NewCounter(prometheus.CounterOpts{
			Name: MetricDiscardEvents,
			Help: "Pod lifecycle events dropped because the event channel was full, as kubelet_pleg_discard_events.",
		}),
		inspections: newResultCounters(reg, MetricInspections,
			"Inspections of pods (PodSandboxStatus and ContainerStatus of each pod that changed) that ended, by result."),
	}
	reg.MustRegister(m.duration, m.interval, m.serial, m.discards)

	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricEvents,
		Help: "Pod lifecycle events generated, by type, before delivery. ContainerChanged is internal and never delivered.",
	}, []string{labelType})
	reg.MustRegister(events)
	for _, t := range relist.EventTypes() {
		m.events[t] = events.WithLabelValues(string(t))
	}
	return m
}
