package cri

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// TestGetOnlyReads: no page but those of the list reaches the runtime, and no redirect is
// followed.
func TestGetOnlyReads(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.Listen("unix", socket)
	must.Do(t, err)
	var reached []string
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reached = append(reached, r.Method+" "+r.URL.String())
		if r.URL.Path == PageInfo {
			http.Redirect(w, r, "/pause/x", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("0123456789"))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })

	for _, page := range []string{
		"/pause/x", "/unpause/x", "/debug/heap", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine", "/containers/x", "/config",
		"/debug/pprof/profile", "/info/../pause/x", "//pause/x", "http://other/info", "",
	} {
		if _, err := Get(t.Context(), socket, page, 100); err == nil || !strings.Contains(err.Error(), "plegd only reads") {
			t.Errorf("%q: %v", page, err)
		}
	}
	if len(reached) > 0 {
		t.Errorf("pages that reached the runtime: %q", reached)
	}
	for _, page := range []string{PageGoroutines, PageGoroutinesCRIO} {
		text, err := Get(t.Context(), socket, page, 4)
		if err != nil || string(text) != "0123" {
			t.Errorf("%s: %q, %v; want the first 4 bytes", page, text, err)
		}
	}
	if _, err := Get(t.Context(), socket, PageInfo, 100); err == nil || len(reached) != 3 || reached[2] != "GET /info" {
		t.Errorf("a redirect: %v, %q", err, reached)
	}
}

// TestGetTrustsRootAlone: a file, and a socket of another user, are not asked.
func TestGetTrustsRootAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	others := filepath.Join(dir, "others.sock")
	l, err := net.Listen("unix", others)
	must.Do(t, err)
	t.Cleanup(func() { _ = l.Close() })
	if err := os.Chown(others, 65534, -1); err != nil {
		t.Skip(err)
	}
	for path, want := range map[string]string{file: "not a socket", others: "does not belong to root", filepath.Join(dir, "none"): "no such file"} {
		if _, err := Get(t.Context(), path, PageInfo, 100); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
