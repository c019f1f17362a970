package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/view"
)

//go:embed *.html
var templates embed.FS

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// pageRefresh is how often, in seconds, the page loads itself again in a browser
// that runs no scripts.
const pageRefresh = 5

// Page serves the status page, which is the status document for a person, and a page
// for each incident. Each is one file with nothing from elsewhere, because who looks
// at it may have come through three port forwards. Its script only fetches the page
// again.
type Page struct {
	// tmpl is made when it is first needed: most nodes are never looked at.
	tmpl func() *template.Template
	// Csp allows the page's own style sheet and script, by their hashes, and what
	// the script fetches, and nothing else.
	Csp string
	css template.CSS
	js  template.JS
}

// New returns the pages.
func New() *Page {
	return &Page{
		tmpl: sync.OnceValue(func() *template.Template {
			return template.Must(template.New("page").Funcs(pageFuncs()).ParseFS(templates, "*.html"))
		}),
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

// frame is what stands around every page.
type frame struct {
	CSS template.CSS
	JS  template.JS
	// Refresh is in seconds, 0 for a page that does not load itself again; Paused is
	// true where that was asked for.
	Refresh       int
	Paused        bool
	Title         string
	Node, Version string
	At            time.Time
	Links         []pageLink
}

// frame returns the frame of an answer. ?refresh=0 pauses updates.
func (p *Page) frame(r *http.Request, s *health.Snapshot) frame {
	f := frame{CSS: p.css, JS: p.js, Refresh: pageRefresh, Node: s.Node, Version: s.PlegdVersion, At: s.At, Links: pageLinks()}
	if r.URL.Query().Get("refresh") == "0" {
		f.Refresh, f.Paused = 0, true
	}
	return f
}

// pageData is what the template of the status page sees.
type pageData struct {
	frame
	*health.Verdict
	// Doc is the whole snapshot.
	Doc *health.Snapshot

	// Headline stands where there is no reason to name.
	Headline string
	Clock    pageClock
	// Meaning and Restart are the primary reason's, from the table; StepParts are
	// its steps in words and commands.
	Meaning   string
	StepParts [][]stepPart
	NextParts []stepPart
	Restart   string
	Plot      *view.Plot

	Primary *health.Active
	Others  []health.Active
	// Evidence is the primary reason's, without what the chain shows.
	Evidence      []string
	OperationRows []view.OperationRow
	PodTables     []podTable
	IncidentRows  []incidentRow
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
		{view.PathIncidents, "incidents as JSON"},
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
	// Recent are the last minutes; without bins there is no plot.
	Recent view.Recent
}

func newPageData(c Content, f frame) *pageData {
	s := c.Snapshot
	data := &pageData{frame: f, Verdict: &s.Verdict, Doc: s, OperationRows: view.OperationRows(s)}
	data.Title = s.Reason
	data.IncidentRows = incidentRows(c.Incidents, s.At)
	data.Primary, data.Others = view.SplitReasons(&s.Verdict)
	data.Headline, data.Clock, data.Plot = headline(s), newPageClock(s), view.NewPlot(s, c.Recent, c.Incidents)
	if data.Primary != nil {
		data.Meaning, data.Restart = view.Runbook(s.Facts.Runtime, data.Primary.ID)
		data.NextParts = stepParts(view.Say(s.Next))
		data.StepParts, data.Evidence = stepsParts(s.Steps), view.BesideChain(s, data.Primary.Evidence)
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

// Serve writes the status page.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, c Content) {
	p.write(w, http.StatusOK, "page.html", newPageData(c, p.frame(r, c.Snapshot)))
}

// publicData is what the template of the public summary sees.
type publicData struct {
	frame
	*view.Public
	At        time.Time
	Headline  string
	Clock     pageClock
	NextParts []stepPart
	StepParts [][]stepPart
}

// ServePublic writes the public summary.
func (p *Page) ServePublic(w http.ResponseWriter, r *http.Request, pub *view.Public) {
	s := pub.Snapshot()
	data := publicData{
		frame: p.frame(r, s), Public: pub, At: pub.At, Headline: cmp.Or(pub.Reason, headline(s)), Clock: newPageClock(s),
		NextParts: stepParts(pub.Next), StepParts: stepsParts(pub.Steps),
	}
	data.Title, data.Links = pub.Reason, slices.DeleteFunc(data.Links, func(l pageLink) bool { return l.Path == view.PathIncidents })
	p.write(w, http.StatusOK, "public.html", &data)
}

// missingData is what the template of a missing page sees.
type missingData struct {
	frame
	State, Text string
}

// ServeMissing answers 404.
func (p *Page) ServeMissing(w http.ResponseWriter, text string) {
	p.write(w, http.StatusNotFound, "missing.html", &missingData{frame{CSS: p.css, Links: pageLinks(), At: time.Now()}, "404", text})
}

// write makes a page whole before its first byte is sent, so that an error cannot
// leave half of it behind.
func (p *Page) write(w http.ResponseWriter, code int, name string, data any) {
	var b bytes.Buffer
	if err := p.tmpl().ExecuteTemplate(&b, name, data); err != nil {
		http.Error(w, "making the page failed: "+err.Error()+"; "+view.PathStatus+" and "+view.PathIncidents+" have the same facts as JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

func pageFuncs() template.FuncMap {
	return template.FuncMap{
		"say":          func(text any) string { return view.Say(fmt.Sprint(text)) },
		"seconds":      view.Seconds,
		"since":        view.For,
		"outlook":      view.Outlook,
		"timeLeft":     view.TimeLeft,
		"lastSeen":     view.LastSeen,
		"inFlight":     view.InFlight,
		"lastRelist":   view.LastRelist,
		"statusCheck":  view.StatusCheck,
		"settings":     view.Settings,
		"probe":        view.Probe,
		"runtime":      view.Runtime,
		"evidence":     view.EvidenceRows,
		"events":       view.Events,
		"pods":         view.Pods,
		"pod":          func(p health.PodInspection) string { return view.PodName(&p) },
		"took":         func(s *health.Snapshot, p health.PodInspection) string { return view.PodTook(s, &p) },
		"failure":      view.Error,
		"linkState":    view.LinkState,
		"showsChain":   view.ShowsChain,
		"fromCall":     view.BeginsWithCall,
		"culpritLabel": view.CulpritLabel,
		"culprit":      func(l *health.Link) string { return view.Culprit(l, true) },
		"isCulprit":    view.IsCulprit,
	}
}
