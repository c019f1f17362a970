package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
)

const (
	maxScrapes    = 16 // at once; further ones get 503
	scrapeTimeout = 8 * time.Second
	judgeTimeout  = 30 * time.Second // age of the newest judgement at which plegd counts as stuck
)

// Source has the data of the answers. Reading it changes nothing and takes no lock
// that the relist loop waits for.
type Source interface {
	// Snapshot returns the newest snapshot with its ages as of a moment.
	Snapshot(moment time.Time) facts.Snapshot
	// Incidents returns the heads of the incidents, newest first. The slice is
	// shared and must not be changed.
	Incidents() []incident.Summary
}

// HandlerOptions are what a handler needs besides the source. Fields but Incident may be nil.
type HandlerOptions struct {
	Build exporter.Build
	Node  string // the host's name
	// Recent returns the relists and verdicts of the last minutes for the page's plot.
	Recent func(end time.Time) []view.RelistBin
	Access Access           // of the requests that may see more than the public summary; nil: none
	Judged func() time.Time // of the newest judgement, which is not checked without it
	// Incident reads an incident. Its error wraps incident.ErrUnknown for an unknown id.
	Incident func(ctx context.Context, id string) (*incident.Incident, error)
	Log      *zap.Logger // takes the errors of collectors, which may come with each scrape

	clock func() time.Time
}

type handler struct {
	HandlerOptions
	src Source
}

// NewHandler returns the handler of all paths. It accepts GET and HEAD.
func NewHandler(src Source, gatherer prometheus.TransactionalGatherer, opts HandlerOptions) http.Handler {
	if opts.clock == nil {
		opts.clock = time.Now
	}
	h := &handler{HandlerOptions: opts, src: src}
	mux := http.NewServeMux()
	metrics := promhttp.HandlerOpts{
		// One broken collector must not take the others with it.
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
		EnableOpenMetrics: true,
	}
	if opts.Log != nil {
		metrics.ErrorLog, _ = zap.NewStdLogAt(opts.Log, zap.WarnLevel) // fails only for an unknown level
	}
	mux.Handle("GET "+view.PathMetrics, promhttp.HandlerForTransactional(gatherer, metrics))
	mux.HandleFunc("GET "+view.PathHealthz, h.healthz)
	mux.HandleFunc("GET "+view.PathHealthy, h.healthy)
	mux.HandleFunc("GET "+view.PathReady, h.ready)
	mux.HandleFunc("GET "+view.PathStatus, h.status)
	mux.HandleFunc("GET "+view.PathIncidents, h.onlyFull(h.incidents))
	mux.HandleFunc("GET "+view.PathIncidents+"/{id}", h.onlyFull(h.oneIncident))
	mux.HandleFunc("GET "+view.PathIncidentPages+"/{id}", h.onlyFull(h.oneIncident))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { h.document(r).ServePage(w, r) })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		h.missing(w, r, "not found; see /")
	})
	return secure(mux)
}

// healthz is the node's health: 503 while the kubelet no longer manages pods by its rules.
func (h *handler) healthz(w http.ResponseWriter, r *http.Request) {
	s := h.snapshot()
	line := string(s.State)
	if s.Reason != "" {
		line += ": " + s.Reason
	}
	if !h.full(r) {
		s.KubeletMessage = view.PublicMessage(s.KubeletMessage)
	}
	if message := view.Message(s); message != "" {
		line += "\nkubelet: " + plain.Text(message)
	}
	writeProbe(w, s.State != facts.StateUnhealthy, line, line)
}

// healthy is plegd's own liveness.
func (h *handler) healthy(w http.ResponseWriter, _ *http.Request) {
	writeProbe(w, h.Judged == nil || h.clock().Sub(h.Judged()) <= judgeTimeout, "plegd is alive",
		"plegd is stuck: nothing was judged for "+facts.Seconds(judgeTimeout))
}

// ready reports whether the first relist has been attempted.
func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	writeProbe(w, h.snapshot().Ready, "plegd is ready", "plegd is starting: no relist has been attempted yet")
}

// writeProbe answers 200 if ok, else 503.
func writeProbe(w http.ResponseWriter, ok bool, yes, no string) {
	if ok {
		writeText(w, http.StatusOK, yes)
	} else {
		writeText(w, http.StatusServiceUnavailable, no)
	}
}

func (h *handler) snapshot() *facts.Snapshot {
	s := h.src.Snapshot(h.clock())
	s.PlegdVersion = h.Build.Version
	s.Node = h.Node
	s.Previous = nil
	return &s
}

// status answers with JSON, or with ?o=text or ?o=line for a terminal.
func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	s := h.snapshot()
	public := view.NewPublic(s)
	format := r.URL.Query().Get("o")
	switch {
	case format == "line": // has no text of the node
		writeText(w, http.StatusOK, view.Line(public.Snapshot()))
	case format == "text":
		w.Header().Set("Content-Type", textType)
		_ = h.document(r).WriteText(w, false)
	case h.full(r):
		writeJSON(w, s)
	default:
		writeJSON(w, public)
	}
}

// document is the status that a client may see.
func (h *handler) document(r *http.Request) *view.Document {
	c := view.Content{Snapshot: h.snapshot()}
	if !h.full(r) {
		return view.NewPublic(c.Snapshot).Document()
	}
	c.Incidents = h.src.Incidents()
	if h.Recent != nil {
		c.Recent = h.Recent(h.clock())
	}
	return view.Status(c)
}

// full reports whether a request may see more than the public summary.
func (h *handler) full(r *http.Request) bool { return h.Access != nil && h.Access(r) }

// onlyFull answers 403 to requests that may see only the public summary.
func (h *handler) onlyFull(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.full(r) {
			writeText(w, http.StatusForbidden, "incidents hold names of pods: ask on the node (plegd incidents), or with the "+
				"authentication of --web.config.file")
			return
		}
		next(w, r)
	}
}

func (h *handler) incidents(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, append([]incident.Summary{}, h.src.Incidents()...)) // [] for none
}

// oneIncident answers with an incident as JSON or as a page, by the path.
func (h *handler) oneIncident(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	one, err := h.Incident(r.Context(), id)
	switch {
	case errors.Is(err, incident.ErrUnknown):
		h.missing(w, r, "no incident has the id "+plain.Text(id)+"; "+view.PathIncidents+" lists them")
	case err != nil:
		writeText(w, http.StatusServiceUnavailable, plain.Text(err.Error()))
	case strings.HasPrefix(r.URL.Path, view.PathIncidentPages):
		view.Incident(one, h.snapshot()).ServePage(w, r)
	default:
		writeJSON(w, one)
	}
}

// missing answers 404: a page to a browser, a line to a program.
func (h *handler) missing(w http.ResponseWriter, r *http.Request, line string) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		view.Missing(line).ServePage(w, r)
		return
	}
	writeText(w, http.StatusNotFound, line)
}

// secure sets the headers that keep a browser from doing more with an answer than
// showing it. A header of --web.config.file takes precedence.
func secure(next http.Handler) http.Handler {
	headers := map[string]string{
		"Content-Security-Policy":      view.CSP(),
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "deny",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store",
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			if w.Header().Get(name) == "" {
				w.Header().Set(name, value)
			}
		}
		next.ServeHTTP(w, r)
	})
}

const textType = "text/plain; charset=utf-8"

func writeText(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", textType)
	w.WriteHeader(code)
	_, _ = fmt.Fprintln(w, line)
}

// writeJSON answers with v, indented for people.
func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if err := view.WriteJSON(w, v); err != nil { // of a broken connection, or nothing was written
		writeText(w, http.StatusInternalServerError, err.Error())
	}
}
