package kubelet

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/plain"
)

const (
	lastSeenMetric = "kubelet_pleg_last_seen_seconds" // in seconds of Unix time
	operations     = "kubelet_runtime_operations_"
	workingPods    = "kubelet_working_pods"
	runningPods    = "kubelet_running_pods"

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
	[]byte(operations + "duration_seconds_sum"), []byte(workingPods), []byte(runningPods),
	[]byte("kubernetes_build_info"),
}

// parseMetrics reads metrics in the text format: those of interest by their name, with the
// operation behind it where there is one, and the kubelet's version. The pods of
// kubelet_working_pods are those that are to run.
func parseMetrics(r io.Reader) (values map[string]float64, version string, err error) {
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
		return nil, "", err
	}
	if limited.N == 0 {
		return nil, "", fmt.Errorf("it is larger than %d bytes: see that the URL is the kubelet's", maxMetrics)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&interesting)
	values = map[string]float64{}
	for name, family := range families {
		for _, sample := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range sample.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			v, wanted := sample.GetUntyped().GetValue(), labels["lifecycle"] == "sync" && labels["config"] == "desired"
			if !math.IsNaN(v) && v < maxValue && (name != workingPods || wanted) {
				values[name+labels["operation_type"]] += max(v, 0)
			}
			version = cmp.Or(version, plain.Cut(labels["git_version"]))
		}
	}
	return values, version, err
}

// startCalls returns the kubelet's calls of an operation that have failed since one last
// succeeded, nil for none: last as of the sample before, whose metrics before are. Counters
// that fall are those of another kubelet.
func startCalls(
	last *facts.StartCalls, operation string, before, now map[string]float64, at time.Time,
) *facts.StartCalls {
	rise := func(counter string) float64 {
		return now[operations+counter+operation] - before[operations+counter+operation]
	}
	ended, failed := rise("total"), rise("errors_total")
	switch {
	case before == nil, ended < 0, failed < 0, ended > failed:
		return nil
	case failed == 0:
		return last
	}
	calls := *cmp.Or(last, &facts.StartCalls{Since: at})
	calls.Errors, calls.LastError = calls.Errors+int(failed), at
	calls.Longest = max(calls.Longest, time.Duration(rise("duration_seconds_sum")/failed*float64(time.Second)))
	return &calls
}
