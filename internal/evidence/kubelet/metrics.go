package kubelet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plegd/plegd/internal/health"
)

const (
	lastSeenMetric = "kubelet_pleg_last_seen_seconds" // in seconds of Unix time
	operations     = "kubelet_runtime_operations_"

	// maxMetrics bounds an answer: large nodes have a few MB of metrics. maxLine bounds
	// a line.
	maxMetrics = 32 << 20
	maxLine    = 64 << 10
	// maxValue is beyond all clocks and counts.
	maxValue = 1 << 33
)

// prefixes are what the lines of interest begin with. To parse MBs of metrics every few
// seconds would be the largest cost of plegd.
var prefixes = [][]byte{
	[]byte(lastSeenMetric), []byte(operations + "total"), []byte(operations + "errors_total"),
	[]byte(operations + "duration_seconds_sum"), []byte("kubelet_working_pods"), []byte("kubelet_running_pods"),
	[]byte("kubernetes_build_info"),
}

// operationMetrics are the kubelet's counters of one operation.
type operationMetrics struct{ total, errors, seconds float64 }

// metrics are the metrics of interest.
type metrics struct {
	// lastSeen is zero where the kubelet has never seen its PLEG; hasLastSeen is false
	// where the metric is missing.
	lastSeen    time.Time
	hasLastSeen bool
	// sandboxes and containers are its calls that create them.
	sandboxes, containers operationMetrics
	// working counts the pods that are to run, running those with a running sandbox;
	// hasPods is false where a kubelet does not count them (before 1.27).
	working, running int
	hasPods          bool
	version          string
}

// parseMetrics reads metrics in the text format.
func parseMetrics(r io.Reader) (m metrics, err error) {
	limited := &io.LimitedReader{R: r, N: maxMetrics}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxLine)
	var interesting bytes.Buffer
	for lines.Scan() {
		line := lines.Bytes()
		if slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(line, p) }) {
			interesting.Write(line)
			interesting.WriteByte('\n')
		}
	}
	if err := lines.Err(); err != nil {
		return metrics{}, err
	}
	if limited.N == 0 {
		return metrics{}, fmt.Errorf("it is larger than %d bytes: see that the URL is the kubelet's", maxMetrics)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&interesting)
	if err != nil {
		return metrics{}, err
	}
	for name, family := range families {
		for _, sample := range family.GetMetric() {
			if v := sample.GetUntyped().GetValue(); !math.IsNaN(v) && v < maxValue {
				labels := map[string]string{}
				for _, l := range sample.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				m.take(name, labels, max(v, 0))
			}
		}
	}
	return m, nil
}

func (m *metrics) take(name string, labels map[string]string, v float64) {
	of := map[string]*operationMetrics{"run_podsandbox": &m.sandboxes, "create_container": &m.containers}
	operation := of[labels["operation_type"]]
	if operation == nil {
		operation = &operationMetrics{} // of no interest
	}
	switch name {
	case lastSeenMetric:
		m.hasLastSeen = true
		if v > 0 { // a time that was never set is far below
			m.lastSeen = time.UnixMilli(int64(v * 1e3))
		}
	case "kubelet_working_pods":
		if labels["lifecycle"] == "sync" && labels["config"] == "desired" {
			m.working, m.hasPods = m.working+int(v), true
		}
	case "kubelet_running_pods":
		m.running = int(v)
	case "kubernetes_build_info":
		m.version = cut(labels["git_version"])
	case operations + "total":
		operation.total = v
	case operations + "errors_total":
		operation.errors = v
	case operations + "duration_seconds_sum":
		operation.seconds = v
	}
}

// startCounter follows the kubelet's calls of one operation.
type startCounter struct {
	known  bool
	before operationMetrics
	calls  *health.StartCalls
}

// next takes the counters of a moment and returns the calls that have failed since one
// last succeeded, nil for none. Counters that fall are those of another kubelet.
func (c *startCounter) next(now operationMetrics, at time.Time) *health.StartCalls {
	before := c.before
	known := c.known && now.total >= before.total && now.errors >= before.errors
	c.known, c.before = true, now
	ended, failed := now.total-before.total, now.errors-before.errors
	switch {
	case !known, ended > failed:
		c.calls = nil
	case failed > 0:
		calls := health.StartCalls{Since: at}
		if c.calls != nil {
			calls = *c.calls
		}
		calls.Errors, calls.LastError = calls.Errors+int(failed), at
		calls.Longest = max(calls.Longest, time.Duration((now.seconds-before.seconds)/failed*float64(time.Second)))
		c.calls = &calls
	}
	return c.calls
}
