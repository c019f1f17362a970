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

	dto "github.com/prometheus/client_model/go"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/viewtest"
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
			"Computed at the scrape from one snapshot. Ages use the monotonic clock: a clock step does not move them. " +
				"Alert on `pleg_last_seen_age_seconds` against `pleg_threshold_seconds`, the effective threshold; " +
				"`pleg_last_seen_seconds` is what the kubelet has under the same name, and wants `> 0` as a guard.",
			[]string{
				"pleg_last_seen_seconds", "pleg_last_seen_age_seconds", "pleg_not_ready_in_seconds", "pleg_rules_fail_in_seconds", "pleg_threshold_seconds", "pleg_relist_period_seconds",
				"pleg_healthy", "pleg_sync_loop_allowed", "pleg_node_ready_predicted",
				"pleg_verdict", "pleg_verdict_last_change_timestamp_seconds", "pleg_reason", "pleg_primary_reason", "pleg_primary_reason_info", "pleg_culprit", "pleg_node_info",
			},
		},
		{
			"The relist",
			"A relist that hangs is in no histogram and no counter: see `pleg_relist_inflight_seconds` and the ages above.",
			[]string{
				"pleg_relists_total", "pleg_relist_duration_seconds", "pleg_relist_interval_seconds", "pleg_relist_inflight_seconds",
				"pleg_events_total", "pleg_discard_events_total", "pleg_inspections_total", "pleg_running_pods", "pleg_running_containers",
			},
		},
		{
			"The runtime",
			"Calls use a connection that plegd holds; each fresh dial is a new connection.",
			[]string{
				"pleg_runtime_operations_total", "pleg_runtime_operations_duration_seconds", "pleg_runtime_operations_errors_total", "pleg_runtime_response_bytes", "pleg_runtime_response_limit_bytes",
				"pleg_runtime_status_last_seen_seconds", "pleg_runtime_condition", "pleg_socket_probe_duration_seconds", "pleg_socket_probe_failures_total",
			},
		},
		{
			"The event stream",
			"Only with `--events=hint` or `evented`; see [events](operating.md#events).",
			[]string{
				"pleg_evented_in_use", "pleg_evented_connection_errors_total", "pleg_evented_connection_success_total", "pleg_evented_events_total",
			},
		},
		{
			"Evidence from outside the calls",
			"Read from the node, so that it is there while the runtime hangs. A gauge is absent while its source fails: " +
				"see `pleg_evidence_up`. Restarts and throttling are counted from the start of plegd.",
			[]string{
				"pleg_socket_accept_failures_total", "pleg_socket_accept_queue_length", "pleg_socket_accept_queue_limit",
				"pleg_runtime_process_open_fds", "pleg_runtime_process_max_fds", "pleg_runtime_process_start_time_seconds", "pleg_runtime_process_restarts_total",
				"pleg_runtime_cpu_throttled_seconds_total", "pleg_kubelet_up", "pleg_kubelet_last_seen_seconds", "pleg_evidence_up",
			},
		},
		{
			"plegd itself",
			"And `process_*`, and of `go_*` what a dashboard uses: goroutines, threads, garbage collection, live heap.",
			[]string{"pleg_incidents_total", "pleg_web_refused_connections_total", "plegd_build_info"},
		},
	}
}

// freeLabels are the labels whose values are not from a fixed list.
func freeLabels() []string {
	return []string{"id", "next", "runtime_name", "runtime_version", "kernel_version", "os_image", "cgroup_version", "plegd_version", "version", "revision", "goversion", "goos", "goarch"}
}

const metricsIntro = `# Metrics

<!-- Generated from the code: go test ./internal/exporter -update. -->

plegd serves these at ` + "`/metrics`" + ` as Prometheus text, OpenMetrics and protobuf with native histograms. Counters and
histograms exist from the first scrape. A gauge whose value is not known is absent. ` + "`pleg_reason`, `pleg_primary_reason`" + ` and
` + "`pleg_culprit`" + ` have rows only while they are active. No label holds the name or id of a pod or container. A node has at
most 200 series.

From a kubelet's dashboard: ` + "`kubelet_pleg_X`" + ` is ` + "`pleg_X`" + `, ` + "`kubelet_pleg_discard_events`" + ` is ` + "`pleg_discard_events_total`" + `,
` + "`kubelet_running_pods`" + ` and ` + "`kubelet_running_containers`" + ` are ` + "`pleg_running_pods`" + ` and ` + "`pleg_running_containers`" + `, and
` + "`kubelet_runtime_operations_X`" + ` is ` + "`pleg_runtime_operations_X`" + `. Of ` + "`pleg_relist_interval_seconds`" + ` and
` + "`pleg_runtime_operations_duration_seconds`" + ` there are the sum and the count, without buckets.
`

// TestMetricsReference keeps docs/metrics.md what a scrape shows.
func TestMetricsReference(t *testing.T) {
	s := viewtest.Degraded() // everything is known there
	for _, name := range []string{"dockerd", "dockerd_containerd", "incidents", "kernel_log", "kubelet_api", "kubelet_process", "ledger", "listener", "storage"} {
		s.Facts.Evidence.Sources[name] = facts.Source{Up: true, Duration: time.Millisecond}
	}
	s.Facts.Events = &facts.Events{Mode: "hint"}
	s.Culprit = &facts.Link{Kind: facts.KindMount, Fingerprint: "ext4"}
	reg, m := newPedantic(viewtest.NewSource(s))
	exercise(m)
	self := NewRegistry(Build{Version: "1.0.0", Revision: "abc"})
	families := gather(t, reg)
	families["plegd_build_info"] = gather(t, self)["plegd_build_info"]

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
	b.WriteString("\nThe histogram is also a native one (factor 1.1) if scraped with protobuf. Metrics with only a sum and a count are summaries without quantiles.\n")
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
		case name == "reason":
			out = append(out, "`reason`: each of `plegd reasons`")
		case name == "severity":
			out = append(out, "`severity`: critical, warning, info")
		case name == "kind":
			var kinds []string
			for _, kind := range []facts.LinkKind{facts.KindContainer, facts.KindPod, facts.KindRuntime, facts.KindShim,
				facts.KindHelper, facts.KindProcess, facts.KindMount, facts.KindCgroup, facts.KindKernel} {
				kinds = append(kinds, string(kind))
			}
			out = append(out, "`kind`: "+strings.Join(kinds, ", "))
		case name == "culprit":
			out = append(out, "`culprit`: as `kind` of pleg_culprit, or empty")
		case slices.Contains(freeLabels(), name), f.GetName() == "pleg_primary_reason_info":
			out = append(out, "`"+name+"`")
		default:
			v := slices.Collect(maps.Keys(values[name]))
			sort.Strings(v)
			out = append(out, "`"+name+"`: "+strings.Join(v, ", "))
		}
	}
	return strings.Join(out, "; ")
}
