// Package exporter exports what plegd knows as Prometheus metrics.
//
// Collector makes the gauges from one snapshot for each scrape. Metrics holds
// the counters and histograms that the relist loop and the probes feed; it uses
// atomics only, so that it never delays them.
package exporter
