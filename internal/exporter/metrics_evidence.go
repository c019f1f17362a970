package exporter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/health"
)

// evidenceMetrics are counters of what sources of evidence count themselves. A
// source may fail for a while, and the kernel's count begins again with each
// cgroup: exported as they are, they would go back to 0 and then jump. They
// belong to the judge.
type evidenceMetrics struct {
	restarts, throttled prometheus.Counter

	restartsTotal int
	cgroup        *health.Cgroup // the last one that was counted
}

func newEvidenceMetrics(reg prometheus.Registerer) *evidenceMetrics {
	m := &evidenceMetrics{
		restarts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: MetricProcessRestarts,
			Help: "Times that plegd has found another process behind the held connection than before.",
		}),
		throttled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: MetricCPUThrottled,
			Help: "Time that the runtime's cgroup was kept from running by its CPU quota since plegd first looked.",
		}),
	}
	reg.MustRegister(m.restarts, m.throttled)
	return m
}

// Observe adds what the evidence of a judgement counts on top of the one before, and
// the verdict to the history.
// One goroutine may call it.
func (m *Metrics) Observe(s *health.Snapshot) {
	m.evidence.observe(&s.Facts.Evidence)
	m.history.Judged(s.At, s.State)
}

func (m *evidenceMetrics) observe(e *health.Evidence) {
	if p := e.Process; p != nil && p.RestartsTotal > m.restartsTotal {
		m.restarts.Add(float64(p.RestartsTotal - m.restartsTotal))
		m.restartsTotal = p.RestartsTotal
	}
	now, before := e.Cgroup, m.cgroup
	if now == nil || before != nil && !now.At.After(before.At) {
		return
	}
	m.cgroup = now
	var more time.Duration
	switch {
	case before == nil || now.Path != before.Path: // not from before plegd watched it
	case now.ThrottledTotal >= before.ThrottledTotal:
		more = now.ThrottledTotal - before.ThrottledTotal
	default: // the cgroup was made again at the same path
		more = now.ThrottledTotal
	}
	m.throttled.Add(more.Seconds())
}
