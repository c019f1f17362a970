package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/internal/view/viewtest"
)

func TestGzip(t *testing.T) {
	h := testHandler(viewtest.NewSource(viewtest.Healthy()), false)
	sent := 0 // bytes of the last body
	ask := func(method, path, accept string) *http.Response {
		r := httptest.NewRequest(method, path, http.NoBody)
		if accept != "" {
			r.Header.Set("Accept-Encoding", accept)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		sent = w.Body.Len()
		return w.Result()
	}
	for accept, want := range map[string]bool{
		"": false, "identity": false, "deflate, br": false, "gzip;q=0": false, "gzip; q=0.0": false, "zstd, gzip;q=0": false,
		"gzip": true, "GZIP": true, "deflate, gzip;q=0.8": true, "gzip;q=0.01": true, "zstd,gzip": true,
	} {
		resp := ask(http.MethodGet, view.PathMetrics, accept)
		body := io.Reader(resp.Body)
		if got := resp.Header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("Accept-Encoding %q: compressed %t, want %t", accept, got, want)
			continue
		}
		if want {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		// Compressed in pieces, without what stood before, it would be larger.
		if want && sent > len(text)/3 {
			t.Errorf("Accept-Encoding %q: %d bytes of text are sent as %d", accept, len(text), sent)
		}
		if err != nil || !strings.Contains(string(text), "pleg_healthy 1\n") {
			t.Errorf("Accept-Encoding %q: %v, the body is %d bytes and does not say pleg_healthy 1", accept, err, len(text))
		}
	}
	if resp := ask(http.MethodHead, view.PathMetrics, "gzip"); resp.Header.Get("Content-Encoding") != "" {
		t.Error("an answer without a body says that it is compressed")
	}
}
