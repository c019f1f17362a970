package exporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/health"
)

// The causes of a failed accept, as MetricAcceptFailures labels them.
const (
	AcceptFDExhausted = "fd_exhausted"
	AcceptQueueFull   = "queue_full"
	AcceptStalled     = "stalled"
)

func acceptCauses() []string { return []string{AcceptFDExhausted, AcceptQueueFull, AcceptStalled} }

// AcceptFailure tells why the runtime did not accept the connection of a fresh
// dial, by the evidence of the moment; "" when the dial succeeded, or failed for
// another reason. No runtime tells this itself: containerd and CRI-O swallow the
// error of their accept.
func AcceptFailure(p health.Probe, e *health.Evidence) string {
	switch {
	case p.OK:
		return ""
	case p.Stage == health.StageConnect && p.Cause == health.CauseQueueFull:
	case p.Stage == health.StageSettings && p.Cause == health.CauseTimeout:
		// Connected by the kernel, and silent. Where the queue has been empty
		// since, it was accepted, and is only not answered.
		if q := e.Queue; q != nil && q.Listening && q.Length == 0 && q.At.After(p.At) {
			return ""
		}
	default:
		return ""
	}
	// A full queue is what connect(2) itself said. Why it filled up may have been
	// another cause, and was counted as that before.
	switch proc := e.Process; {
	case p.Stage == health.StageConnect:
		return AcceptQueueFull
	case proc != nil && proc.Alive && proc.MaxFDs > 0 && proc.OpenFDs >= proc.MaxFDs:
		return AcceptFDExhausted
	default:
		return AcceptStalled
	}
}

// acceptMetrics count the failed accepts by cause. The map is never written to
// after newAcceptMetrics.
type acceptMetrics map[string]prometheus.Counter

func newAcceptMetrics(reg prometheus.Registerer) acceptMetrics {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricAcceptFailures,
		Help: "Fresh dials that failed because the runtime does not accept. fd_exhausted: it has no file descriptor left; queue_full: its accept queue is full; stalled: neither. Such a dial stays in the queue, so plegd makes one a minute then.",
	}, []string{labelCause})
	reg.MustRegister(v)
	m := make(acceptMetrics)
	for _, cause := range acceptCauses() {
		m[cause] = v.WithLabelValues(cause)
	}
	return m
}

// failed counts one; a cause without a series is left out, as a series that was
// not there from the start would break rate().
func (m acceptMetrics) failed(cause string) {
	if c, ok := m[cause]; ok {
		c.Inc()
	}
}
