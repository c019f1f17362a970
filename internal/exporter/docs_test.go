package exporter

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

// freeLabels are the labels whose values are not from a fixed list.
func freeLabels() []string {
	return []string{"id", "next", "runtime_name", "runtime_version", "kernel_version", "os_image", "cgroup_version", "plegd_version", "version", "revision", "goversion", "goos", "goarch"}
}

// metricRow is a row of the tables in docs/metrics.md.
var metricRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\|.*$")

// TestMetricsReference compares the rows of docs/metrics.md with a scrape. Their order and the text around them
// are the page's own.
func TestMetricsReference(t *testing.T) {
	s := viewtest.Degraded() // everything is known there
	for _, name := range []string{"dockerd", "dockerd_containerd", "incidents", "kernel_log", "kubelet_api", "kubelet_process", "ledger", "listener", "sandbox_image", "storage"} {
		s.Facts.Evidence.Sources[name] = facts.Source{Up: true, Duration: time.Millisecond}
	}
	s.Facts.Events = &facts.Events{Mode: "hint"}
	s.Culprit = &facts.Link{Kind: facts.KindMount, Fingerprint: "ext4"}
	reg, m := newPedantic(viewtest.NewSource(s))
	exercise(m)
	self := NewRegistry(Build{Version: "1.0.0", Revision: "abc"})
	families := gather(t, reg)
	families["plegd_build_info"] = gather(t, self)["plegd_build_info"]

	page, err := os.ReadFile(viewtest.DocsDir + "metrics.md")
	must.Do(t, err)
	text := metricRow.ReplaceAllStringFunc(string(page), func(row string) string {
		name := metricRow.FindStringSubmatch(row)[1]
		f := families[name]
		if f == nil {
			t.Fatalf("%s is in the reference, or twice, and not in a scrape", name)
		}
		delete(families, name)
		return fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(f.GetType().String()), describeLabels(f), describe(f))
	})
	for name := range families {
		t.Errorf("%s is in a scrape and not in the reference: give it a row, \"| `%s` | |\"", name, name)
	}
	viewtest.Golden(t, viewtest.DocsDir+"metrics.md", text)
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
				facts.KindHelper, facts.KindProcess, facts.KindMount, facts.KindCgroup, facts.KindFile, facts.KindKernel, facts.KindNode} {
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
