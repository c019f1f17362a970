package view

import (
	"encoding/xml"
	"errors"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/test/viewtest"
)

// render returns the source of a page and counts its elements, which must be well formed.
func render(t *testing.T, path string, d *Document) (source string, elements map[string]int) {
	t.Helper()
	w := httptest.NewRecorder()
	d.ServePage(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	source, elements = w.Body.String(), map[string]int{}
	if w.Code != http.StatusOK && w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != "text/html; charset=utf-8" {
		t.Fatalf("%d %v: %s", w.Code, w.Header(), source)
	}
	// As HTML, but for the script and the style sheet, which hold what XML does not allow.
	plain := strings.NewReplacer(pageJS, "", pageCSS, "").Replace(source)
	x := xml.NewDecoder(strings.NewReader(plain))
	x.Strict, x.AutoClose, x.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := x.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not well formed: %v\n%s", err, source)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements[e.Name.Local]++
		}
	}
	if elements["img"]+elements["link"] > 0 || strings.Contains(source, " style=") || strings.Contains(source, "ZgotmplZ") {
		t.Errorf("the page wants more than its content policy allows:\n%s", source)
	}
	if elements["script"] != 1 || !strings.Contains(source, "<script>"+pageJS+"</script>") || elements["style"] != 1 || !strings.Contains(source, "<style>"+pageCSS+"</style>") {
		t.Error("the script or the style sheet is not in the page as its hash was made")
	}
	if strings.ContainsAny(source, "\x1b\u202e") {
		t.Error("control characters are in the page")
	}
	return source, elements
}

// recent are ten minutes that end with a stall since s was last seen.
func recent(s *facts.Snapshot) []RelistBin {
	bins := make([]RelistBin, HistoryBins)
	for i := range bins {
		if s.LastSeen.After(s.At.Add(time.Duration(i+1-HistoryBins) * historyBin)) {
			bins[i] = RelistBin{Slowest: time.Duration(9+i*7%13) * time.Millisecond, Relists: 5, State: facts.StateHealthy}
		}
	}
	return bins
}

func ofIncident(one *incident.Incident) *Document { return Incident(one, new(viewtest.Stalled())) }

func TestPages(t *testing.T) {
	stalled, unhealthy := new(viewtest.Stalled()), new(viewtest.Unhealthy())
	one := viewtest.Incident()
	open := viewtest.Incident()
	open.Closed, open.Outcome, open.Timeline = nil, incident.Open, open.Timeline[:1]
	empty := &incident.Incident{Summary: one.Summary}
	for name, tt := range map[string]struct {
		path string
		doc  *Document
		want []string
		not  string
	}{
		"starting": {"/", Status(Content{Snapshot: new(viewtest.Starting())}), []string{
			"<h1>Starting</h1>", "no socket found", `<p class="big">starting</p>`, "<dt>Kubelet</dt>", `data-live>`,
		}, `id="incidents"`},
		"healthy": {"/", Status(Content{Snapshot: new(viewtest.Healthy())}), []string{
			"<title>healthy: All is well - worker-7 - plegd</title>", `<p class="node">worker-7</p>`, "<h1>All is well</h1>", `<p class="big">Ready</p>`,
			"for 2d01h", "managing pods; the API shows Ready", "containerd 1.7.24", `href="/metrics"`, `href="/api/v1/status"`,
		}, `id="todo"`},
		"degraded": {"/", Status(Content{Snapshot: stalled, Recent: recent(stalled), Incidents: slices.Repeat([]incident.Summary{one.Summary}, 15)}), []string{
			"<h1>ShimStuck</h1>", `<p class="big">1m20s</p>`, `docs/reasons/ShimStuck.md">More</a>`, "<dt>Culprit</dt>", `<li class="culprit"><span class="kind">shim <b>culprit</b>`,
			"seen as RuntimeListStall", "the API still shows Ready for 1m20s to 1m30s", `<code>kill -CONT 4711</code><button type="button" class="copy" aria-label="copy kill -CONT 4711">`,
			"since the last successful relist", `class="bars"`, `href="/incidents/` + viewtest.IncidentID + `"`, "Also active",
		}, ""},
		"unhealthy": {"/", Status(Content{Snapshot: unhealthy}), []string{
			`<p class="big">NotReady</p>`, "<code>kill -USR1 812</code>", "<dt>Message</dt>", "under way for 1m11s", `low="30"`, `high="178.2"`,
		}, ""},
		"public": {"/", NewPublic(stalled).Document(), []string{
			"<h1>ShimStuck</h1>", ">shim; seen as RuntimeListStall</dd>", "this is the public summary", "<code>kill -CONT",
		}, "payments"},
		"incident": {"/incidents/x", ofIncident(one), []string{
			"<h1>ShimStuck</h1>", "NotReady for 33s by the model", "payments/api-7d9f8b6c5-x2x4v/app", "was stopped and was continued", "+48s",
			`<a href="/">the node now</a>`, "<code>kill -CONT", "State at",
		}, "data-live>"},
		"open incident": {"/incidents/x", ofIncident(open), []string{
			`data-live>`, "now: managing pods for another 1m20s", "It has not ended.", "stayed Ready by the model",
		}, ""},
		"incident without moments": {"/incidents/x", ofIncident(empty), []string{"ShimStuck"}, `id="state"`},
		"missing":                  {"/x", Missing("no such page"), []string{"<h1>404</h1>", "no such page"}, "data-live>"},
	} {
		t.Run(name, func(t *testing.T) {
			source, elements := render(t, tt.path, tt.doc)
			text := html.UnescapeString(source)
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in:\n%s", want, strings.NewReplacer(pageJS, "", pageCSS, "").Replace(text))
				}
			}
			if body := strings.NewReplacer(pageJS, "", pageCSS, "").Replace(text); tt.not != "" && strings.Contains(body, tt.not) {
				t.Errorf("%q is in the page", tt.not)
			}
			if n := strings.Count(source, `href="/incidents/`); name == "degraded" && (n != 10 || elements["meter"] != 1) {
				t.Errorf("%d incidents are listed, want the newest 10; %d bars", n, elements["meter"])
			}
		})
	}
}

// TestChainWithoutEnd: the last link is no culprit where the chain ends before that one.
func TestChainWithoutEnd(t *testing.T) {
	s := new(viewtest.Stalled())
	s.ChainEnd = "its shim cannot be seen"
	source, _ := render(t, "/", Status(Content{Snapshot: s}))
	if strings.Contains(source, `<li class="culprit">`) || !strings.Contains(source, "<dt>Last link</dt>") || !strings.Contains(source, "No further: its shim cannot be seen.") {
		t.Errorf("a chain that ends early:\n%s", source)
	}
}

// TestHostilePages has markup and control characters wherever something comes from outside:
// they add no element.
func TestHostilePages(t *testing.T) {
	const evil = "`\"><script>alert(1)</script><img src=x onerror=alert(1)>`\x1b[2J\u202e"
	pages := func(text string) (status, one map[string]int) {
		s, i := hostile(text)
		_, status = render(t, "/", Status(Content{Snapshot: s, Incidents: []incident.Summary{i.Summary}}))
		_, one = render(t, "/incidents/x", Incident(i, s))
		return status, one
	}
	wantStatus, wantIncident := pages(strings.NewReplacer("<", "x", ">", "x").Replace(evil))
	status, incident := pages(evil)
	if !maps.Equal(status, wantStatus) || !maps.Equal(incident, wantIncident) {
		t.Errorf("the pages fell apart: %v %v, want %v %v", status, incident, wantStatus, wantIncident)
	}
}
