package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
)

const (
	// maxScrapes is how many scrapes run at once; further ones are told to come
	// again. It bounds what a scrape storm can cost a node in trouble.
	maxScrapes = 16
	// scrapeTimeout bounds a scrape whose collector hangs: the Go and process
	// collectors read /proc.
	scrapeTimeout = 8 * time.Second
)

// Source has what a handler answers with. Reading it changes nothing and takes no
// lock that the relist loop waits for.
type Source interface {
	// Snapshot returns the newest snapshot with its ages as of now.
	Snapshot(now time.Time) health.Snapshot
	// Incidents returns the heads of the incidents, newest first. They name no pod.
	// The slice is shared and must not be changed.
	Incidents() []incident.Summary
}

// Incidents has whole incidents.
type Incidents interface {
	// Get waits for the disk for a short while. Its error wraps
	// incident.ErrUnknown where there is none of this id.
	Get(ctx context.Context, id string) (*incident.Incident, error)
}

// HandlerOptions are what a handler needs besides the source.
type HandlerOptions struct {
	Build exporter.Build
	// Node is the host's name, which tells one port forward from the next.
	Node string
	// Recent returns what the relists of the last minutes took, and the verdicts, for
	// the page's plot; nil means that there is no plot.
	Recent func(now time.Time) view.Recent
	// Names says whether this request's answer may hold the names of pods; nil
	// means never. See NamesAlways and NamesIfAuthenticated.
	Names func(*http.Request) bool
	// Registerer takes the promhttp_* metrics; nil means none. Two handlers may
	// share one.
	Registerer prometheus.Registerer
	// Incidents answers for one incident; nil means that none is kept.
	Incidents Incidents
	// Log is told when a metric could not be collected; nil means nobody is.
	Log *zap.Logger
}

// NamesAlways lets every answer hold the names of pods: for the control socket,
// which only its owner can open.
func NamesAlways(*http.Request) bool { return true }

// handler answers from snapshots.
type handler struct {
	src  Source
	opts HandlerOptions
	page *page.Page
	now  func() time.Time
	// turns holds an element for each incident that is being answered.
	turns chan struct{}
}

// NewHandler returns the handler of everything that plegd serves over HTTP. It
// takes GET and HEAD only.
func NewHandler(src Source, gatherer prometheus.TransactionalGatherer, opts HandlerOptions) http.Handler {
	return newHandler(src, gatherer, opts, time.Now)
}

func newHandler(src Source, gatherer prometheus.TransactionalGatherer, opts HandlerOptions, now func() time.Time) http.Handler {
	if opts.Names == nil {
		opts.Names = func(*http.Request) bool { return false }
	}
	if opts.Log == nil {
		opts.Log = zap.NewNop()
	}
	h := &handler{src: src, opts: opts, page: page.New(), now: now, turns: make(chan struct{}, maxReaders)}

	mux := http.NewServeMux()
	mux.Handle(view.PathMetrics, metricsHandler(gatherer, opts))
	mux.HandleFunc(view.PathHealthz, h.healthz)
	mux.HandleFunc(view.PathHealthy, h.healthy)
	mux.HandleFunc(view.PathReady, h.ready)
	mux.HandleFunc(view.PathStatus, h.status)
	mux.HandleFunc(view.PathHistory, h.history)
	mux.HandleFunc(view.PathIncidents, h.incidents)
	mux.HandleFunc(view.PathIncidents+"/{id}", h.incident)
	mux.HandleFunc(view.PathIncidentPages+"/{id}", h.incidentPage)
	mux.HandleFunc("/{$}", h.index)
	mux.HandleFunc("/", notFound)
	return secure(h.page.Csp, readOnly(mux))
}

func metricsHandler(gatherer prometheus.TransactionalGatherer, opts HandlerOptions) http.Handler {
	scrape := promhttp.HandlerForTransactional(gatherer, promhttp.HandlerOpts{
		ErrorLog: &scrapeErrors{log: opts.Log},
		// One broken collector must not take the others with it.
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            opts.Registerer,
		MaxRequestsInFlight: maxScrapes,
		EnableOpenMetrics:   true,
		DisableCompression:  true, // see gzipped
	})
	// promhttp's own timeout would hold the answer as it is before it is
	// compressed, in a buffer that each scrape grows from nothing.
	h := http.TimeoutHandler(gzipped(scrape), scrapeTimeout, "Collecting the metrics took longer than "+scrapeTimeout.String()+".\n")
	if opts.Registerer == nil {
		return h
	}
	return promhttp.InstrumentMetricHandler(opts.Registerer, h)
}

// scrapeErrors logs why a metric could not be collected.
type scrapeErrors struct {
	log  *zap.Logger
	last logging.OnChange[string]
}

func (l *scrapeErrors) Println(v ...any) {
	text := fmt.Sprint(v...)
	if _, changed := l.last.Set(text); changed {
		l.log.Warn("some metrics could not be collected; the others are served", zap.String("error", text))
	}
}

// healthz is the node's health: 503 when plegd's verdict is that by its own rules
// the kubelet no longer manages pods.
func (h *handler) healthz(w http.ResponseWriter, r *http.Request) {
	v := h.snapshot(r).Verdict
	code := http.StatusOK
	if v.State == health.StateUnhealthy {
		code = http.StatusServiceUnavailable
	}
	writeText(w, code, func(w io.Writer) {
		if v.Reason == "" {
			fmt.Fprintf(w, "%s\n", v.State)
		} else {
			fmt.Fprintf(w, "%s: %s\n", v.State, v.Reason)
		}
		if v.KubeletMessage != "" {
			// Escaped, because who asks is likely to sit at a terminal.
			fmt.Fprintf(w, "kubelet: %s\n", plain.Text(v.KubeletMessage))
		}
	})
}

// healthy says that plegd itself is alive: that it answers is the answer.
func (h *handler) healthy(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusOK, func(w io.Writer) { fmt.Fprintln(w, "plegd is alive") })
}

// ready says whether the first relist has been attempted: from then on what
// plegd says of the node means something, whatever came of the attempt.
func (h *handler) ready(w http.ResponseWriter, _ *http.Request) {
	if !h.src.Snapshot(h.now()).Ready {
		writeText(w, http.StatusServiceUnavailable, func(w io.Writer) {
			fmt.Fprintln(w, "plegd is starting: no relist has been attempted yet")
		})
		return
	}
	writeText(w, http.StatusOK, func(w io.Writer) { fmt.Fprintln(w, "plegd is ready") })
}

// snapshot is what this request may see of the newest one.
func (h *handler) snapshot(r *http.Request) *health.Snapshot {
	s := h.src.Snapshot(h.now())
	s.PlegdVersion, s.Node, s.Previous = h.opts.Build.Version, h.opts.Node, nil
	if h.opts.Names(r) {
		return &s
	}
	return health.NamesIn(&s).Redact(&s)
}

func (h *handler) status(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, h.snapshot(r))
}

func (h *handler) index(w http.ResponseWriter, r *http.Request) {
	h.page.Serve(w, r, page.Content{Snapshot: h.snapshot(r), Incidents: h.src.Incidents(), Recent: h.recent(), Names: h.opts.Names(r)})
}

func (h *handler) recent() view.Recent {
	if h.opts.Recent == nil {
		return view.Recent{}
	}
	return h.opts.Recent(h.now())
}

// history answers with the relists and verdicts of the last minutes. They name
// nobody.
func (h *handler) history(w http.ResponseWriter, _ *http.Request) { writeJSON(w, h.recent()) }

func notFound(w http.ResponseWriter, _ *http.Request) {
	writeText(w, http.StatusNotFound, func(w io.Writer) {
		fmt.Fprintln(w, "no such page; / lists what there is")
	})
}

func writeText(w http.ResponseWriter, code int, body func(io.Writer)) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	body(w)
}

// writeJSON answers with v, indented for people.
func writeJSON(w http.ResponseWriter, v any) {
	b, err := encodeJSON(v)
	if err != nil {
		http.Error(w, "encoding the answer failed: "+err.Error()+"; report this as a bug in plegd", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write(b)
}

func encodeJSON(v any) ([]byte, error) {
	b, err := health.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := json.Indent(&out, plain.JSON(b), "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
