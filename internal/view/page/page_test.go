package page

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func pageSource(t *testing.T, d *health.Snapshot) string {
	t.Helper()
	return contentSource(t, Content{Snapshot: d})
}

func contentSource(t *testing.T, c Content) string {
	t.Helper()
	w := httptest.NewRecorder()
	New().Serve(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), c)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// elements returns how often each element opens in the page, and fails when
// they do not close in order.
func elements(t *testing.T, source string) map[string]int {
	t.Helper()
	source = strings.Replace(source, pageJS, "", 1) // no XML
	dec := xml.NewDecoder(strings.NewReader(source))
	dec.Strict, dec.AutoClose, dec.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	out := make(map[string]int)
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("the page is not well formed: %v\n%s", err, source)
		}
		if e, ok := token.(xml.StartElement); ok {
			out[e.Name.Local]++
		}
	}
}

func TestPage(t *testing.T) {
	for name, tt := range map[string]struct {
		snap health.Snapshot
		want []string
	}{
		"starting":  {viewtest.Starting(), []string{"<h1>Starting</h1>", "no socket found", `<p class="big">starting</p>`}},
		"healthy":   {viewtest.Healthy(), []string{"<h1>All is well</h1>", `<p class="big">Ready</p>`, "for 2d01h", "managing pods; the API shows Ready", "110 running", "containerd 1.7.24"}},
		"degraded":  {viewtest.Degraded(), []string{"<h1>PodInspectionStall</h1>", `<p class="big">41s</p>`, "pod", "<code>crictl", "Does restarting the runtime help?", "41s until the kubelet stops managing pods", "the node turns NotReady in 41s to 52s", "Also active", "Stuck pods", "batch/nightly-report-28872000-k4j2p", "2 of 3 pods inspected"}},
		"unhealthy": {viewtest.Unhealthy(), []string{`<p class="big">NotReady</p>`, "<code>kill -USR1 812</code>", "Kubelet: [container runtime is down", "under way for 1m11s", "kill -USR1"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := pageSource(t, new(tt.snap))
			text := html.UnescapeString(source)
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			for _, path := range []string{view.PathMetrics, view.PathStatus, view.PathHealthz, view.PathHealthy, view.PathReady} {
				if !strings.Contains(source, `href="`+path+`"`) {
					t.Errorf("no link to %s", path)
				}
			}
			got := elements(t, source)
			if got["img"] > 0 || got["link"] > 0 || strings.Contains(source, " style=") {
				t.Error("the page wants more than its content policy allows")
			}
			if got["script"] != 1 || !strings.Contains(source, "<script>"+pageJS+"</script>") {
				t.Error("the script is not in the page as its hash was made")
			}
			if got["style"] != 1 || !strings.Contains(source, "<style>"+pageCSS+"</style>") {
				t.Error("the style sheet is not in the page as its hash was made")
			}
			if strings.Contains(source, "ZgotmplZ") {
				t.Error("the template put something where it does not belong")
			}
		})
	}
}

func TestPageHostile(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>` + "\x1b[2J\u202e"
	d := new(viewtest.Degraded())
	want := elements(t, pageSource(t, d))
	d.KubeletMessage, d.NodeReady = evil, false
	d.Next, d.Reason, d.State, d.PlegdVersion = evil, evil, evil, evil
	for i := range d.Active {
		d.Active[i].Evidence = []string{evil, evil}
	}
	d.Active[0].ID, d.Active[0].Severity = evil, evil
	d.Facts.Runtime.Name, d.Facts.Endpoint.Path = evil, evil
	d.Facts.Calls["list_containers"] = health.Call{LastErr: &health.CallError{Operation: evil, Code: evil, Message: evil}}
	r := &d.Facts.Relist
	for _, pods := range [][]health.PodInspection{r.Slowest, r.Inspecting, r.Failing} {
		for i := range pods {
			pods[i].Namespace, pods[i].Name, pods[i].UID, pods[i].Operation = evil, evil, evil, evil
			pods[i].Err = &health.CallError{Operation: evil, Code: evil, Message: evil}
		}
	}
	source := pageSource(t, d)
	got := elements(t, source)
	if got["script"] != 1 || got["img"] > 0 {
		t.Errorf("a name became markup:\n%s", source)
	}
	if strings.ContainsAny(source, "\x1b\u202e") {
		t.Error("control characters are in the page")
	}
	if got["section"] != want["section"] || got["table"] != want["table"] {
		t.Errorf("the page fell apart: %v, want %v", got, want)
	}
}

// TestPausedPage looks at the page that does not keep itself up to date.
func TestPausedPage(t *testing.T) {
	w := httptest.NewRecorder()
	New().Serve(w, httptest.NewRequest(http.MethodGet, "/?refresh=0", http.NoBody), Content{Snapshot: new(viewtest.Healthy())})
	if got := elements(t, w.Body.String()); got["script"] > 0 || got["noscript"] > 0 {
		t.Error("the page whose updates are paused has a script")
	}
}

func TestPlot(t *testing.T) {
	d := new(viewtest.Unhealthy())
	if p := view.NewPlot(d, view.Recent{}, nil); p != nil {
		t.Error("a plot of nothing")
	}
	recent := view.Recent{From: d.At.Add(-10 * time.Minute), Bin: 5 * time.Second, Bins: make([]view.RelistBin, view.HistoryBins)}
	recent.Bins[50] = view.RelistBin{Slowest: time.Millisecond, Relists: 5, State: health.StateHealthy}
	recent.Bins[60] = view.RelistBin{Slowest: 12 * time.Second, Relists: 1, State: health.StateDegraded}
	recent.Bins[70] = view.RelistBin{Slowest: time.Second, Relists: 5, Failed: 1, State: health.StateDegraded}
	class := map[int]string{}
	for i, b := range recent.Bars(view.InFlightAge(d)) {
		class[i] = b.Class
	}
	// The slow one of 12 s went through two bins before its own; the one under
	// way has been there for 71 s, which are 15 bins.
	for x, want := range map[int]string{49: "", 50: view.BarEnded, 57: "", 58: view.BarEnded, 59: view.BarEnded, 60: view.BarEnded, 70: view.BarFailed, 104: "", 105: view.BarNow, 119: view.BarNow} {
		if class[x] != want {
			t.Errorf("the bar at %d is %q, want %q", x, class[x], want)
		}
	}
	one := viewtest.Incident().Summary
	one.Opened = d.At.Add(-5 * time.Minute)
	old := one
	old.Opened = d.At.Add(-11 * time.Minute)
	p := view.NewPlot(d, recent, []incident.Summary{one, old})
	if want := "11 relists ended, 1 of them failed; the slowest took 1m11s; one is under way for 1m11s."; p.Summary != want {
		t.Errorf("the summary is %q, want %q", p.Summary, want)
	}
	if want := "Verdict: healthy for 5.0s, degraded for 10s."; len(p.Rows) != 1 || p.Rows[0].Summary != want || len(p.Rows[0].Bands) != 3 {
		t.Errorf("the band is %+v, want %q", p.Rows, want)
	}
	if len(p.Marks) != 1 || p.Marks[0].X != "50.00%" || p.Marks[0].Text != "PodInspectionStall, opened 02:59:05" {
		t.Errorf("the marks are %+v", p.Marks)
	}
	if len(p.Ticks) != 4 || p.Ticks[0] != (view.PlotTick{X: "9.17%", Text: "02:55"}) && p.Ticks[0].Text != "02:56" {
		t.Errorf("the ticks are %+v", p.Ticks)
	}
	// 1 ms is the lower edge, 1000 s the upper one.
	for s, want := range map[float64]float64{0: 0, .001: 0, 1: .5, 1000: 1, 1e6: 1} {
		if got := view.PlotY(s); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v s are %v high, want %v", s, got, want)
		}
	}
	// The tint behind and the band beneath have a rectangle each.
	if source := contentSource(t, Content{Snapshot: d, Recent: recent}); elements(t, source)["rect"] != len(p.Bars)+2*len(p.Rows[0].Bands) {
		t.Error("the plot is not on the page")
	}
}

func TestPageIncidents(t *testing.T) {
	d := new(viewtest.Unhealthy())
	if strings.Contains(pageSource(t, d), `id="incidents"`) {
		t.Error("a list of no incidents")
	}
	var list []incident.Summary
	for range maxIncidents + 5 {
		list = append(list, viewtest.Incident().Summary)
	}
	source := contentSource(t, Content{Snapshot: d, Incidents: list})
	if n := strings.Count(source, `href="`+view.PathIncidentPages+"/"+viewtest.IncidentID+`"`); n != maxIncidents {
		t.Errorf("%d incidents are listed, want the newest %d", n, maxIncidents)
	}
	for _, want := range []string{"2026-11-21 03:02:45 UTC", viewtest.Incident().Reason, string(viewtest.Incident().Outcome)} {
		if !strings.Contains(source, want) {
			t.Errorf("no %q on the page", want)
		}
	}
}

// TestPageOpenIncident: an open one has lasted until now.
func TestPageOpenIncident(t *testing.T) {
	now := time.Now()
	one := viewtest.Incident().Summary
	one.Closed, one.Duration, one.Began = nil, 0, now.Add(-80*time.Second)
	if got := incidentRows([]incident.Summary{one}, now)[0].Lasted; got != "1m20s" {
		t.Errorf("an incident that was opened 80 s ago has lasted %s", got)
	}
}

func incidentSource(t *testing.T, one *incident.Incident) string {
	t.Helper()
	w := httptest.NewRecorder()
	New().ServeIncident(w, httptest.NewRequest(http.MethodGet, "/incidents/x", http.NoBody), one, new(viewtest.Stalled()))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestIncidentPage(t *testing.T) {
	source := incidentSource(t, viewtest.StalledIncident())
	text := html.UnescapeString(source)
	for _, want := range []string{
		"<h1>ShimStuck</h1>", "shim pid 4711 stopped", "seen as RuntimeListStall", "NotReady for 0.9 minutes (56s)", "payments/api-7d9f8b6c5-x2x4v/app",
		"pid 4711, is no longer stopped", "03:03:09", "NotReady in 31s to 42s", "Verdict: healthy for 2m00s, degraded for 3m04s, unhealthy for 56s.", "Predicted: NotReady for 56s.",
		`href="/api/v1/incidents/` + viewtest.IncidentID + `"`, "<code>kill -CONT",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	got := elements(t, source)
	if got["script"] > 0 || strings.Contains(source, "ZgotmplZ") || strings.Contains(source, " style=") {
		t.Error("a closed incident has a script, or the page wants more than its content policy allows")
	}
	if strings.Contains(text, "Now: ") {
		t.Error("a closed incident has a countdown")
	}
	open := viewtest.StalledIncident()
	open.Closed, open.Outcome, open.Timeline = nil, incident.Open, open.Timeline[:2]
	text = html.UnescapeString(incidentSource(t, open))
	for _, want := range []string{"<script>", "Now: 31s until the kubelet stops managing pods", "It has not ended.", "the node stayed Ready by the model"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page of an open incident:\n%s", want, text)
		}
	}
	// One whose moments could not be kept, as after a crash, has a page too.
	empty := &incident.Incident{Summary: viewtest.Incident().Summary}
	if text := incidentSource(t, empty); !strings.Contains(text, "PodInspectionStall") {
		t.Errorf("the page of an incident without moments:\n%s", text)
	}
}

func TestIncidentPageHostile(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>` + "\x1b[2J\u202e"
	one := viewtest.StalledIncident()
	one.KubeletMessage, one.Endpoint, one.ID = evil, evil, evil
	for _, m := range one.Timeline {
		s := m.Snapshot
		for i := range s.Active {
			s.Active[i].ID, s.Active[i].Evidence = evil, []string{evil}
		}
		for i := range s.Chain {
			s.Chain[i].Name, s.Chain[i].Evidence = evil, evil
		}
		s.ChainEnd, s.Steps = evil, []string{evil}
	}
	source := incidentSource(t, one)
	if got := elements(t, source); got["script"] > 0 || got["img"] > 0 {
		t.Errorf("a name became markup:\n%s", source)
	}
	if strings.ContainsAny(source, "\x1b\u202e") {
		t.Error("control characters are in the page")
	}
}

// TestChainOnPage: from the kubelet to the culprit, and no culprit where the chain ends
// before it. Evidence that the chain shows is not repeated.
func TestChainOnPage(t *testing.T) {
	d := new(viewtest.Stalled())
	source := html.UnescapeString(pageSource(t, d))
	if n := strings.Count(source, `class="kind"`); n != 4 || !strings.Contains(source, `<li class="culprit">`) {
		t.Errorf("%d links:\n%s", n, source)
	}
	if strings.Contains(source, `id="evidence"`) {
		t.Error("the evidence repeats the chain")
	}
	d.ChainEnd = "its shim cannot be seen"
	if source = pageSource(t, d); strings.Contains(source, `<li class="culprit">`) || !strings.Contains(source, "No further: its shim cannot be seen.") {
		t.Errorf("a chain that ends early:\n%s", source)
	}
}

// TestBarMeasuresTheDecidingRule: the one that fails first.
func TestBarMeasuresTheDecidingRule(t *testing.T) {
	s, left := viewtest.Healthy(), 12*time.Second
	for good, want := range map[time.Duration]string{3 * time.Second: "successful relist", 18 * time.Second: "good status check"} {
		s.Facts.Status.LastGood = viewtest.Ago(good)
		s.RulesFailIn = &left
		s.LastSeenAge = s.Threshold - left
		if want != "successful relist" {
			s.LastSeenAge = time.Second
		}
		if c := newPageClock(&s); c.What != want {
			t.Errorf("the bar measures the last %s, want the last %s", c.What, want)
		}
	}
}
