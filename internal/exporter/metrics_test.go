package exporter

import (
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/relist"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/leaktest"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func TestMain(m *testing.M) { leaktest.Check(m) }

// exercise reports one of everything.
func exercise(m *Metrics) {
	m.RelistInterval(1012 * time.Millisecond)
	m.RelistDone(12*time.Millisecond, true)
	m.RelistInterval(1013 * time.Millisecond)
	m.RelistDone(2*time.Minute, false)
	for i, e := range relist.EventTypes() {
		for range i + 1 {
			m.Event(relist.Event{Type: e})
		}
	}
	m.InspectionDone(true)
	m.InspectionDone(true)
	m.InspectionDone(false)
	for _, op := range cri.Operations() {
		m.CallDone(cri.Call{Operation: op, Start: viewtest.T0, Duration: 3 * time.Millisecond, Bytes: 100, Code: cri.CodeOK})
	}
	m.CallDone(cri.Call{Operation: cri.OpListContainers, Start: viewtest.T0, Duration: time.Second, Code: cri.CodeUnavailable})
	m.ProbeDone(facts.Probe{At: viewtest.T0, OK: true, Connect: 84 * time.Microsecond, Settings: 240 * time.Microsecond})
	m.ProbeDone(facts.Probe{At: viewtest.T0, Stage: facts.StageConnect, Cause: facts.CauseMissing})
	m.ProbeDone(facts.Probe{At: viewtest.T0, Stage: facts.StageSettings, Cause: facts.CauseTimeout, Connect: 84 * time.Microsecond})
	for _, cause := range acceptCauses() {
		m.acceptFailures.WithLabelValues(cause).Inc()
	}
	m.IncidentOpened()
	m.Observe(&facts.Snapshot{Facts: facts.Facts{Evidence: facts.Evidence{Hop: facts.Hop{Process: &facts.Process{RestartsTotal: 1}}}}})
}

func testNode() Node {
	return Node{Kernel: "6.1.0-42-amd64", OSImage: "Debian GNU/Linux 12 (bookworm)", CgroupVersion: "2"}
}

func testCollector(src Source, now func() time.Time) *Collector {
	c := NewCollector(src, testNode(), "1.0.0")
	c.clock = now
	return c
}

// newPedantic returns a registry over src that checks every metric.
func newPedantic(src Source) (*prometheus.Registry, *Metrics) {
	reg := prometheus.NewPedanticRegistry()
	m := NewMetrics(reg)
	reg.MustRegister(testCollector(src, viewtest.Clock))
	return reg, m
}

// scrape returns what /metrics answers.
func scrape(t *testing.T, h http.Handler, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	must.Equal(t, w.Code, http.StatusOK, "/metrics: %s", w.Body)
	return w
}

// metricsOver serves what reg gathers, in every format.
func metricsOver(reg prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

func gather(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	families, err := g.Gather()
	must.Do(t, err)
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
		snap facts.Snapshot
		feed bool
	}{
		// What a scrape before the first relist shows: all that is known to be
		// 0, and no value that is not known.
		{"metrics-first-scrape.golden", viewtest.Starting(), false},
		{"metrics.golden", viewtest.Unhealthy(), true},
	} {
		t.Run(tt.file, func(t *testing.T) {
			reg, m := newPedantic(viewtest.NewSource(tt.snap))
			if tt.feed {
				exercise(m)
			}
			h := metricsOver(reg)
			viewtest.Golden(t, "testdata/"+tt.file, scrape(t, h, "text/plain").Body.String())
		})
	}
}

func TestMetricsLint(t *testing.T) {
	reg, m := newPedantic(viewtest.NewSource(viewtest.Unhealthy()))
	exercise(m)
	problems, err := testutil.GatherAndLint(reg)
	must.Do(t, err)
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "pleg") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestSeriesBudget counts the series of a scrape as Prometheus does: with all
// evidence, an event stream, a chain, five reasons and plegd's own process.
func TestSeriesBudget(t *testing.T) {
	const budget = 200
	reg := NewRegistry(Build{Version: "1.0.0", Revision: "abc"})
	m := NewMetrics(reg)
	s := viewtest.Degraded()
	for _, r := range health.Reasons()[:5] {
		s.Active = append(s.Active, facts.Active{ID: r.ID, Severity: "info"})
	}
	for _, name := range []string{"dockerd", "dockerd_containerd", "storage"} {
		s.Facts.Evidence.Sources[name] = facts.Source{Up: true}
	}
	reg.MustRegister(testCollector(viewtest.NewSource(s), viewtest.Clock))
	h := promhttp.InstrumentMetricHandler(reg, metricsOver(reg))
	first := countSeries(scrape(t, h, "text/plain").Body.String())
	exercise(m)
	later := countSeries(scrape(t, h, "text/plain").Body.String())
	t.Logf("%d series", later)
	if later > budget {
		t.Errorf("%d series, more than %d", later, budget)
	}
	check.Equal(t, later, first, "series after a while, at first: some did not exist from the start")
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

// TestInFlightMoves is the point of making the gauges at the scrape: nothing
// happens between the two scrapes but time.
func TestInFlightMoves(t *testing.T) {
	now := viewtest.T0
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(testCollector(viewtest.NewSource(viewtest.Unhealthy()), func() time.Time { return now }))
	before, _ := value(gather(t, reg), "pleg_relist_inflight_seconds", "list_podsandbox")
	now = now.Add(1500 * time.Millisecond)
	families := gather(t, reg)
	after, _ := value(families, "pleg_relist_inflight_seconds", "list_podsandbox")
	if before != 71 || after != 72.5 {
		t.Errorf("in flight for %v, then %v; want 71, 72.5", before, after)
	}
	if v, ok := value(families, "pleg_relist_inflight_seconds", "inspect"); !ok || v != 0 {
		t.Errorf("phase inspect: %v, %v; want 0", v, ok)
	}
	// A phase that began after the scrape read the clock.
	s := viewtest.Healthy()
	s.Facts.Relist.InFlight = &facts.InFlight{Start: viewtest.T0, Phase: facts.PhaseInspect, PhaseStart: viewtest.T0.Add(time.Millisecond)}
	reg, _ = newPedantic(viewtest.NewSource(s))
	if v, ok := value(gather(t, reg), "pleg_relist_inflight_seconds", "inspect"); !ok || v != 0 {
		t.Errorf("%v, %v; want 0", v, ok)
	}
}

func TestNativeHistograms(t *testing.T) {
	reg, m := newPedantic(viewtest.NewSource(viewtest.Healthy()))
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
	if !native["pleg_relist_duration_seconds"] || len(native) != 1 {
		t.Errorf("native histograms: %v, want only %s", native, "pleg_relist_duration_seconds")
	}
}

func TestReadNode(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n", "Debian GNU/Linux 12 (bookworm)"},
		{"PRETTY_NAME='Flatcar'\n", "Flatcar"},
		{"NAME=x\n", ""},
	} {
		root := t.TempDir()
		must.Do(t, os.MkdirAll(root+"/1/root/etc", 0o755))
		must.Do(t, os.WriteFile(root+"/1/root/etc/os-release", []byte(tt.file), 0o644))
		n := ReadNode(root, root)
		if n.OSImage != tt.want || n.CgroupVersion != "1" || n.Kernel == "" {
			t.Errorf("%q: %+v, want %q", tt.file, n, tt.want)
		}
	}
}

// TestValues: a value that is not known is absent, and takes no other along; reasons and
// culprit have rows only while they are active.
func TestValues(t *testing.T) {
	all := health.Reasons()
	listStall := all[slices.IndexFunc(all, func(r health.Reason) bool { return r.ID == "RuntimeListStall" })]
	for name, tt := range map[string]struct {
		snap   facts.Snapshot
		change func(*facts.Snapshot)
		want   map[string]float64 // by name and label values
		absent []string
	}{
		"a failed list": {viewtest.Starting(), func(s *facts.Snapshot) {
			s.Facts.Calls = map[string]facts.Call{"list_containers": {LastFailed: viewtest.Ago(time.Second), Bytes: 17 << 20}}
			s.Facts.Status.NetworkReady = &facts.Condition{}
			s.LastSeen, s.LastSeenAge = viewtest.Ago(2*time.Second), 2*time.Second
		}, map[string]float64{
			"pleg_runtime_response_bytes list_containers": 17 << 20, "pleg_runtime_condition NetworkReady": 0, "pleg_last_seen_age_seconds": 2,
			"pleg_last_seen_seconds": float64(viewtest.Ago(2*time.Second).UnixMilli()) / 1e3,
		}, []string{"pleg_runtime_response_bytes list_podsandbox", "pleg_runtime_condition RuntimeReady"}},
		"evidence": {viewtest.Healthy(), func(s *facts.Snapshot) {
			e := &s.Facts.Evidence
			e.Queue, e.Process.OpenFDs, e.Process.Start = &facts.Queue{At: viewtest.T0}, -1, time.Time{}
			e.Kubelet = &facts.Kubelet{Seen: true, Refused: true}
		}, map[string]float64{"pleg_kubelet_up": 0, "pleg_runtime_process_max_fds": 1 << 20}, []string{
			"pleg_socket_accept_queue_length", "pleg_socket_accept_queue_limit", "pleg_runtime_process_open_fds",
			"pleg_runtime_process_start_time_seconds", "pleg_kubelet_last_seen_seconds", "pleg_evidence_up dockerd",
		}},
		"a process that is gone": {viewtest.Healthy(), func(s *facts.Snapshot) {
			s.Facts.Evidence.Process.Alive, s.Facts.Evidence.Process.OpenFDs = false, 12
		}, nil, []string{"pleg_runtime_process_open_fds"}},
		"no reason":                   {viewtest.Healthy(), func(*facts.Snapshot) {}, nil, []string{"pleg_reason", "pleg_primary_reason", "pleg_primary_reason_info", "pleg_culprit"}},
		"a reason of another version": {viewtest.Healthy(), func(s *facts.Snapshot) { s.Reason = "Gone" }, nil, []string{"pleg_primary_reason_info"}},
		"reasons and a culprit": {viewtest.Healthy(), func(s *facts.Snapshot) {
			s.Reason, s.Facts.Runtime = "RuntimeListStall", facts.Runtime{Name: "containerd", Version: "2"}
			s.Active = []facts.Active{{ID: "RuntimeListStall", Severity: facts.SeverityCritical}, {ID: "FDsRunningOut", Severity: facts.SeverityWarning}}
			s.Culprit = &facts.Link{Kind: facts.KindMount, Name: "/data", Fingerprint: "nfs4:1c2d3e4f"}
		}, map[string]float64{
			"pleg_reason RuntimeListStall critical": 1, "pleg_reason FDsRunningOut warning": 1, "pleg_primary_reason RuntimeListStall": 1,
			"pleg_primary_reason_info " + listStall.Cause + " mount " + listStall.NextLine + " RuntimeListStall": 1,
			"pleg_culprit nfs4:1c2d3e4f mount": 1, "pleg_node_info 2 6.1.0-42-amd64 Debian GNU/Linux 12 (bookworm) 1.0.0 containerd 2": 1,
		}, nil},
		"a hostile runtime": {viewtest.Healthy(), func(s *facts.Snapshot) {
			s.Facts.Runtime = facts.Runtime{Name: "evil\xff\"\n} \x1b[2J\x00\u202e1", Version: strings.Repeat("ä", 1<<20), CRIVersion: "v1"}
		}, nil, nil},
	} {
		tt.change(&tt.snap)
		reg, _ := newPedantic(viewtest.NewSource(tt.snap))
		got := map[string]float64{}
		for _, f := range gather(t, reg) {
			for _, m := range f.GetMetric() {
				key := f.GetName()
				for _, l := range m.GetLabel() {
					key += " " + l.GetValue()
					if len(l.GetValue()) > maxLabel || strings.ContainsFunc(l.GetValue(), func(r rune) bool { return !unicode.IsPrint(r) }) {
						t.Errorf("%s: label %s is %q", name, l.GetName(), l.GetValue())
					}
				}
				got[key], got[f.GetName()] = m.GetGauge().GetValue(), m.GetGauge().GetValue()
			}
		}
		for key, want := range tt.want {
			if v, ok := got[key]; !ok || math.Abs(v-want) > 1e-6 {
				t.Errorf("%s: %s = %v, %v; want %v", name, key, v, ok, want)
			}
		}
		for _, key := range tt.absent {
			if v, ok := got[key]; ok {
				t.Errorf("%s: %s = %v; want it absent", name, key, v)
			}
		}
	}
}
