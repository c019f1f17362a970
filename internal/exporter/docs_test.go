package exporter

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// metricSections is the order of the metrics reference.
func metricSections() []struct {
	title, text string
	names       []string
} {
	return []struct {
		title, text string
		names       []string
	}{
		{
			"Last seen and verdict",
			"Made at the scrape, all from one moment. Ages are by the monotonic clock: a clock step does not move them. " +
				"Alert on `pleg_last_seen_age_seconds` against `pleg_threshold_seconds`, the threshold in force; " +
				"`pleg_last_seen_seconds` is what the kubelet has under the same name, and wants `> 0` as a guard.",
			[]string{
				MetricLastSeen, MetricLastSeenAge, MetricModelledAge, MetricNotReadyIn, MetricRulesFailIn, MetricThreshold, MetricRelistPeriod,
				MetricHealthy, MetricSyncLoopAllowed, MetricNodeReadyPredicted,
				MetricVerdict, MetricVerdictLastChange, MetricReason, MetricPrimaryReason, MetricCulprit,
			},
		},
		{
			"The relist",
			"A relist that hangs ends no observation, so no histogram and no counter sees it: " +
				"`pleg_relist_inflight_seconds` and the ages above do.",
			[]string{
				MetricRelists, MetricRelistDuration, MetricRelistInterval, MetricRelistSerial, MetricRelistInFlight,
				MetricEvents, MetricDiscardEvents, MetricInspections, MetricReinspectPods, MetricRunningPods, MetricRunningContainers,
			},
		},
		{
			"The runtime",
			"The calls are plegd's own, on a connection that it holds; the fresh dial is a new connection each time.",
			[]string{
				MetricOperations, MetricOperationsDuration, MetricOperationsErrors, MetricResponseBytes, MetricResponseLimit,
				MetricRuntimeStatusLastSeen, MetricRuntimeCondition, MetricRuntimeInfo, MetricProbeDuration, MetricProbeFailures,
			},
		},
		{
			"The event stream",
			"With `--events=hint` or `evented`; see [events](events.md). All counters stay at 0 without.",
			[]string{
				MetricEventedInUse, MetricEventedErrors, MetricEventedSuccess, MetricEventedLapses, MetricEventedLatency, MetricEventedEvents,
				MetricEventedMissed, MetricEventedDuplicates, MetricEventedOutOfOrder, MetricEventedIgnored,
			},
		},
		{
			"Evidence from outside the calls",
			"What the node says of the runtime when the runtime says nothing. A gauge is absent while its source does not answer: " +
				"`pleg_evidence_up` reports whether it does. Restarts and throttling are counted from the start of plegd on, whatever the kernel counted before.",
			[]string{
				MetricAcceptFailures, MetricQueueLength, MetricQueueLimit,
				MetricProcessOpenFDs, MetricProcessMaxFDs, MetricProcessThreads, MetricProcessStart, MetricProcessRestarts,
				MetricCPUThrottled, MetricKubeletUp, MetricKubeletLastSeen, MetricEvidenceUp, MetricEvidenceDuration,
			},
		},
		{
			"plegd itself",
			"Beside these the usual `go_*` (without `go_memstats_*`), `process_*` and `promhttp_*`.",
			[]string{MetricIncidents, MetricIncidentWriteFailures, MetricBuildInfo},
		},
	}
}

// freeLabels are the labels whose values are not from a fixed list.
func freeLabels() []string {
	return []string{"endpoint", "runtime_name", "runtime_version", "cri_version", "version", "revision", "goversion", "goos", "goarch"}
}

const metricsIntro = `# Metrics

<!-- Generated from the code: go test ./internal/exporter -update. -->

What plegd serves at ` + "`/metrics`" + `, as Prometheus text, OpenMetrics and protobuf with native histograms. Every counter,
histogram and state set is there from the first scrape, at 0. A gauge whose value is not known is absent, never a false 0.
No pod, container or id is ever a label: a node has fewer than 500 series, whatever runs on it.

From a kubelet's dashboard: ` + "`kubelet_pleg_X`" + ` is ` + "`pleg_X`" + `, ` + "`kubelet_pleg_discard_events`" + ` is ` + "`pleg_discard_events_total`" + `,
` + "`kubelet_running_pods`" + ` and ` + "`kubelet_running_containers`" + ` are ` + "`pleg_running_pods`" + ` and ` + "`pleg_running_containers`" + `, and
` + "`kubelet_runtime_operations_X`" + ` is ` + "`pleg_runtime_operations_X`" + `.
`

// TestMetricsReference keeps docs/metrics.md what a scrape shows.
func TestMetricsReference(t *testing.T) {
	s := viewtest.Degraded() // everything is known there
	for _, name := range []string{"docker", "docker_process", "storage"} {
		s.Facts.Evidence.Sources[name] = health.Source{Up: true, Duration: time.Millisecond}
	}
	reg, m := newPedantic(viewtest.NewSource(s), fewReasons())
	exercise(m)
	self := prometheus.NewRegistry()
	registerSelf(self, Build{Version: "1.0.0", Revision: "abc"})
	families := gather(t, reg)
	families[MetricBuildInfo] = gather(t, self)[MetricBuildInfo]

	var b strings.Builder
	b.WriteString(metricsIntro)
	for _, section := range metricSections() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| name | type | labels | meaning |\n|---|---|---|---|\n", section.title, section.text)
		for _, name := range section.names {
			f := families[name]
			if f == nil {
				t.Fatalf("%s is in the reference and not in a scrape", name)
			}
			delete(families, name)
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()), describeLabels(f), describe(f))
		}
	}
	b.WriteString("\nThe histograms are native ones as well (10 % from bucket to bucket), for whoever scrapes with protobuf.\n")
	for name := range families {
		t.Errorf("%s is in a scrape and not in the reference: add it to metricSections", name)
	}
	viewtest.Golden(t, viewtest.DocsDir+"metrics.md", b.String())
}

func describe(f *dto.MetricFamily) string {
	s := strings.ReplaceAll(f.GetHelp(), "|", `\|`)
	h := f.GetMetric()[0].GetHistogram()
	if h == nil {
		return s
	}
	var bounds []string
	for _, bucket := range h.GetBucket() {
		bounds = append(bounds, strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64))
	}
	return s + " Buckets: " + strings.Join(bounds, " ") + "."
}

// describeLabels lists the labels of a metric with their values, where those
// are a fixed list.
func describeLabels(f *dto.MetricFamily) string {
	values := make(map[string]map[string]bool)
	for _, metric := range f.GetMetric() {
		for _, l := range metric.GetLabel() {
			if values[l.GetName()] == nil {
				values[l.GetName()] = make(map[string]bool)
			}
			values[l.GetName()][l.GetValue()] = true
		}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case name == labelReason:
			out = append(out, "`reason`: each of `plegd reasons`")
		case name == labelSeverity:
			out = append(out, "`severity`: critical, warning, info")
		case slices.Contains(freeLabels(), name):
			out = append(out, "`"+name+"`")
		default:
			v := slices.Collect(maps.Keys(values[name]))
			sort.Strings(v)
			out = append(out, "`"+name+"`: "+strings.Join(v, ", "))
		}
	}
	return strings.Join(out, "; ")
}
