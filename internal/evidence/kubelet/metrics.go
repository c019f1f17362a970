package kubelet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
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
	relistCount    = "kubelet_pleg_relist_duration_seconds_count"
	relistSum      = "kubelet_pleg_relist_duration_seconds_sum"
	operations     = "kubelet_runtime_operations_"
	workingPods    = "kubelet_working_pods"
	endingPods     = workingPods + " terminating" // the key of those that the kubelet ends
	runningPods    = "kubelet_running_pods"
	apiRequests    = "rest_client_requests_total"

	// maxMetrics bounds an answer in bytes: large nodes have a few MB of metrics. maxLine
	// bounds a line, and maxWanted the lines of interest: a kubelet has less than 64 KiB.
	maxMetrics = 32 << 20
	maxLine    = 64 << 10
	maxWanted  = 512 << 10
	// slowCall is the mean time of a call for a pod from which these are slow: a helper runs for less than a second.
	slowCall = 2 * time.Second
	// maxValue is beyond all clocks and counts.
	maxValue = 1 << 33
)

// sampleMetrics reads the metrics if their URL is configured. A failure is an error only if
// healthz is not configured.
func (k *Client) sampleMetrics(ctx context.Context, out *facts.Kubelet) error {
	if k.metrics == nil {
		return nil
	}
	err := k.readMetrics(ctx, out)
	switch {
	case err == nil:
		k.opts.Seen = true
	case k.healthz == nil:
		return err
	default:
		out.Detail = plain.Cut(err.Error())
	}
	return nil
}

// readMetrics reads the kubelet's own last seen and the results of its calls that start pods and
// of its requests to the API server.
func (k *Client) readMetrics(ctx context.Context, out *facts.Kubelet) error {
	read, err := k.getMetrics(ctx)
	if err != nil {
		_, why := k.explain(err)
		return fmt.Errorf("asking %s: %w", k.opts.MetricsURL, why)
	}
	readAt := time.Now()
	k.relisted = relistStart(k.relisted, k.values, read.values, readAt)
	seen := read.values[lastSeenMetric] // an unset time is far below 0
	switch {
	case k.lastProcess != nil && k.lastProcess.EventedPLEG:
		out.LastSeen = k.relisted // the metric is the time of the last health check (pleg/evented.go, Healthy)
	case seen > 0:
		// Converted to the monotonic clock: a later step of the wall clock must not make the
		// kubelet look old.
		out.LastSeen = readAt.Add(-max(0, readAt.Round(0).Sub(time.UnixMilli(int64(seen*1e3)))))
	}
	out.Status = startCalls(k.last.Status, "status", k.values, read.values, readAt)
	out.Sandboxes = startCalls(k.last.Sandboxes, "run_podsandbox", k.values, read.values, readAt)
	out.Containers = startCalls(k.last.Containers, "create_container", k.values, read.values, readAt)
	out.Stops = startCalls(k.last.Stops, "stop_podsandbox", k.values, read.values, readAt)
	out.Removals = startCalls(k.last.Removals, "remove_podsandbox", k.values, read.values, readAt)
	out.API = apiCalls(k.last.API, k.values, read.values, readAt)
	out.SlowCallAt = k.last.SlowCallAt
	if hasSlowCall(k.values, read.values) {
		out.SlowCallAt = readAt
	}
	out.Version = read.version
	out.EndingPods = int(read.values[endingPods])
	working, given := read.values[workingPods]
	if given { // not before 1.27
		waiting := max(0, int(working-read.values[runningPods]))
		out.WaitingPods = &waiting
		out.NoStartSince = noStartSince(k.last.NoStartSince, waiting, k.values, read.values, readAt)
	}
	k.values = read.values
	k.last = *out
	return nil
}

// getMetrics requests and parses the kubelet's metrics.
func (k *Client) getMetrics(ctx context.Context) (metrics, error) {
	resp, err := k.metrics.get(ctx)
	if err != nil {
		return metrics{}, err
	}
	defer resp.Body.Close()
	if err := statusError(resp); err != nil {
		return metrics{}, err
	}
	read, err := parseMetrics(resp.Body)
	if err != nil {
		return metrics{}, err
	}
	if _, given := read.values[lastSeenMetric]; !given {
		return metrics{}, fmt.Errorf("no %s in it: is this a kubelet's /metrics?", lastSeenMetric)
	}
	return read, nil
}

// prefixes select the lines that are parsed: parsing MBs of metrics every few seconds would be
// the largest cost of plegd. Without its TYPE line each sample is untyped.
var prefixes = [][]byte{
	[]byte(lastSeenMetric), []byte(relistCount), []byte(relistSum), []byte(operations + "total"), []byte(operations + "errors_total"),
	[]byte(operations + "duration_seconds_sum"), []byte(workingPods), []byte(runningPods),
	[]byte("kubernetes_build_info"), []byte(apiRequests),
}

// metrics are those of interest by their name, with the operation or the HTTP code behind it
// where there is one, and the kubelet's version.
type metrics struct {
	values  map[string]float64
	version string
}

// parseMetrics reads metrics in the text format. The pods of kubelet_working_pods are those
// that are to run, and under endingPods those that end.
func parseMetrics(r io.Reader) (metrics, error) {
	wanted, err := wantedLines(r)
	if err != nil {
		return metrics{}, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(wanted)
	out := metrics{values: map[string]float64{}}
	for name, family := range families {
		for _, sample := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range sample.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			out.add(name, labels, sample.GetUntyped().GetValue())
		}
	}
	return out, err
}

func (m *metrics) add(name string, labels map[string]string, value float64) {
	m.version = cmp.Or(m.version, plain.Cut(labels["git_version"]))
	desired := labels["lifecycle"] == "sync" && labels["config"] == "desired"
	key := name + labels["operation_type"] + labels["code"]
	if name == workingPods && labels["lifecycle"] == "terminating" {
		key = endingPods
	}
	if math.IsNaN(value) || value >= maxValue || key == workingPods && !desired {
		return
	}
	m.values[key] += max(value, 0)
}

// wantedLines returns the lines of interest.
func wantedLines(r io.Reader) (*bytes.Buffer, error) {
	limited := &io.LimitedReader{R: r, N: maxMetrics}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxLine)
	wanted := &bytes.Buffer{}
	for lines.Scan() {
		line := lines.Bytes()
		if !slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(line, p) }) {
			continue
		}
		if wanted.Len()+len(line) >= maxWanted {
			return nil, fmt.Errorf("more than %d bytes of the few metrics that are read: see that the URL is the kubelet's", maxWanted)
		}
		wanted.Write(line)
		wanted.WriteByte('\n')
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("it is larger than %d bytes: see that the URL is the kubelet's", maxMetrics)
	}
	return wanted, nil
}

// relistStart returns the latest start of the kubelet's newest relist that succeeded: last as of the previous sample.
// Counters that fall are those of another kubelet.
func relistStart(last time.Time, previous, values map[string]float64, sampledAt time.Time) time.Time {
	increase := func(counter string) float64 { return values[counter] - previous[counter] }
	const errors = operations + "errors_total"
	relists := increase(relistCount)
	failed := increase(errors+"list_podsandbox") + increase(errors+"list_containers")
	switch {
	case previous == nil || relists < 0:
		return time.Time{}
	case relists == 0 || failed > 0:
		return last
	}
	mean := time.Duration(increase(relistSum) / relists * float64(time.Second))
	return sampledAt.Add(-mean)
}

// noStartSince returns since when pods wait for a sandbox and no call that makes one has ended: last as of the previous sample.
func noStartSince(last time.Time, waiting int, previous, values map[string]float64, sampledAt time.Time) time.Time {
	const calls = operations + "total" + "run_podsandbox"
	switch {
	case waiting == 0:
		return time.Time{}
	case last.IsZero(), values[calls] != previous[calls]:
		return sampledAt
	}
	return last
}

// startCalls returns the kubelet's calls of an operation that have failed since one last
// succeeded, nil for none: last as of the previous sample. Counters that fall are those of
// another kubelet.
func startCalls(last *facts.StartCalls, operation string, previous, values map[string]float64, sampledAt time.Time) *facts.StartCalls {
	increase := increaseOf(operation, previous, values)
	total := increase("total")
	failed := increase("errors_total")
	switch {
	case previous == nil, total < 0, failed < 0, total > failed:
		return nil
	case failed == 0:
		return last
	}
	calls := facts.StartCalls{Since: sampledAt}
	if last != nil {
		calls = *last
	}
	calls.Errors += int(failed)
	calls.LastError = sampledAt
	mean := time.Duration(increase("duration_seconds_sum") / failed * float64(time.Second))
	calls.Longest = max(calls.Longest, mean)
	return &calls
}

// increaseOf returns by how much each counter of an operation has increased since the previous sample.
func increaseOf(operation string, previous, values map[string]float64) func(counter string) float64 {
	return func(counter string) float64 {
		return values[operations+counter+operation] - previous[operations+counter+operation]
	}
}

// podCalls are the calls by which a kubelet starts, stops and removes pods, but for those that wait by design: for an image, and
// for a container to end by itself.
var podCalls = []string{"run_podsandbox", "create_container", "start_container", "stop_podsandbox", "remove_container", "remove_podsandbox"}

// hasSlowCall reports whether the calls of an operation for pods that have ended since the previous sample took slowCall on
// average.
func hasSlowCall(previous, values map[string]float64) bool {
	return slices.ContainsFunc(podCalls, func(operation string) bool {
		increase := increaseOf(operation, previous, values)
		calls := increase("total")
		return previous != nil && calls > 0 && increase("duration_seconds_sum") >= calls*slowCall.Seconds()
	})
}

// apiCalls returns how the kubelet's requests to the API server ended: last as of the
// previous sample. Counters that fall are those of another kubelet.
func apiCalls(last facts.APICalls, previous, values map[string]float64, sampledAt time.Time) facts.APICalls {
	if previous == nil {
		return last
	}
	rises := func(codes ...string) bool {
		return slices.ContainsFunc(codes, func(code string) bool {
			return values[apiRequests+code] > previous[apiRequests+code]
		})
	}
	if rises("200", "201", "202", "409") {
		last.Refused = ""
		last.RefusedSince = time.Time{}
		last.OKAt = sampledAt
		return last
	}
	for _, code := range []string{"401", "403", "<error>"} {
		if !rises(code) {
			continue
		}
		last.Refused = code
		if last.RefusedSince.IsZero() {
			last.RefusedSince = sampledAt
		}
	}
	return last
}
