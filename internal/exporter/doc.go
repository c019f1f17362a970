// Package exporter exports plegd's state as Prometheus metrics: counters and
// histograms that the other packages feed as things happen, and gauges that are
// computed from one snapshot at each scrape. A label never holds the name or id of
// a pod or container, and a node has at most 200 series.
package exporter
