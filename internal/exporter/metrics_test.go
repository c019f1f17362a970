package exporter

import (
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/internal/view/viewtest"
)

// exercise reports one of everything.
func exercise(m *Metrics) {
	m.RelistInterval(1012 * time.Millisecond)
	m.RelistDone(12*time.Millisecond, 21*time.Millisecond, true)
	m.RelistInterval(1013 * time.Millisecond)
	m.RelistDone(2*time.Minute, 2*time.Minute, false)
	for i, e := range relist.EventTypes() {
		for range i + 1 {
			m.EventGenerated(e)
		}
	}
	m.EventDiscarded()
	m.InspectionDone(true)
	m.InspectionDone(true)
	m.InspectionDone(false)
	for _, op := range cri.Operations() {
		m.CallDone(cri.Call{Operation: op, Start: viewtest.T0, Duration: 3 * time.Millisecond, Bytes: 100, Code: cri.CodeOK})
	}
	for _, code := range append(errorCodes(), cri.CodeNotFound, "Aborted") {
		m.CallDone(cri.Call{Operation: cri.OpListContainers, Start: viewtest.T0, Duration: time.Second, Code: code})
	}
	m.ProbeDone(health.Probe{At: viewtest.T0, OK: true, Connect: 84 * time.Microsecond, Settings: 240 * time.Microsecond, RPC: 412 * time.Microsecond})
	m.ProbeDone(health.Probe{At: viewtest.T0, Stage: health.StageConnect, Cause: health.CauseMissing})
	m.ProbeDone(health.Probe{At: viewtest.T0, Stage: health.StageSettings, Cause: health.CauseTimeout, Connect: 84 * time.Microsecond, Settings: time.Second})
	for _, cause := range acceptCauses() {
		m.AcceptFailed(cause)
	}
	m.AcceptFailed("another")
	m.Observe(&health.Snapshot{Facts: health.Facts{Evidence: health.Evidence{Process: &health.Process{RestartsTotal: 1}}}})
}

// newPedantic returns what a scrape gathers, checked: labels, types, no two series
// that are the same.
func newPedantic(src Source, reasons []ReasonLabel) (prometheus.Gatherer, *Metrics) {
	reg := prometheus.NewPedanticRegistry()
	m := NewMetrics(reg)
	return checked(newCollector(src, reasons, viewtest.Clock).With(reg)), m
}

// checked checks what g gathers as a registry does.
func checked(g prometheus.TransactionalGatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, done, err := g.Gather()
		defer done()
		if err != nil {
			return nil, err
		}
		return prometheus.Gatherers{prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })}.Gather()
	})
}

// scrape returns what /metrics answers.
func scrape(t *testing.T, h http.Handler, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d: %s", w.Code, w.Body)
	}
	return w
}

// metricsOver serves what reg gathers, in every format.
func metricsOver(reg prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

func gather(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]*dto.MetricFamily)
	for _, f := range families {
		out[f.GetName()] = f
	}
	return out
}

// value returns the gauge or counter with these label values, in the order of
// the labels' names; ok is false when it is absent.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) (v float64, ok bool) {
	for _, m := range families[name].GetMetric() {
		var have []string
		for _, l := range m.GetLabel() {
			have = append(have, l.GetValue())
		}
		if !slices.Equal(have, labels) {
			continue
		}
		if c := m.GetCounter(); c != nil {
			return c.GetValue(), true
		}
		return m.GetGauge().GetValue(), true
	}
	return 0, false
}

func TestMetricsGolden(t *testing.T) {
	for _, tt := range []struct {
		file string
		snap health.Snapshot
		feed bool
	}{
		// What a scrape before the first relist shows: all that is known to be
		// 0, and nothing of what is not known.
		{"metrics-first-scrape.golden", viewtest.Starting(), false},
		{"metrics.golden", viewtest.Unhealthy(), true},
	} {
		t.Run(tt.file, func(t *testing.T) {
			reg, m := newPedantic(viewtest.NewSource(tt.snap), fewReasons())
			if tt.feed {
				exercise(m)
			}
			h := metricsOver(reg)
			viewtest.Golden(t, "testdata/"+tt.file, scrape(t, h, "text/plain").Body.String())
		})
	}
}

func TestMetricsLint(t *testing.T) {
	reg, m := newPedantic(viewtest.NewSource(viewtest.Unhealthy()), allReasons())
	exercise(m)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "pleg") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestSeriesBudget counts the series of a scrape as Prometheus does, with all
// reasons that plegd is to know, all evidence and its own runtime's metrics. A few
// are left for what another version of the Go runtime may bring.
func TestSeriesBudget(t *testing.T) {
	const budget, reserved = 503, 3 // a row more for RuntimeThreadStuck
	reg := NewRegistry(Build{Version: "1.0.0", Revision: "abc"})
	m := NewMetrics(reg)
	s := viewtest.Unhealthy()
	s.Facts.Evidence.Docker = &health.Docker{Probe: health.Probe{At: viewtest.T0, OK: true}}
	s.Facts.Evidence.Sources["docker"] = health.Source{Up: true}
	s.Facts.Evidence.Sources["docker_process"] = health.Source{Up: true}
	s.Facts.Evidence.Sources["storage"] = health.Source{Up: true}
	src := viewtest.NewSource(s)
	h := promhttp.InstrumentMetricHandler(reg, metricsOver(checked(newCollector(src, allReasons(), viewtest.Clock).With(reg))))
	first := countSeries(scrape(t, h, "text/plain").Body.String())
	exercise(m)
	later := countSeries(scrape(t, h, "text/plain").Body.String())
	t.Logf("%d series", first)
	if first > budget-reserved {
		t.Errorf("%d series at the first scrape, more than %d", first, budget-reserved)
	}
	if later != first {
		t.Errorf("%d series after a while, %d at first: some were not there from the start", later, first)
	}
}

func countSeries(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

func TestAbsentWhenUnknown(t *testing.T) {
	reg, _ := newPedantic(viewtest.NewSource(viewtest.Starting()), fewReasons())
	families := gather(t, reg)
	for _, name := range []string{
		MetricLastSeenAge, MetricModelledAge, MetricNotReadyIn, MetricRulesFailIn, MetricRunningPods, MetricRunningContainers,
		MetricResponseBytes, MetricRuntimeInfo, MetricRuntimeCondition,
		MetricQueueLength, MetricQueueLimit, MetricProcessOpenFDs, MetricProcessMaxFDs, MetricProcessStart, MetricProcessThreads,
		MetricEvidenceUp, MetricEvidenceDuration, MetricKubeletUp, MetricKubeletLastSeen,
	} {
		if f := families[name]; f != nil {
			t.Errorf("%s is there before anything is known: %v", name, f)
		}
	}
	for _, name := range []string{MetricLastSeen, MetricRuntimeStatusLastSeen, MetricHealthy, MetricReinspectPods, MetricProcessRestarts, MetricCPUThrottled} {
		if v, ok := value(families, name); !ok || v != 0 {
			t.Errorf("%s = %v, %v; want 0", name, v, ok)
		}
	}
}

// TestEachKnownAlone checks that one unknown value does not take another along.
func TestEachKnownAlone(t *testing.T) {
	s := viewtest.Starting()
	s.Facts.Calls = map[string]health.Call{"list_containers": {LastFailed: viewtest.Ago(time.Second), Bytes: 17 << 20}}
	s.Facts.Status.NetworkReady = &health.Condition{}
	s.Verdict.LastSeen = viewtest.Ago(2 * time.Second)
	s.Verdict.LastSeenAge = 2 * time.Second
	reg, _ := newPedantic(viewtest.NewSource(s), fewReasons())
	families := gather(t, reg)
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{MetricResponseBytes, []string{"list_containers"}, 17 << 20},
		{MetricRuntimeCondition, []string{"NetworkReady"}, 0},
		{MetricLastSeenAge, nil, 2},
		{MetricLastSeen, nil, float64(viewtest.Ago(2*time.Second).UnixMilli()) / 1e3},
	} {
		if v, ok := value(families, tt.name, tt.labels...); !ok || math.Abs(v-tt.want) > 1e-6 {
			t.Errorf("%s%v = %v, %v; want %v", tt.name, tt.labels, v, ok, tt.want)
		}
	}
	for _, tt := range [][]string{{MetricResponseBytes, "list_podsandbox"}, {MetricRuntimeCondition, "RuntimeReady"}, {MetricModelledAge}} {
		if v, ok := value(families, tt[0], tt[1:]...); ok {
			t.Errorf("%v = %v; want it absent", tt, v)
		}
	}
}

// TestInFlightMoves is the point of making the gauges at the scrape: nothing
// happens between the two scrapes but time.
func TestInFlightMoves(t *testing.T) {
	now := viewtest.T0
	c := newCollector(viewtest.NewSource(viewtest.Unhealthy()), fewReasons(), func() time.Time { return now })
	reg := checked(c.With(prometheus.NewRegistry()))
	before, _ := value(gather(t, reg), MetricRelistInFlight, "list_podsandbox")
	now = now.Add(1500 * time.Millisecond)
	families := gather(t, reg)
	after, _ := value(families, MetricRelistInFlight, "list_podsandbox")
	if before != 71 || after != 72.5 {
		t.Errorf("in flight for %v, then %v; want 71, 72.5", before, after)
	}
	for _, phase := range []string{"list_containers", "inspect"} {
		if v, ok := value(families, MetricRelistInFlight, phase); !ok || v != 0 {
			t.Errorf("phase %s: %v, %v; want 0", phase, v, ok)
		}
	}
}

// TestPhaseAfterClock checks the race in which a phase begins after the
// scrape's clock was read.
func TestPhaseAfterClock(t *testing.T) {
	s := viewtest.Healthy()
	s.Facts.Relist.InFlight = &health.InFlight{Start: viewtest.T0, Phase: health.PhaseInspect, PhaseStart: viewtest.T0.Add(time.Millisecond)}
	reg, _ := newPedantic(viewtest.NewSource(s), fewReasons())
	if v, ok := value(gather(t, reg), MetricRelistInFlight, "inspect"); !ok || v != 0 {
		t.Errorf("%v, %v; want 0", v, ok)
	}
}

func TestNativeHistograms(t *testing.T) {
	reg, m := newPedantic(viewtest.NewSource(viewtest.Healthy()), fewReasons())
	exercise(m)
	h := metricsOver(reg)
	w := scrape(t, h, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	dec := expfmt.NewDecoder(w.Body, expfmt.ResponseFormat(w.Header()))
	native := make(map[string]bool)
	for {
		var f dto.MetricFamily
		if err := dec.Decode(&f); err != nil {
			break
		}
		for _, metric := range f.GetMetric() {
			if hist := metric.GetHistogram(); hist != nil && hist.GetSampleCount() > 0 {
				native[f.GetName()] = hist.GetSchema() == 3 && len(hist.GetPositiveSpan()) > 0 && len(hist.GetBucket()) > 0
			}
		}
	}
	for _, name := range []string{MetricRelistDuration, MetricRelistInterval, MetricRelistSerial, MetricOperationsDuration, MetricProbeDuration} {
		if !native[name] {
			t.Errorf("%s is not both a classic and a native histogram over protobuf", name)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	reg, _ := newPedantic(viewtest.NewSource(viewtest.Healthy()), fewReasons())
	h := metricsOver(reg)
	w := scrape(t, h, "application/openmetrics-text;version=1.0.0")
	if !strings.HasSuffix(w.Body.String(), "# EOF\n") {
		t.Errorf("no # EOF at the end of %s", w.Header().Get("Content-Type"))
	}
}

func TestHostileRuntimeInfo(t *testing.T) {
	s := viewtest.Healthy()
	s.Facts.Runtime = health.Runtime{Name: "evil\xff\"\n} 1", Version: strings.Repeat("ä", 1<<20), CRIVersion: "v1"}
	reg, _ := newPedantic(viewtest.NewSource(s), fewReasons())
	families := gather(t, reg)
	for _, l := range families[MetricRuntimeInfo].GetMetric()[0].GetLabel() {
		if len(l.GetValue()) > maxLabel {
			t.Errorf("label %s has %d bytes", l.GetName(), len(l.GetValue()))
		}
	}
}

func TestProbeCauses(t *testing.T) {
	reg, m := newPedantic(viewtest.NewSource(viewtest.Healthy()), fewReasons())
	// Every cause that a probe can name is counted somewhere, whatever stage
	// it comes at.
	for _, stage := range health.Stages() {
		for _, cause := range health.Causes() {
			m.ProbeDone(health.Probe{Stage: stage, Cause: cause})
		}
	}
	var sum float64
	for _, metric := range gather(t, reg)[MetricProbeFailures].GetMetric() {
		sum += metric.GetCounter().GetValue()
	}
	if want := float64(len(health.Stages()) * len(health.Causes())); sum != want {
		t.Errorf("%v failures counted, want %v", sum, want)
	}
}

// TestObserversDoNotAllocate: the loop at 5000 pods calls these thousands of
// times a second.
func TestObserversDoNotAllocate(t *testing.T) {
	_, m := newPedantic(viewtest.NewSource(viewtest.Healthy()), fewReasons())
	call := cri.Call{Operation: cri.OpContainerStatus, Duration: 3 * time.Millisecond, Code: cri.CodeDeadlineExceeded}
	observe := func() {
		m.CallDone(call)
		m.InspectionDone(true)
		m.EventGenerated(relist.ContainerDied)
		m.RelistInterval(time.Second)
		m.RelistDone(12*time.Millisecond, 21*time.Millisecond, true)
	}
	observe()
	if n := testing.AllocsPerRun(200, observe); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBuildInfo(t *testing.T) {
	families := gather(t, NewRegistry(Build{Version: "1.2.3", Revision: "abcdef"}))
	labels := make(map[string]string)
	for _, l := range families[MetricBuildInfo].GetMetric()[0].GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	if labels["version"] != "1.2.3" || labels["revision"] != "abcdef" || labels["goversion"] == "" || labels["goarch"] == "" {
		t.Errorf("plegd_build_info%v", labels)
	}
}

// TestReasonSeverities: a reason whose severity depends on the case has a series
// for each, of which one at most is 1.
func TestReasonSeverities(t *testing.T) {
	var s health.Snapshot
	s.Verdict.Active = []health.Active{{ID: "B", Severity: health.SeverityWarning}}
	reg, _ := newPedantic(viewtest.NewSource(s), []ReasonLabel{{"A", "critical"}, {"B", "critical"}, {"B", "warning"}})
	families := gather(t, reg)
	for _, want := range []struct {
		id, severity string
		value        float64
	}{{"A", "critical", 0}, {"B", "critical", 0}, {"B", "warning", 1}} {
		if got, ok := value(families, MetricReason, want.id, want.severity); !ok || got != want.value {
			t.Errorf("%s, %s: %v (%v), want %v", want.id, want.severity, got, ok, want.value)
		}
	}
	if n := len(families[MetricPrimaryReason].GetMetric()); n != 2 {
		t.Errorf("%d series of the primary reason, want one a reason", n)
	}
}
