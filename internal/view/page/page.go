package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

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

// docs is where the pages of the reasons are.
const docs = "https://github.com/plegd/plegd/blob/main/docs/reasons/"

// pageRefresh is how often, in seconds, the page loads itself again in a browser
// that runs no scripts.
const pageRefresh = 5

// Page serves the status, an incident, the public summary or an error as one file without
// references, because it may be read through several port forwards. Its script only fetches
// the page again and copies commands.
type Page struct {
	// tmpl is parsed on first use: most nodes are never looked at.
	tmpl func() *template.Template
	// Csp allows the page's own style sheet and script, by their hashes, and what
	// the script fetches.
	Csp string
}

// New returns the page.
func New() *Page {
	return &Page{
		tmpl: sync.OnceValue(func() *template.Template {
			return template.Must(template.New("page").Funcs(template.FuncMap{"parts": parts, "groups": groups}).Parse(pageHTML))
		}),
		Csp: "default-src 'none'; style-src " + hashSource(pageCSS) + "; script-src " + hashSource(pageJS) +
			"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	}
}

// hashSource allows an element of the page with exactly this content.
func hashSource(content string) string {
	hash := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// data is what the template gets.
type data struct {
	*view.Document
	CSS  template.CSS
	JS   template.JS
	Docs string
	// Refresh is in seconds, 0 for a page that does not load itself again. Paused is
	// true for one that ?refresh=0 keeps from it.
	Refresh int
	Paused  bool
	Version string
	At      time.Time
	// Home is true for the page of the node now.
	Home  bool
	Links [][2]string
}

// links are the other things that plegd serves.
var links = [][2]string{
	{view.PathMetrics, "metrics for Prometheus"},
	{view.PathStatus, "this page as JSON"},
	{view.PathIncidents, "incidents as JSON"},
	{view.PathHealthz, "the node's health: 503 when the kubelet would report NotReady"},
	{view.PathHealthy, "plegd itself: alive"},
	{view.PathReady, "plegd itself: first relist attempted"},
}

// Serve writes the status page.
func (p *Page) Serve(w http.ResponseWriter, r *http.Request, c view.Content) {
	p.write(w, r, view.Status(c), c.Snapshot, true)
}

// ServePublic writes the public summary.
func (p *Page) ServePublic(w http.ResponseWriter, r *http.Request, pub *view.Public) {
	p.write(w, r, pub.Document(), pub.Snapshot(), true)
}

// ServeIncident writes the page of one incident. now is the present snapshot.
func (p *Page) ServeIncident(w http.ResponseWriter, r *http.Request, one *incident.Incident, now *health.Snapshot) {
	p.write(w, r, view.Incident(one, now), now, one.Closed == nil)
}

// ServeMissing answers 404.
func (p *Page) ServeMissing(w http.ResponseWriter, r *http.Request, text string) {
	p.write(w, r, &view.Document{Title: notFound, Meaning: text}, &health.Snapshot{At: time.Now()}, false)
}

// notFound is the title of the page of an error.
const notFound = "404"

// write makes a page whole before its first byte is sent, so that an error cannot
// leave half of it behind. now is the present; a page that does not change is not live.
func (p *Page) write(w http.ResponseWriter, r *http.Request, d *view.Document, now *health.Snapshot, live bool) {
	to := data{
		Document: d, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Docs: docs,
		Version: view.Say(now.PlegdVersion), At: now.At, Home: r.URL.Path == "/", Links: links,
		Paused: live && r.URL.Query().Get("refresh") == "0",
	}
	if live && !to.Paused {
		to.Refresh = pageRefresh
	}
	code := http.StatusOK
	if d.Title == notFound {
		code = http.StatusNotFound
	}
	var b bytes.Buffer
	if err := p.tmpl().Execute(&b, &to); err != nil {
		text := "making the page failed: " + err.Error() + "; " + view.PathStatus + " has the same facts as JSON"
		http.Error(w, text, http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

// group is sections that stand side by side on a wide screen.
type group struct{ Left, Right []view.Section }

// groups puts the sections of the two columns side by side.
func groups(sections []view.Section) (out []group) {
	last := 0
	for _, s := range sections {
		if s.Column == 0 || last == 0 {
			out = append(out, group{})
		}
		g := &out[len(out)-1]
		if last = s.Column; last == 2 {
			g.Right = append(g.Right, s)
		} else {
			g.Left = append(g.Left, s)
		}
	}
	return out
}

// part is a piece of a text: words, or a command.
type part struct {
	Text string
	Code bool
}

// parts splits a text at the backticks around its commands.
func parts(s string) (out []part) {
	for i, text := range strings.Split(s, "`") {
		if i > 0 && i%2 == 0 { // after a command, which has a line of its own
			text = strings.TrimLeft(text, ":,; ")
		}
		if text != "" {
			out = append(out, part{Text: text, Code: i%2 == 1})
		}
	}
	return out
}
