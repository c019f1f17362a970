package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// relistBuckets returns the classic buckets, in seconds, of everything that a
// relist does. They reach below the kubelet's (110 pods relist in less than
// 5 ms), split the second around the period of 1 s, where nearly every interval
// falls, and go on to where a hang shows: the RPC timeout of 2 min, the
// threshold of 3 min, and beyond.
func relistBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 1.1, 1.5, 2.5, 5, 10, 30, 60, 120, 180, 240}
}

// probeBuckets returns the classic buckets, in seconds, of a fresh dial: each of its
// stages is given up after a second, and a node has few series to spare.
func probeBuckets() []float64 { return []float64{.001, .005, .025, .1, .5, 1} }

// eventBuckets returns those of the age of events.
func eventBuckets() []float64 { return []float64{.005, .025, .1, .5, 1, 5} }

// histogramOpts returns a histogram with the classic buckets given and a native
// one beside it. A native histogram has buckets 10 % apart, at most 160 of
// them; when it runs out of them it starts again, at most once an hour.
func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name:                            name,
		Help:                            help,
		Buckets:                         buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}
}
