package exporter

import (
	"maps"
	"slices"

	"github.com/plegd/plegd/internal/health"
)

// evidenceCollector makes the metrics of what the node says from outside the
// calls.
type evidenceCollector struct {
	queueLength, queueLimit         *family
	openFDs, maxFDs, start, threads *family
	up, duration                    *family
	kubeletUp, kubeletLastSeen      *family
}

func newEvidenceCollector(fs *families) *evidenceCollector {
	return &evidenceCollector{
		queueLength: fs.gauge(MetricQueueLength,
			"Pending connections in the accept queue of the runtime's socket. Absent while nobody listens there, or where the kernel does not report it."),
		queueLimit: fs.gauge(MetricQueueLimit,
			"Accept queue limit (listen backlog). Absent as "+MetricQueueLength+"."),
		openFDs: fs.gauge(MetricProcessOpenFDs,
			"File descriptors that the process behind the held connection has open. At "+MetricProcessMaxFDs+" it can accept no connection, which it does not log. Absent while there is no such process."),
		maxFDs: fs.gauge(MetricProcessMaxFDs,
			"Soft limit of its open file descriptors (RLIMIT_NOFILE)."),
		start: fs.gauge(MetricProcessStart,
			"Unix time at which the process behind the held connection was started."),
		threads: fs.gauge(MetricProcessThreads,
			"Threads of the process behind the held connection, by state. All in T: it is stopped. Some in D all the time: it waits for the disk.", labelState),
		up: fs.gauge(MetricEvidenceUp,
			"1 while a source of evidence answers, 0 while it fails: a reason that needs it is not found then. Of plegd itself: state, its state directory can be written; web and control, its addresses and control socket are served. Absent for what is not configured or has nothing to look at.", labelSource),
		duration: fs.gauge(MetricEvidenceDuration,
			"Time that a source of evidence took for its last answer.", labelSource),
		kubeletUp: fs.gauge(MetricKubeletUp,
			"1 while the kubelet's healthz is good, 0 while it fails, hangs or is refused. Absent until it has been seen for the first time."),
		kubeletLastSeen: fs.gauge(MetricKubeletLastSeen,
			"The kubelet's own kubelet_pleg_last_seen_seconds. Absent unless --kubelet-metrics-url is given and answers."),
	}
}

func (c *evidenceCollector) collect(e *health.Evidence) {
	if q := e.Queue; q != nil && q.Listening {
		c.queueLength.set(float64(q.Length))
		c.queueLimit.set(float64(q.Limit))
	}
	if p := e.Process; p != nil && p.Alive {
		c.collectProcess(p)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Sources)) {
		s := e.Sources[name]
		c.up.setBool(s.Up, name)
		if s.Duration > 0 { // what is not asked takes no time: plegd's own addresses
			c.duration.set(s.Duration.Seconds(), name)
		}
	}
	if k := e.Kubelet; k != nil {
		c.kubeletUp.setBool(k.OK)
		if !k.LastSeen.IsZero() {
			c.kubeletLastSeen.set(unixSeconds(k.LastSeen))
		}
	}
}

func (c *evidenceCollector) collectProcess(p *health.Process) {
	if p.OpenFDs >= 0 {
		c.openFDs.set(float64(p.OpenFDs))
	}
	if p.MaxFDs >= 0 {
		c.maxFDs.set(float64(p.MaxFDs))
	}
	if !p.Start.IsZero() {
		c.start.set(unixSeconds(p.Start))
	}
	if p.Threads != nil {
		for _, state := range health.ThreadStates() {
			c.threads.set(float64(p.Threads[state]), state)
		}
	}
}
