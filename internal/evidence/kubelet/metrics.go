package kubelet

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plegd/plegd/internal/health"
)

// The kubelet's metrics that are read.
const (
	lastSeenMetric = "kubelet_pleg_last_seen_seconds" // in seconds of Unix time
	operations     = "kubelet_runtime_operations_"
	workingPods    = "kubelet_working_pods"
	runningPods    = "kubelet_running_pods"
	buildInfo      = "kubernetes_build_info"
)

const (
	// maxMetrics bounds what is read: large nodes have a few MB of metrics. maxLine
	// bounds a line of interest.
	maxMetrics = 32 << 20
	maxLine    = 4 << 10
	// maxValue is beyond all clocks and counts.
	maxValue = 1 << 33
)

// prefixes are what the lines of interest begin with. Parsing MBs of metrics every few
// seconds would be the largest cost of plegd.
var prefixes = [][]byte{[]byte(lastSeenMetric), []byte(operations), []byte(workingPods), []byte(runningPods), []byte(buildInfo)}

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

// readMetrics reads metrics in the text format, to the end, so that the connection can
// be used again.
func readMetrics(r io.Reader) (m metrics, err error) {
	limited := &io.LimitedReader{R: r, N: maxMetrics + 1}
	lines := bufio.NewReaderSize(limited, maxLine)
	for err == nil {
		var line []byte
		line, err = lines.ReadSlice('\n')
		whole := !errors.Is(err, bufio.ErrBufferFull)
		if whole && slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(line, p) }) {
			m.parse(line)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // no metric of interest is that long
			_, err = lines.ReadSlice('\n')
		}
	}
	switch {
	case errors.Is(err, io.EOF) && limited.N == 0:
		return metrics{}, fmt.Errorf("it is larger than %d bytes: see that the URL is the kubelet's", maxMetrics)
	case !errors.Is(err, io.EOF):
		return metrics{}, err
	}
	return m, nil
}

// parse reads one line; one that is no sample is ignored.
func (m *metrics) parse(line []byte) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(append(bytes.TrimRight(line, "\r\n"), '\n')))
	if err != nil {
		return
	}
	for name, family := range families {
		for _, sample := range family.GetMetric() {
			v := sample.GetUntyped().GetValue()
			if math.IsNaN(v) || v > maxValue {
				continue
			}
			labels := map[string]string{}
			for _, l := range sample.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			m.take(name, labels, max(v, 0))
		}
	}
}

func (m *metrics) take(name string, labels map[string]string, v float64) {
	switch name {
	case lastSeenMetric:
		if !m.hasLastSeen && len(labels) == 0 {
			m.hasLastSeen = true
			if v > 0 { // a time that was never set is far below
				whole, fraction := math.Modf(v)
				m.lastSeen = time.Unix(int64(whole), int64(fraction*1e9))
			}
		}
	case workingPods:
		if labels["lifecycle"] == "sync" && labels["config"] == "desired" {
			m.working, m.hasPods = m.working+int(v), true
		}
	case runningPods:
		m.running = int(v)
	case buildInfo:
		m.version = cut(labels["git_version"])
	default:
		m.operation(name[min(len(name), len(operations)):], labels["operation_type"], v)
	}
}

// operation takes one of the counters of an operation.
func (m *metrics) operation(counter, kind string, v float64) {
	o := map[string]*operationMetrics{"run_podsandbox": &m.sandboxes, "create_container": &m.containers}[kind]
	if o == nil {
		return
	}
	switch counter {
	case "total":
		o.total = v
	case "errors_total":
		o.errors = v
	case "duration_seconds_sum":
		o.seconds = v
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
