package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"

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
	view.StatusDocument
	// Doc is the same document, for the phrases.
	Doc     *view.StatusDocument
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

	Primary       *view.ReasonDocument
	Others        []view.ReasonDocument
	OperationRows []view.OperationRow
	PodTables     []podTable
	IncidentRows  []incidentRow
	Links         []pageLink
}

// podTable is one list of pods.
type podTable struct {
	ID, Title, Took string
	Rows            []view.PodInspectionDocument
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

func newPageData(d *view.StatusDocument) pageData {
	data := pageData{StatusDocument: *d, Doc: d, OperationRows: view.OperationRows(d), Links: pageLinks()}
	data.IncidentRows = incidentRows(d)
	data.Primary, data.Others = view.SplitReasons(d)
	data.Headline, data.Clock, data.Plot = headline(d), newPageClock(d), view.NewPlot(d)
	if data.Primary != nil {
		data.Meaning, data.Restart = runbook(d, data.Primary.ID)
		for _, step := range d.Steps {
			data.StepParts = append(data.StepParts, stepParts(view.Say(step)))
		}
	}
	for _, t := range []podTable{
		{"stuck", "Stuck pods", "Under way", d.Pods.Stuck},
		{"failing", "Failing pods", "Took", d.Pods.Failing},
		{"slowest", "Slowest pods", "Took", d.Pods.Slowest},
	} {
		if len(t.Rows) > 0 {
			data.PodTables = append(data.PodTables, t)
		}
	}
	return data
}

// Serve writes the page. It is made whole before its first byte is sent, so
// that an error cannot leave half of it behind. ?refresh=0 makes it hold still.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, d *view.StatusDocument) {
	data := newPageData(d)
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
		"say":         view.Say,
		"seconds":     view.FormatSeconds,
		"since":       view.PhraseFor,
		"kubelet":     view.PhraseKubelet,
		"timeLeft":    view.PhraseTimeLeft,
		"lastSeen":    view.PhraseLastSeen,
		"inFlight":    view.PhraseInFlight,
		"lastRelist":  view.PhraseLastRelist,
		"statusCheck": view.PhraseStatusCheck,
		"probe":       view.PhraseProbe,
		"runtime":     view.PhraseRuntime,
		"evidence":    view.EvidenceRows,
		"events":      view.PhraseEvents,
		"pods":        view.PhrasePods,
		"pod":         view.PhrasePod,
		"failure":     view.PhraseError,
	}
}
