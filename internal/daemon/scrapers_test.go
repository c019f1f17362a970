package daemon

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
)

// gathered is a gatherer without transactions.
type gathered struct {
	prometheus.TransactionalGatherer
}

func (g gathered) Gather() ([]*dto.MetricFamily, error) {
	families, done, err := g.TransactionalGatherer.Gather()
	defer done()
	return families, err
}

// TestScrapersDelayNoRelist: relists begin at every second while ten scrapers
// ask all the time, ten more are stuck with an answer that nobody reads, and a
// collector hangs in the middle of ten others'. A lock of a scrape that a relist
// needs would stop the clock here.
func TestScrapersDelayNoRelist(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rt := fakeRuntime(20, 2)
		w := watch(t, rt, nil)
		w.at(500 * time.Millisecond)

		reg := prometheus.NewRegistry()
		hung := &hungCollector{release: make(chan struct{}), desc: prometheus.NewDesc("hung", "Never comes.", nil, nil)}
		reg.MustRegister(hung)
		plain := server.NewHandler(w.d, w.d.gatherer, server.HandlerOptions{})
		hanging := server.NewHandler(w.d, prometheus.ToTransactionalGatherer(prometheus.Gatherers{reg, gathered{w.d.gatherer}}), server.HandlerOptions{})
		scrape := func(h http.Handler, to http.ResponseWriter) {
			r := httptest.NewRequest(http.MethodGet, view.PathMetrics, http.NoBody)
			r.Header.Set("Accept-Encoding", "gzip")
			h.ServeHTTP(to, r)
		}

		stop, unread := make(chan struct{}), make(chan struct{})
		var all sync.WaitGroup
		scrapes := make([]int, 10)
		for i := range 10 {
			all.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(500 * time.Millisecond):
					}
					answer := httptest.NewRecorder()
					if scrape(plain, answer); answer.Code != http.StatusOK {
						t.Errorf("a scrape was answered with %d", answer.Code)
					}
					scrapes[i]++
				}
			})
			all.Go(func() { scrape(plain, &unreadWriter{ResponseRecorder: httptest.NewRecorder(), release: unread}) })
			all.Go(func() { scrape(hanging, httptest.NewRecorder()) })
		}

		for second := 1; second <= 10; second++ {
			at := time.Duration(second)*time.Second + 500*time.Millisecond
			s := w.at(at)
			relists := &s.Facts.Relist
			if got := relists.LastSeen.Sub(w.t0); got != time.Duration(second)*time.Second {
				t.Fatalf("at %s: the last relist began at %s", at, got)
			}
			if relists.Attempts != uint64(second)+1 {
				t.Fatalf("at %s: %d relists, want %d", at, relists.Attempts, second+1)
			}
		}
		close(stop)
		close(unread)
		close(hung.release)
		all.Wait()
		for i, n := range scrapes {
			if n < 15 {
				t.Errorf("scraper %d was answered %d times in 10 s", i, n)
			}
		}
	})
}

// hungCollector hangs until it is released.
type hungCollector struct {
	release chan struct{}
	desc    *prometheus.Desc
}

func (c *hungCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }
func (c *hungCollector) Collect(chan<- prometheus.Metric)    { <-c.release }

// unreadWriter is a client that does not read.
type unreadWriter struct {
	*httptest.ResponseRecorder
	release chan struct{}
}

func (w *unreadWriter) Write(b []byte) (int, error) {
	<-w.release
	return w.ResponseRecorder.Write(b)
}
