package exporter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plegd/plegd/internal/cri"
)

// codeOther is the grpc_code of every code without a series of its own.
const codeOther = "other"

// errorCodes lists the codes that have a series of their own: those that tell
// the faults apart.
func errorCodes() []cri.Code {
	return []cri.Code{cri.CodeUnavailable, cri.CodeDeadlineExceeded, cri.CodeResourceExhausted,
		cri.CodeUnimplemented, cri.CodeUnknown}
}

// operationMetrics are those that each call to the runtime feeds. The map is
// never written to after newOperationMetrics.
type operationMetrics map[cri.Operation]*operationSeries

// operationSeries are the series of one operation.
type operationSeries struct {
	total    prometheus.Counter
	duration prometheus.Observer
	errors   map[cri.Code]prometheus.Counter
	other    prometheus.Counter
}

func newOperationMetrics(reg prometheus.Registerer) operationMetrics {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricOperations,
		Help: "Calls that plegd made to the runtime, by the kubelet's operation type. Counted when they end: a call that hangs shows in " + MetricRelistInFlight + ".",
	}, []string{labelOperation})
	duration := prometheus.NewHistogramVec(histogramOpts(MetricOperationsDuration,
		"Time a call to the runtime took, failed ones too.", prometheus.DefBuckets), []string{labelOperation})
	failed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: MetricOperationsErrors,
		Help: "Calls to the runtime that failed, by gRPC code. DeadlineExceeded: it hangs. Unavailable: it is gone. ResourceExhausted: its list is too large.",
	}, []string{labelOperation, labelCode})
	reg.MustRegister(total, duration, failed)

	m := make(operationMetrics)
	for _, op := range cri.Operations() {
		s := &operationSeries{
			total:    total.WithLabelValues(string(op)),
			duration: duration.WithLabelValues(string(op)),
			errors:   make(map[cri.Code]prometheus.Counter),
			other:    failed.WithLabelValues(string(op), codeOther),
		}
		for _, code := range errorCodes() {
			s.errors[code] = failed.WithLabelValues(string(op), string(code))
		}
		m[op] = s
	}
	return m
}

// done counts a call. An operation that cri.Operations does not list is left
// out: a series that was not there from the start would break rate().
func (m operationMetrics) done(c cri.Call) {
	s, ok := m[c.Operation]
	if !ok {
		return
	}
	s.total.Inc()
	s.duration.Observe(c.Duration.Seconds())
	if c.Code == cri.CodeOK {
		return
	}
	if counter, ok := s.errors[c.Code]; ok {
		counter.Inc()
		return
	}
	s.other.Inc()
}
