package evidence

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// The kubelet's metrics that are read.
const (
	// kubeletLastSeen is its own last seen, in whole seconds of Unix time.
	kubeletLastSeen = "kubelet_pleg_last_seen_seconds"
	// kubeletOperations is what the metrics of its calls to the runtime begin with.
	kubeletOperations = "kubelet_runtime_operations_"
	// kubeletWorkingPods are the pods that it works on, kubeletRunningPods those
	// with a sandbox that runs.
	kubeletWorkingPods = "kubelet_working_pods"
	kubeletRunningPods = "kubelet_running_pods"
)

const (
	// maxMetrics is the most bytes of a kubelet's metrics that are read: large
	// nodes have a few MB of them.
	maxMetrics = 32 << 20
	// maxMetricsLine is the most bytes of a line that are looked at.
	maxMetricsLine = 4 << 10
	// maxMetric is beyond all clocks and counts.
	maxMetric = 1 << 33
)

// kubeletPrefixes are what the lines of interest begin with.
var kubeletPrefixes = [][]byte{[]byte(kubeletLastSeen), []byte(kubeletOperations), []byte(kubeletWorkingPods), []byte(kubeletRunningPods)}

// kubeletMetrics are the metrics of interest.
type kubeletMetrics struct {
	// lastSeen is zero when the kubelet has never seen its PLEG; hasLastSeen is false
	// where the metric is missing.
	lastSeen    time.Time
	hasLastSeen bool
	// sandboxes and containers are its calls to start them.
	sandboxes, containers operationMetrics
	// working counts the pods that are to run, running those with a sandbox that
	// runs; hasPods is false where a kubelet does not count them (before 1.27).
	working, running int
	hasPods          bool
}

// operationMetrics are the kubelet's counters of one operation.
type operationMetrics struct{ total, errors, seconds float64 }

// readKubeletMetrics reads metrics in the text format. It looks for a few lines
// only: taking MBs of metrics apart every few seconds would be plegd's largest
// cost. It reads on to the end, so that the connection can be used again.
func readKubeletMetrics(r io.Reader) (m kubeletMetrics, err error) {
	limited := &io.LimitedReader{R: r, N: maxMetrics + 1}
	lines := bufio.NewReaderSize(limited, maxMetricsLine)
	for {
		line, err := lines.ReadSlice('\n')
		m.take(line)
		for errors.Is(err, bufio.ErrBufferFull) { // no metric of interest is that long
			_, err = lines.ReadSlice('\n')
		}
		switch {
		case errors.Is(err, io.EOF) && limited.N == 0:
			return kubeletMetrics{}, fmt.Errorf("it is larger than %d bytes: see that the URL is the kubelet's", maxMetrics)
		case errors.Is(err, io.EOF):
			return m, nil
		case err != nil:
			return kubeletMetrics{}, err
		}
	}
}

// take takes what a line says, if it is one of interest.
func (m *kubeletMetrics) take(line []byte) {
	if !slices.ContainsFunc(kubeletPrefixes, func(p []byte) bool { return bytes.HasPrefix(line, p) }) {
		return
	}
	name, labels, v, ok := parseMetric(line)
	if !ok {
		return
	}
	v = max(v, 0)
	if suffix, found := bytes.CutPrefix(name, []byte(kubeletOperations)); found {
		m.operation(string(suffix), labels, v)
		return
	}
	switch string(name) {
	case kubeletLastSeen:
		if !m.hasLastSeen && len(labels) == 0 {
			m.hasLastSeen = true
			if v > 0 { // a time that was never set is far below
				whole, fraction := math.Modf(v)
				m.lastSeen = time.Unix(int64(whole), int64(fraction*1e9))
			}
		}
	case kubeletWorkingPods:
		if label(labels, "lifecycle") == "sync" && label(labels, "config") == "desired" {
			m.working, m.hasPods = m.working+int(v), true
		}
	case kubeletRunningPods:
		m.running = int(v)
	}
}

// operation takes one of the counters of an operation.
func (m *kubeletMetrics) operation(counter string, labels []byte, v float64) {
	var o *operationMetrics
	switch label(labels, "operation_type") {
	case "run_podsandbox":
		o = &m.sandboxes
	case "create_container":
		o = &m.containers
	default:
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

// parseMetric reads one line: the name, perhaps labels, the value and perhaps a
// timestamp.
func parseMetric(line []byte) (name, labels []byte, v float64, ok bool) {
	end := bytes.IndexAny(line, "{ \t")
	if end < 0 {
		return nil, nil, 0, false
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		i := bytes.IndexByte(rest, '}') // the values of these labels hold none
		if i < 0 {
			return nil, nil, 0, false
		}
		labels, rest = rest[1:i], rest[i+1:]
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 || len(fields) > 2 || rest[0] != ' ' && rest[0] != '\t' {
		return nil, nil, 0, false
	}
	v, err := strconv.ParseFloat(string(fields[0]), 64)
	return name, labels, v, err == nil && v <= maxMetric // not NaN
}

// label returns the value of a label, "" where it is missing.
func label(labels []byte, name string) string {
	for pair := range bytes.SplitSeq(labels, []byte(",")) {
		key, value, _ := bytes.Cut(pair, []byte("="))
		if string(key) == name {
			return string(bytes.Trim(value, `"`))
		}
	}
	return ""
}

// startCounter follows the kubelet's calls of one operation.
type startCounter struct {
	known  bool
	before operationMetrics
	calls  *health.StartCalls
}

// next takes the counters of a moment and returns the calls that have failed since
// one last succeeded, nil for none. Counters that fall are those of another kubelet.
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
