package exporter

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/health"
)

// evidenceCollector makes the metrics of what the node says from outside the
// calls.
type evidenceCollector struct {
	queueLength, queueLimit         *prometheus.Desc
	openFDs, maxFDs, start, threads *prometheus.Desc
	up, duration                    *prometheus.Desc
	kubeletUp, kubeletLastSeen      *prometheus.Desc
}

func newEvidenceCollector() *evidenceCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &evidenceCollector{
		queueLength: desc(MetricQueueLength,
			"Pending connections in the accept queue of the runtime's socket. Absent while nobody listens there, or where the kernel does not report it."),
		queueLimit: desc(MetricQueueLimit,
			"Accept queue limit (listen backlog). Absent as "+MetricQueueLength+"."),
		openFDs: desc(MetricProcessOpenFDs,
			"File descriptors that the process behind the held connection has open. At "+MetricProcessMaxFDs+" it can accept no connection, which it does not log. Absent while there is no such process."),
		maxFDs: desc(MetricProcessMaxFDs,
			"Soft limit of its open file descriptors (RLIMIT_NOFILE)."),
		start: desc(MetricProcessStart,
			"Unix time at which the process behind the held connection was started."),
		threads: desc(MetricProcessThreads,
			"Threads of the process behind the held connection, by state. All in T: it is stopped. Some in D all the time: it waits for the disk.", labelState),
		up: desc(MetricEvidenceUp,
			"1 while a source of evidence answers, 0 while it fails: a reason that needs it is not found then. Of plegd itself: state, its state directory can be written; web and control, its addresses and control socket are served. Absent for what is not configured or has nothing to look at.", labelSource),
		duration: desc(MetricEvidenceDuration,
			"Time that a source of evidence took for its last answer.", labelSource),
		kubeletUp: desc(MetricKubeletUp,
			"1 while the kubelet's healthz is good, 0 while it fails, hangs or is refused. Absent until it has been seen for the first time."),
		kubeletLastSeen: desc(MetricKubeletLastSeen,
			"The kubelet's own kubelet_pleg_last_seen_seconds. Absent unless --kubelet-metrics-url is given and answers."),
	}
}

func (c *evidenceCollector) describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.queueLength, c.queueLimit, c.openFDs, c.maxFDs, c.start, c.threads,
		c.up, c.duration, c.kubeletUp, c.kubeletLastSeen,
	} {
		ch <- d
	}
}

func (c *evidenceCollector) collect(g gauges, e *health.Evidence) {
	if q := e.Queue; q != nil && q.Listening {
		g.send(c.queueLength, float64(q.Length))
		g.send(c.queueLimit, float64(q.Limit))
	}
	if p := e.Process; p != nil && p.Alive {
		c.collectProcess(g, p)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Sources)) {
		s := e.Sources[name]
		g.sendBool(c.up, s.Up, name)
		if s.Duration > 0 { // what is not asked takes no time: plegd's own addresses
			g.send(c.duration, s.Duration.Seconds(), name)
		}
	}
	if k := e.Kubelet; k != nil {
		g.sendBool(c.kubeletUp, k.OK)
		if !k.LastSeen.IsZero() {
			g.send(c.kubeletLastSeen, unixSeconds(k.LastSeen))
		}
	}
}

func (c *evidenceCollector) collectProcess(g gauges, p *health.Process) {
	if p.OpenFDs >= 0 {
		g.send(c.openFDs, float64(p.OpenFDs))
	}
	if p.MaxFDs >= 0 {
		g.send(c.maxFDs, float64(p.MaxFDs))
	}
	if !p.Start.IsZero() {
		g.send(c.start, unixSeconds(p.Start))
	}
	if p.Threads != nil {
		for _, state := range health.ThreadStates() {
			g.send(c.threads, float64(p.Threads[state]), state)
		}
	}
}
