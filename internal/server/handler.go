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
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/incident"
	"github.com/plegd/plegd/internal/logging"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/page"
	"github.com/plegd/plegd/internal/view/text"
)

const (
	// maxScrapes is the number of concurrent scrapes; further ones get 503.
	maxScrapes    = 16
	scrapeTimeout = 8 * time.Second
	// judgeTimeout is the age of the newest judgement at which plegd counts as
	// stuck.
	judgeTimeout = 30 * time.Second
)

// Source has the data of the answers. Reading it changes nothing and takes no lock
// that the relist loop waits for.
type Source interface {
	// Snapshot returns the newest snapshot with its ages as of now.
	Snapshot(now time.Time) health.Snapshot
	// Incidents returns the heads of the incidents, newest first. The slice is
	// shared and must not be changed.
	Incidents() []incident.Summary
}

// Incidents has whole incidents.
type Incidents interface {
	// Get may read a file. Its error wraps incident.ErrUnknown for an unknown id.
	Get(ctx context.Context, id string) (*incident.Incident, error)
}

// HandlerOptions are what a handler needs besides the source.
type HandlerOptions struct {
	Build exporter.Build
	// Node is the host's name.
	Node string
	// Recent returns the relists and verdicts of the last minutes for the page's
	// plot; nil: no plot.
	Recent func(now time.Time) view.Recent
	// Access says which requests may see more than the public summary; nil: none.
	Access Access
	// Judged returns the time of the newest judgement; nil: it is not checked.
	Judged func() time.Time
	// Incidents answers for one incident; nil: none is kept.
	Incidents Incidents
	// Log takes the errors of collectors; nil discards them.
	Log *zap.Logger
}

type handler struct {
	src     Source
	opts    HandlerOptions
	page    *page.Page
	now     func() time.Time
	reading chan struct{} // holds a value while an incident is read and sent
}

// NewHandler returns the handler of all paths. It accepts GET and HEAD.
func NewHandler(src Source, gatherer prometheus.TransactionalGatherer, opts HandlerOptions) http.Handler {
	return newHandler(src, gatherer, opts, time.Now)
}

func newHandler(src Source, gatherer prometheus.TransactionalGatherer, opts HandlerOptions,
	now func() time.Time) http.Handler {
	if opts.Access == nil {
		opts.Access = func(*http.Request) bool { return false }
	}
	if opts.Log == nil {
		opts.Log = zap.NewNop()
	}
	h := &handler{src: src, opts: opts, page: page.New(), now: now, reading: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.Handle(view.PathMetrics, metricsHandler(gatherer, opts.Log))
	mux.HandleFunc(view.PathHealthz, h.healthz)
	mux.HandleFunc(view.PathHealthy, h.healthy)
	mux.HandleFunc(view.PathReady, h.ready)
	mux.HandleFunc(view.PathStatus, h.status)
	mux.HandleFunc(view.PathIncidents, h.full(h.incidents))
	mux.HandleFunc(view.PathIncidents+"/{id}", h.full(h.incident))
	mux.HandleFunc(view.PathIncidentPages+"/{id}", h.full(h.incidentPage))
	mux.HandleFunc("/{$}", h.index)
	mux.HandleFunc("/", h.notFound)
	return secure(h.page.Csp, mux)
}

func metricsHandler(gatherer prometheus.TransactionalGatherer, log *zap.Logger) http.Handler {
	return promhttp.HandlerForTransactional(gatherer, promhttp.HandlerOpts{
		ErrorLog: &errorLog{log: log},
		// One broken collector must not take the others with it.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		EnableOpenMetrics:   true,
	})
}

// errorLog logs each change of the collectors' error.
type errorLog struct {
	log  *zap.Logger
	last logging.OnChange[string]
}

// Println implements promhttp.Logger.
func (e *errorLog) Println(v ...any) {
	text := strings.TrimSpace(fmt.Sprintln(v...))
	if _, changed := e.last.Set(text); changed {
		e.log.Warn(text)
	}
}

// healthz is the node's health: 503 while the kubelet no longer manages pods by
// its rules.
func (h *handler) healthz(w http.ResponseWriter, r *http.Request) {
	v := h.snapshot().Verdict
	code, line, message := http.StatusOK, string(v.State), v.KubeletMessage
	if v.State == health.StateUnhealthy {
		code = http.StatusServiceUnavailable
	}
	if v.Reason != "" {
		line += ": " + v.Reason
	}
	if !h.opts.Access(r) {
		message = view.PublicMessage(message)
	}
	if message != "" {
		line += "\nkubelet: " + plain.Text(message)
	}
	writeText(w, code, line)
}

// healthy is plegd's own liveness.
func (h *handler) healthy(w http.ResponseWriter, _ *http.Request) {
	if h.opts.Judged != nil && h.now().Sub(h.opts.Judged()) > judgeTimeout {
		writeText(w, http.StatusServiceUnavailable, "plegd is stuck: nothing was judged for "+health.Seconds(judgeTimeout))
		return
	}
	writeText(w, http.StatusOK, "plegd is alive")
}

// ready reports whether the first relist has been attempted.
func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if !h.src.Snapshot(h.now()).Ready {
		writeText(w, http.StatusServiceUnavailable, "plegd is starting: no relist has been attempted yet")
		return
	}
	writeText(w, http.StatusOK, "plegd is ready")
}

func (h *handler) snapshot() *health.Snapshot {
	s := h.src.Snapshot(h.now())
	s.PlegdVersion, s.Node, s.Previous = h.opts.Build.Version, h.opts.Node, nil
	return &s
}

// status answers with JSON, or with ?o=text or ?o=line for a terminal.
func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	s := h.snapshot()
	full, pub := h.opts.Access(r), view.NewPublic(s)
	switch r.URL.Query().Get("o") {
	case "line": // has no text of the node
		writeText(w, http.StatusOK, view.Line(pub.Snapshot()))
	case "text":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if full {
			_ = text.WriteStatusText(w, s, false)
			return
		}
		_ = text.WritePublicText(w, pub, false)
	default:
		if full {
			writeJSON(w, s)
			return
		}
		writeJSON(w, pub)
	}
}

func (h *handler) index(w http.ResponseWriter, r *http.Request) {
	s := h.snapshot()
	if !h.opts.Access(r) {
		h.page.ServePublic(w, r, view.NewPublic(s))
		return
	}
	var recent view.Recent
	if h.opts.Recent != nil {
		recent = h.opts.Recent(h.now())
	}
	h.page.Serve(w, r, view.Content{Snapshot: s, Incidents: h.src.Incidents(), Recent: recent})
}

// full answers 403 to requests that may see only the public summary.
func (h *handler) full(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.opts.Access(r) {
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

func (h *handler) incident(w http.ResponseWriter, r *http.Request) {
	h.withIncident(w, r, func(one *incident.Incident) { writeJSON(w, one) })
}

func (h *handler) incidentPage(w http.ResponseWriter, r *http.Request) {
	h.withIncident(w, r, func(one *incident.Incident) { h.page.ServeIncident(w, r, one, h.snapshot()) })
}

// withIncident calls answer with the incident of the path, or answers why there is
// none. An incident may be megabytes, so only one is held at once.
func (h *handler) withIncident(w http.ResponseWriter, r *http.Request, answer func(*incident.Incident)) {
	select {
	case h.reading <- struct{}{}:
		defer func() { <-h.reading }()
	case <-r.Context().Done():
		return
	}
	id, err := r.PathValue("id"), incident.ErrUnknown
	var one *incident.Incident
	if h.opts.Incidents != nil {
		one, err = h.opts.Incidents.Get(r.Context(), id)
	}
	switch {
	case errors.Is(err, incident.ErrUnknown):
		h.missing(w, r, "no incident has the id "+plain.Text(id)+"; "+view.PathIncidents+" lists them")
	case err != nil:
		writeText(w, http.StatusServiceUnavailable, plain.Text(err.Error()))
	default:
		answer(one)
	}
}

func (h *handler) notFound(w http.ResponseWriter, r *http.Request) {
	h.missing(w, r, "no such page; / lists what there is")
}

// missing answers 404: a page to a browser, a line to a program.
func (h *handler) missing(w http.ResponseWriter, r *http.Request, line string) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		h.page.ServeMissing(w, r, line)
		return
	}
	writeText(w, http.StatusNotFound, line)
}

// secure refuses methods that could be meant to change something, and sets the
// headers that keep a browser from doing more with an answer than showing it. A
// header of --web.config.file takes precedence.
func secure(csp string, next http.Handler) http.Handler {
	headers := map[string]string{
		"Content-Security-Policy":      csp,
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
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeText(w, http.StatusMethodNotAllowed, "plegd answers only GET and HEAD: nothing can be changed over HTTP")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func writeText(w http.ResponseWriter, code int, line string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
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
