package daemon

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/plegd/plegd/internal/exporter"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/view"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestConditionTrueAgain: that a condition is true again is seen within a
// second, and the kubelet's own calls come when they would have come.
func TestConditionTrueAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := watch(t, fakeRuntime(10, 2), nil)
		const notReady = "container runtime network not ready: NetworkReady=false reason:R message:M"
		w.at(fault)
		w.rt.SetCondition("NetworkReady", false, "R", "M")
		w.expect(14900*time.Millisecond, well.seen(14*time.Second))
		w.expect(16500*time.Millisecond, moment{facts.StateUnhealthy, health.NetworkNotReady, 16 * time.Second, 0, notReady})
		// A call between two of the kubelet's that hangs ends when the next is due.
		w.fail("Status=hang")
		w.expect(19900*time.Millisecond, moment{facts.StateUnhealthy, health.NetworkNotReady, 19 * time.Second, 0, notReady})
		if s := w.d.Snapshot(time.Now()).Facts.Status; !s.InFlightSince.IsZero() {
			t.Errorf("a Status has been under way since %s", s.InFlightSince.Sub(w.t0))
		}
		if s := w.at(20600 * time.Millisecond).Facts.Status; !s.InFlightSince.Equal(w.t0.Add(20 * time.Second)) {
			t.Errorf("a Status has been under way since %s, want 20s", s.InFlightSince.Sub(w.t0))
		}
		w.fail("")
		w.rt.SetCondition("NetworkReady", true, "", "")
		w.at(24 * time.Second)
		w.rt.SetCondition("NetworkReady", false, "R", "M")
		w.expect(31500*time.Millisecond, moment{facts.StateUnhealthy, health.NetworkNotReady, 31 * time.Second, 0, notReady})
		w.rt.SetCondition("NetworkReady", true, "", "")
		w.expect(36*time.Second, well.seen(36*time.Second))
	})
}

// TestStatusIsSpread: beside a runtime that fails every second call, plegd's calls do
// not stay in phase with the kubelet's.
func TestStatusIsSpread(t *testing.T) {
	var c Config
	seen := map[time.Duration]bool{}
	for range 100 {
		d := c.jittered(5 * time.Second)
		if d < 4500*time.Millisecond || d > 5500*time.Millisecond {
			t.Fatalf("%s is no period of about 5 s", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different periods of 100", len(seen))
	}
}

// TestQueueOfAStuckRuntime: every connection to a runtime that does not accept
// stays in its queue, so it gets two a minute at most: fresh ones and plegd's held one.
func TestQueueOfAStuckRuntime(t *testing.T) {
	const minutes = 6
	for name, stuckFromTheStart := range map[string]bool{"while it is watched": false, "before plegd starts": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				rt := fakeRuntime(10, 2)
				stop := func() {
					must.Do(t, rt.SetFailpoints("socket=noaccept;*=hang"))
				}
				if stuckFromTheStart {
					stop()
				}
				w := watch(t, rt, nil)
				w.at(10 * time.Second)
				if !stuckFromTheStart {
					stop()
				}
				before := rt.Dials()
				if stuckFromTheStart && before != 2 {
					t.Errorf("%d connections in the first 10 s, want the held and a fresh one", before)
				}
				s := w.at(10*time.Second + minutes*time.Minute)
				check.Equal(t, s.Verdict.State, facts.StateUnhealthy, "/%s after %d minutes", s.Verdict.Reason, minutes)
				n := rt.Dials() - before
				t.Logf("%d connections in %d minutes", n, minutes)
				if n > 2*minutes {
					t.Errorf("%d connections in %d minutes, want two a minute at most", n, minutes)
				}
			})
		})
	}
}

// TestWeatherOfServers: a busy port and a control socket that cannot be made
// keep nothing from starting, and are exported as sources that fail.
func TestWeatherOfServers(t *testing.T) {
	dir := t.TempDir()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer func() { _ = busy.Close() }()
	blocker := filepath.Join(dir, "run")
	must.Do(t, os.WriteFile(blocker, nil, 0o600))
	cfg := DefaultConfig()
	cfg.StateDir = ""
	cfg.RuntimeEndpoint = filepath.Join(dir, "runtime.sock")
	cfg.ControlSocket = filepath.Join(blocker, "plegd", "plegd.sock")
	cfg.WebListenAddresses, cfg.KubeletHealthzURL = []string{busy.Addr().String()}, ""
	d, err := New(cfg, exporter.Build{}, zap.NewNop())
	must.Do(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	for _, ready := range d.readies {
		<-ready
	}
	for tried := time.Now(); d.Published().At.Before(tried); { // judged again since
		time.Sleep(time.Millisecond)
	}
	for _, name := range []string{"web", "control"} {
		if s, ok := d.Snapshot(time.Now()).Facts.Evidence.Sources[name]; !ok || s.Up || s.Err == "" {
			t.Errorf("%s cannot be served, and is shown as %+v, %v", name, s, ok)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

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
// that is asked changes what the judge has published or reaches the runtime, whose calls are counted.
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
			calls := w.rt.Calls("ListContainers").Started
			for _, path := range []string{view.PathMetrics, view.PathStatus, view.PathHealthz, view.PathIncidents, "/"} {
				if first, second := answer(h, path), answer(h, path); first != second || first == "" {
					t.Errorf("%q: two answers of %s differ:\n%s\n%s", spec, path, first, second)
				}
			}
			if w.d.Published() != published || !reflect.DeepEqual(before, *published) {
				t.Errorf("%q: a query has changed the snapshot", spec)
			}
			check.Equal(t, w.rt.Calls("ListContainers").Started, calls, "%q: lists after the queries", spec)
			if spec == "" { // a call that hangs is not counted yet
				check.Contains(t, answer(h, view.PathMetrics), fmt.Sprintf("pleg_runtime_operations_total{operation_type=\"list_containers\"} %d\n", calls), "the lists are counted")
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
