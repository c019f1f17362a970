package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/leaktest"
	"github.com/plegd/plegd/test/must"
	"github.com/plegd/plegd/test/viewtest"
)

func TestMain(m *testing.M) { leaktest.Check(m) }

// logRecorder records a log.
type logRecorder struct {
	log *zap.Logger
	*observer.ObservedLogs
}

func newLogRecorder() *logRecorder {
	core, logs := observer.New(zap.InfoLevel)
	return &logRecorder{zap.New(core), logs}
}

// String returns a line per entry.
func (l *logRecorder) String() string {
	var b strings.Builder
	for _, e := range l.All() {
		fmt.Fprintf(&b, "level=%s %s %v\n", e.Level, e.Message, e.ContextMap())
	}
	return b.String()
}

func (l *logRecorder) count(s string) int { return strings.Count(l.String(), s) }

// newTestGatherer gathers the metrics that the daemon exports.
func newTestGatherer(src Source) *prometheus.Registry {
	reg := prometheus.NewPedanticRegistry()
	exporter.NewMetrics(reg)
	reg.MustRegister(exporter.NewCollector(src, exporter.Node{}, "1.0.0"))
	return reg
}

// testHandler returns a handler over src; full: every client sees everything.
func testHandler(src Source, full bool, more ...func(*HandlerOptions)) http.Handler {
	opts := HandlerOptions{Build: exporter.Build{Version: "1.0.0"}, clock: viewtest.Clock}
	if full {
		opts.Access = FullAccess
	}
	for _, f := range more {
		f(&opts)
	}
	return NewHandler(src, prometheus.ToTransactionalGatherer(newTestGatherer(src)), opts)
}

func answer(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w
}

// nobody trusts no client.
func nobody(*http.Request) bool { return false }

// start runs a server until the test ends, or until stop is called.
func start(t *testing.T, s *Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		check.NoError(t, <-done, "the %s", s.what)
	})
	t.Cleanup(stop)
	<-s.Ready()
	return stop
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	must.Eventually(t, time.Minute, what, ok)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(path, []byte(content), 0o600))
}

func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "plegd.sock")
}

// staleSocket leaves a socket without a listener.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	must.Do(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
}
