package exporter

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// gzipped compresses the answers of next for clients that take gzip, as
// Prometheus does. promhttp can do so by itself, at the level that makes the
// smallest body; that was more than half of what a scrape cost. Metrics repeat
// themselves so much that the fastest level saves nearly as many bytes.
func gzipped(next http.Handler) http.Handler {
	writers := &sync.Pool{New: func() any {
		w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails for an unknown level only
		return w
	}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead || !takesGzip(r.Header.Values("Accept-Encoding")) {
			next.ServeHTTP(w, r)
			return
		}
		z := writers.Get().(*gzip.Writer)
		defer writers.Put(z)
		g := &gzipWriter{ResponseWriter: w, gzip: z}
		z.Reset(w)
		next.ServeHTTP(g, r)
		if g.began {
			_ = z.Close() // the client has gone
		}
	})
}

// takesGzip tells whether an Accept-Encoding header names gzip and does not
// refuse it.
func takesGzip(values []string) bool {
	for _, value := range values {
		for offer := range strings.SplitSeq(value, ",") {
			coding, params, _ := strings.Cut(offer, ";")
			if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
				q, ok := strings.CutPrefix(strings.ReplaceAll(params, " ", ""), "q=0")
				return !ok || strings.Trim(q, ".0") != ""
			}
		}
	}
	return false
}

// gzipWriter compresses the body; an answer without one stays without.
type gzipWriter struct {
	http.ResponseWriter
	gzip  *gzip.Writer
	began bool
}

// WriteHeader says that what follows is compressed.
func (w *gzipWriter) WriteHeader(code int) {
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Del("Content-Length")
	w.began = true
	w.ResponseWriter.WriteHeader(code)
}

// Write compresses.
func (w *gzipWriter) Write(b []byte) (int, error) {
	if !w.began {
		w.WriteHeader(http.StatusOK)
	}
	return w.gzip.Write(b)
}
