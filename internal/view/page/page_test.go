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
		"healthy":   {viewtest.Healthy(), []string{"<h1>All is well</h1>", `<p class="big">Ready</p>`, "for 2d01h", "would call this node Ready", "110 running", "containerd 1.7.24"}},
		"degraded":  {viewtest.Degraded(), []string{"<h1>PodInspectionStall</h1>", `<p class="big">41s</p>`, "pod", "<code>crictl", "Does restarting the runtime help?", "41s until the kubelet stops managing pods", "the node turns NotReady in 41s to 52s", "Also active", "Stuck pods", "batch/nightly-report-28872000-k4j2p", "2 of 3 pods inspected"}},
		"unhealthy": {viewtest.Unhealthy(), []string{`<p class="big">NotReady</p>`, "<code>kill -USR1 812</code>", "NotReady: [container runtime is down", "under way for 1m11s", "kill -USR1"}},
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
	d.Next, d.Reason, d.RunnerUp, d.State, d.PlegdVersion = evil, evil, evil, evil, evil
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
	if p := view.NewPlot(d, nil); p != nil {
		t.Error("a plot of nothing")
	}
	recent := make([]view.RelistBin, view.HistoryBins)
	recent[50] = view.RelistBin{Slowest: time.Millisecond, Relists: 5}
	recent[60] = view.RelistBin{Slowest: 12 * time.Second, Relists: 1}
	recent[70] = view.RelistBin{Slowest: time.Second, Relists: 5, Failed: 1}
	p := view.NewPlot(d, recent)
	class := map[int]string{}
	for _, b := range p.Bars {
		class[b.X] = b.Class
	}
	// The slow one of 12 s went through two bins before its own; the one under
	// way has been there for 71 s, which are 15 bins.
	for x, want := range map[int]string{49: "", 50: "ok", 57: "", 58: "slow", 59: "slow", 60: "slow", 70: "bad", 104: "", 105: "now", 119: "now"} {
		if class[x] != want {
			t.Errorf("the bar at %d is %q, want %q", x, class[x], want)
		}
	}
	if want := "11 relists ended, 1 of them failed; the slowest took 1m11s; one is under way for 1m11s."; p.Summary != want {
		t.Errorf("the summary is %q, want %q", p.Summary, want)
	}
	// 1 ms is the lower edge, 1000 s the upper one.
	for s, want := range map[float64]float64{0: 0, .001: 0, 1: view.PlotHeight / 2, 1000: view.PlotHeight, 1e6: view.PlotHeight} {
		if got := view.PlotY(s); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v s are %v high, want %v", s, got, want)
		}
	}
	if source := contentSource(t, Content{Snapshot: d, Recent: recent}); elements(t, source)["rect"] != len(p.Bars) {
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
	if n := strings.Count(source, `href="`+view.PathIncidents+"/"+viewtest.IncidentID+`"`); n != maxIncidents {
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
