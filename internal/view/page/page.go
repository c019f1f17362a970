package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// pageRefresh is how often, in seconds, the page loads itself again in a browser
// that runs no scripts.
const pageRefresh = 5

// Page is the status page: the status document for a person. It is one file
// with nothing from elsewhere, because who looks at it may have come through
// three port forwards. Its script only fetches the page again.
type Page struct {
	tmpl *template.Template
	// Csp allows the page's own style sheet and script, by their hashes, and what
	// the script fetches, and nothing else.
	Csp string
	css template.CSS
	js  template.JS
}

// New returns the status page.
func New() *Page {
	return &Page{
		tmpl: template.Must(template.New("page").Funcs(pageFuncs()).Parse(pageHTML)),
		Csp: strings.Join([]string{
			"default-src 'none'",
			"style-src " + hashSource(pageCSS),
			"script-src " + hashSource(pageJS),
			"connect-src 'self'",
			"base-uri 'none'",
			"form-action 'none'",
			"frame-ancestors 'none'",
		}, "; "),
		css: template.CSS(pageCSS),
		js:  template.JS(pageJS),
	}
}

// hashSource allows an element of the page with exactly this content.
func hashSource(content string) string {
	hash := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// pageData is what the template sees.
type pageData struct {
	*health.Snapshot
	// Doc is the same snapshot, for the phrases.
	Doc     *health.Snapshot
	CSS     template.CSS
	JS      template.JS
	Refresh int

	// Headline stands where there is no reason to name.
	Headline string
	Clock    pageClock
	// Meaning and Restart are the primary reason's, from the table; StepParts are
	// its steps in words and commands.
	Meaning   string
	StepParts [][]stepPart
	Restart   string
	Plot      *view.Plot

	Primary       *health.Active
	Others        []health.Active
	OperationRows []view.OperationRow
	PodTables     []podTable
	IncidentRows  []incidentRow
	Links         []pageLink
}

// podTable is one list of pods.
type podTable struct {
	ID, Title, Took string
	Rows            []health.PodInspection
}

// pageLink is one of the other things that plegd serves.
type pageLink struct{ Path, What string }

func pageLinks() []pageLink {
	return []pageLink{
		{view.PathMetrics, "metrics for Prometheus"},
		{view.PathStatus, "this page as JSON"},
		{view.PathIncidents, "what went wrong, as JSON"},
		{view.PathHealthz, "the node's health: 503 when the kubelet would report NotReady"},
		{view.PathHealthy, "plegd itself: alive"},
		{view.PathReady, "plegd itself: first relist attempted"},
	}
}

// Content is what a page shows.
type Content struct {
	Snapshot *health.Snapshot
	// Incidents are listed, newest first.
	Incidents []incident.Summary
	// Recent are the relists of the last minutes; none: there is no plot.
	Recent []view.RelistBin
}

func newPageData(c Content) pageData {
	s := c.Snapshot
	data := pageData{Snapshot: s, Doc: s, OperationRows: view.OperationRows(s), Links: pageLinks()}
	data.IncidentRows = incidentRows(c.Incidents, s.At)
	data.Primary, data.Others = view.SplitReasons(&s.Verdict)
	data.Headline, data.Clock, data.Plot = headline(s), newPageClock(s), view.NewPlot(s, c.Recent)
	if data.Primary != nil {
		data.Meaning, data.Restart = runbook(s, data.Primary.ID)
		for _, step := range s.Steps {
			data.StepParts = append(data.StepParts, stepParts(view.Say(step)))
		}
	}
	for _, t := range []podTable{
		{"stuck", "Stuck pods", "Under way", view.StuckPods(s)},
		{"failing", "Failing pods", "Took", s.Facts.Relist.Failing},
		{"slowest", "Slowest pods", "Took", s.Facts.Relist.Slowest},
	} {
		if len(t.Rows) > 0 {
			data.PodTables = append(data.PodTables, t)
		}
	}
	return data
}

// Serve writes the page. It is made whole before its first byte is sent, so that
// an error cannot leave half of it behind. ?refresh=0 pauses updates.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, c Content) {
	data := newPageData(c)
	data.CSS, data.JS = p.css, p.js
	if r.URL.Query().Get("refresh") != "0" {
		data.Refresh = pageRefresh
	}
	var b bytes.Buffer
	if err := p.tmpl.Execute(&b, data); err != nil {
		http.Error(w, "making the page failed: "+err.Error()+"; "+view.PathStatus+" has the same facts as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes())
}

func pageFuncs() template.FuncMap {
	return template.FuncMap{
		"say":         func(text any) string { return view.Say(fmt.Sprint(text)) },
		"seconds":     view.Seconds,
		"since":       view.For,
		"kubelet":     view.Kubelet,
		"timeLeft":    view.TimeLeft,
		"lastSeen":    view.LastSeen,
		"inFlight":    view.InFlight,
		"lastRelist":  view.LastRelist,
		"statusCheck": view.StatusCheck,
		"settings":    view.Settings,
		"probe":       view.Probe,
		"runtime":     view.Runtime,
		"evidence":    view.EvidenceRows,
		"events":      view.Events,
		"pods":        view.Pods,
		"pod":         func(p health.PodInspection) string { return view.PodName(&p) },
		"took":        func(s *health.Snapshot, p health.PodInspection) string { return view.PodTook(s, &p) },
		"failure":     view.Error,
	}
}
