package server

import (
	"bytes"
	"html"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/view/page"
	"github.com/plegd/plegd/internal/view/text"
)

func textOf(t *testing.T, d *health.Snapshot, color bool) string {
	t.Helper()
	var b bytes.Buffer
	if err := text.WriteStatusText(&b, d, color); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// pageOf returns the page of d with its entities resolved.
func pageOf(t *testing.T, d *health.Snapshot) string {
	t.Helper()
	w := httptest.NewRecorder()
	page.New().Serve(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody), page.Content{Snapshot: d})
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return html.UnescapeString(w.Body.String())
}
