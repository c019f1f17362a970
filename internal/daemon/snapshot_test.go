package daemon

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
)

// ownMetrics are of plegd's own process: they change by being asked for.
var ownMetrics = []string{"go_", "process_"}

// answer returns what h answers for path, of /metrics without plegd's own process.
func answer(h http.Handler, path string) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	if path != view.PathMetrics {
		return w.Body.String()
	}
	var out strings.Builder
lines:
	for line := range strings.Lines(w.Body.String()) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		for _, own := range ownMetrics {
			if strings.HasPrefix(name, own) {
				continue lines
			}
		}
		out.WriteString(line)
	}
	return out.String()
}

// TestScrapesAreEqual: two answers at the same moment are the same, and nothing
// that is asked changes what the judge has published.
func TestScrapesAreEqual(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(20, 2), nil)
		h := server.NewHandler(w.d, w.d.gatherer, server.HandlerOptions{Recent: w.d.history.Bins})
		w.at(fault)
		for _, spec := range []string{"", "ListContainers=hang", "socket=freeze"} {
			w.fail(spec)
			w.at(time.Since(w.t0) + 40*time.Second + 113*time.Millisecond)
			published := w.d.Published()
			before := *published
			for _, path := range []string{view.PathMetrics, view.PathStatus, view.PathHealthz, view.PathIncidents, "/"} {
				if first, second := answer(h, path), answer(h, path); first != second || first == "" {
					t.Errorf("%q: two answers of %s differ:\n%s\n%s", spec, path, first, second)
				}
			}
			if w.d.Published() != published || !reflect.DeepEqual(before, *published) {
				t.Errorf("%q: a query has changed the snapshot", spec)
			}
		}
	})
}

// TestAgesWithoutJudge: an age grows from scrape to scrape although nothing is
// judged in between.
func TestAgesWithoutJudge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(20, 2), nil)
		w.at(fault)
		w.fail("ListContainers=hang")
		s := w.at(30 * time.Second)
		published := w.d.Published()
		later := published.AsOf(s.At.Add(20 * time.Second))
		check.Equal(t, later.Verdict.LastSeenAge-s.Verdict.LastSeenAge, 20*time.Second, "last seen is older")
		if s.Verdict.NotReadyIn == nil || *s.Verdict.NotReadyIn-*later.Verdict.NotReadyIn != 20*time.Second {
			t.Errorf("NotReady in %v, 20s later in %v", s.Verdict.NotReadyIn, later.Verdict.NotReadyIn)
		}
		check.Equal(t, *published.AsOf(s.At.Add(time.Hour)).Verdict.NotReadyIn, 0, "a countdown at its end")
		if f := later.Facts.Relist.InFlight; f == nil || later.Age(f.PhaseStart) < 39*time.Second {
			t.Errorf("the relist under way: %+v", f)
		}
	})
}

// TestScrapersAndJudge: fifty readers of everything and the judge at once, for
// the race detector.
func TestScrapersAndJudge(t *testing.T) {
	dir := t.TempDir()
	w := watch(t, fakeRuntime(30, 2), func(c *Config) {
		c.RelistPeriod = 20 * time.Millisecond // each relist is judged
		c.StateDir = dir
	})
	h := server.NewHandler(w.d, w.d.gatherer, server.HandlerOptions{Recent: w.d.history.Bins, Incident: w.d.incidents.Get})
	paths := []string{view.PathMetrics, view.PathStatus, view.PathHealthz, view.PathIncidents, "/"}
	relists := func() uint64 { return w.d.loop.Snapshot().Attempts }
	until := relists() + 1
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			for n := 0; n < 1 || relists() < until; n++ {
				if path := paths[(i+n)%len(paths)]; answer(h, path) == "" {
					t.Errorf("%s answered nothing", path)
				}
			}
		})
	}
	all.Wait()
}
