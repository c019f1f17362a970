package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// fakeKubelet is a kubelet whose answers the test sets.
type fakeKubelet struct {
	handler     atomic.Pointer[http.HandlerFunc]
	requests    atomic.Int64
	connections atomic.Int64
}

func (f *fakeKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.requests.Add(1)
	(*f.handler.Load())(w, r)
}

func (f *fakeKubelet) answer(h http.HandlerFunc) { f.handler.Store(&h) }

func (f *fakeKubelet) count(_ net.Conn, s http.ConnState) {
	if s == http.StateNew {
		f.connections.Add(1)
	}
}

// answers returns a handler that answers with a status and a body.
func answers(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func startKubelet(t *testing.T, config *tls.Config) (f *fakeKubelet, s *httptest.Server) {
	t.Helper()
	f = &fakeKubelet{}
	f.answer(answers(http.StatusOK, "ok"))
	s = httptest.NewUnstartedServer(f)
	s.Config.ConnState = f.count
	s.Config.ErrorLog = nil
	if config != nil {
		s.TLS = config
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return f, s
}

func askKubelet(t *testing.T, opts Options) *Client {
	t.Helper()
	if opts.Timeout == 0 {
		opts.Timeout = time.Minute
	}
	k := New(opts)
	t.Cleanup(func() {
		for _, e := range []*requester{k.healthz, k.metrics} {
			if e != nil {
				e.client.CloseIdleConnections()
			}
		}
	})
	return k
}

func mustGather(t *testing.T, k *Client) *facts.Kubelet {
	t.Helper()
	v, err := k.Sample(t.Context())
	must.Do(t, err)
	return v
}

func wantErr(t *testing.T, k *Client, want string) {
	t.Helper()
	v, err := k.Sample(t.Context())
	if err == nil {
		t.Fatalf("no error but %+v; want %q", v, want)
	}
	if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q; want one line with %q", err, want)
	}
}

func TestKubeletHealthz(t *testing.T) {
	f, s := startKubelet(t, nil)
	k := askKubelet(t, Options{HealthzURL: s.URL + "/healthz"})
	if v := mustGather(t, k); !v.OK || !v.Seen || v.Detail != "" || !v.FailedSince.IsZero() || !v.LastSeen.IsZero() {
		t.Errorf("a good kubelet: %+v", v)
	}
	f.answer(answers(http.StatusInternalServerError, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\n[-]other failed: boom\nhealthz check failed\n"))
	first := mustGather(t, k)
	if first.OK || !first.Seen || first.Refused || first.Detail != "syncloop failed, other failed: boom" || !first.FailedSince.Equal(first.At) || !first.AnsweredAt.Equal(first.At) {
		t.Errorf("failing: %+v", first)
	}
	if again := mustGather(t, k); !again.FailedSince.Equal(first.FailedSince) || again.At.Equal(first.At) || f.connections.Load() != 1 {
		t.Errorf("failing on: %+v; want it since %s, by one connection", again, first.FailedSince)
	}
	s.Close()
	gone := mustGather(t, k)
	if gone.OK || !gone.Refused || !gone.Seen || !gone.At.After(gone.AnsweredAt) || gone.AnsweredAt.IsZero() || !gone.FailedSince.Equal(first.FailedSince) {
		t.Errorf("after its end: %+v", gone)
	}
	// To a new plegd it is down and not unknown where it has answered before; without a
	// kubelet's process the node has none.
	if v := mustGather(t, askKubelet(t, Options{HealthzURL: s.URL, Seen: true})); v.OK || !v.Refused || !v.Seen {
		t.Errorf("%+v, want it refused", v)
	}
	wantErr(t, askKubelet(t, Options{HealthzURL: s.URL}), "never answered: start the kubelet, or say in --kubelet-healthz-url")
	for _, tt := range []struct {
		process *facts.KubeletProcess
		known   bool
		want    string
	}{{&facts.KubeletProcess{}, true, "never answered"}, {nil, false, "never answered"}, {nil, true, ErrNone.Error()}} {
		process := func() (*facts.KubeletProcess, bool) { return tt.process, tt.known }
		wantErr(t, askKubelet(t, Options{HealthzURL: s.URL, Process: process}), tt.want)
	}
}

// TestKubeletAnswers: the status is the answer, in any shape of the rest. A stopped kubelet
// takes connections and answers nothing.
func TestKubeletAnswers(t *testing.T) {
	drips := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, "[-]syncloop failed: reason withheld\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		ok     bool
		detail string
		never  string // in the error where it has never answered; empty: none
		limit  time.Duration
	}{
		"no body":             {answers(http.StatusServiceUnavailable, ""), false, "503 Service Unavailable", "", 0},
		"a body that drips":   {drips(http.StatusInternalServerError), false, "syncloop failed", "", 3 * time.Second},
		"good, and it drips":  {drips(http.StatusOK), true, "", "", 3 * time.Second},
		"a huge body":         {answers(http.StatusInternalServerError, strings.Repeat("[-]\xffx failed\n", 1<<16)), false, "x failed, x failed", "", 0},
		"no list of failures": {answers(http.StatusInternalServerError, "boom\nmore"), false, "500 Internal Server Error: boom", "", 0},
		"closes connections":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "closes connections", "closes connections", 0},
		"hangs":               {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, false, "no answer within 200ms", "no answer within 200ms", 200 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, s := startKubelet(t, nil)
			k := askKubelet(t, Options{HealthzURL: s.URL, Timeout: tt.limit})
			f.answer(tt.answer)
			if tt.never != "" {
				wantErr(t, k, tt.never)
			}
			k.opts.Seen = true
			v := mustGather(t, k)
			if v.OK != tt.ok || !v.Seen || v.Refused || !strings.Contains(v.Detail, tt.detail) || len(v.Detail) > 300 || v.OK != v.FailedSince.IsZero() {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestKubeletGoesNowhereElse: the token must not follow a redirect, nor a
// request go through a proxy.
func TestKubeletGoesNowhereElse(t *testing.T) {
	other, elsewhere := startKubelet(t, nil)
	t.Setenv("HTTP_PROXY", elsewhere.URL)
	t.Setenv("ALL_PROXY", elsewhere.URL)
	f, s := startKubelet(t, nil)
	f.answer(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) })
	wantErr(t, askKubelet(t, Options{HealthzURL: s.URL}), "302 Found")
	if n := other.requests.Load(); n > 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

const someMetrics = `# HELP kubelet_pleg_last_seen_seconds [ALPHA] Timestamp in seconds when PLEG was last seen active.
# TYPE kubelet_pleg_last_seen_seconds gauge
kubelet_pleg_last_seen_seconds %d
# TYPE kubelet_pleg_relist_duration_seconds histogram
kubelet_pleg_relist_duration_seconds_bucket{le="0.005"} 12
`

// metricsAfter is a kubelet's metrics after so many bytes of other series.
func metricsAfter(seen time.Time, bytes int) string {
	line := `kubelet_http_requests_duration_seconds_bucket{long_running="false",method="GET",path="pods",server_type="readwrite",le="0.005"} 12` + "\n"
	return strings.Repeat(line, bytes/len(line)) + fmt.Sprintf(someMetrics, seen.Unix())
}

func TestKubeletMetrics(t *testing.T) {
	f, s := startKubelet(t, nil)
	k := askKubelet(t, Options{HealthzURL: s.URL + "/healthz", MetricsURL: s.URL + "/metrics"})
	look := func(code int, body string) *facts.Kubelet {
		t.Helper()
		f.answer(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				answers(code, body)(w, r)
			}
		})
		v := mustGather(t, k)
		if !v.OK || !v.Seen {
			t.Errorf("%+v: healthz answers, with any metrics", v)
		}
		return v
	}
	seen := time.Now().Add(-7 * time.Second).Truncate(time.Second)
	for _, bytes := range []int{0, 8 << 20} {
		// It must carry the monotonic clock: a clock step must not age it.
		if v := look(http.StatusOK, metricsAfter(seen, bytes)); v.Detail != "" || v.LastSeen.Unix() != seen.Unix() || !strings.Contains(v.LastSeen.String(), " m=") {
			t.Errorf("%d bytes: %+v; want last seen %s", bytes, v, seen)
		}
	}
	check.Equal(t, f.connections.Load(), 2, "connections for 4 requests to two URLs")
	// The kubelet's clock may be a little ahead, by its rounding or a step.
	if v := look(http.StatusOK, metricsAfter(time.Now().Add(time.Hour), 0)); v.LastSeen.After(time.Now()) {
		t.Errorf("last seen in the future: %+v", v)
	}
	for _, tt := range []struct {
		code         int
		body, detail string
	}{
		{http.StatusOK, "kubelet_pleg_last_seen_seconds -6.2135596800e+10\n", ""},
		{http.StatusForbidden, "Forbidden", "nodes/metrics"},
		{http.StatusOK, "up 1\n", "no " + lastSeenMetric},
		{http.StatusNotFound, "", "404 Not Found: see that the"},
	} {
		if v := look(tt.code, tt.body); !v.LastSeen.IsZero() || !strings.Contains(v.Detail, tt.detail) || (v.Detail == "") != (tt.detail == "") {
			t.Errorf("%+v; want no last seen, and %q", v, tt.detail)
		}
	}
}

// endless is a kubelet's metrics that never end.
type endless struct {
	lines string
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.lines[e.read%len(e.lines):])
	e.read += n
	return n, nil
}

func TestKubeletMetricsAreBounded(t *testing.T) {
	for line, limit := range map[string]int{
		strings.Repeat("x", 99):        maxMetrics + maxLine,
		runningPods + `{a="many"} 1`:   maxWanted + maxLine,
		strings.Repeat("x", maxLine+1): 2 * maxLine,
	} {
		r := &endless{lines: strings.Repeat(line+"\n", 100)}
		if _, err := parseMetrics(r); err == nil || r.read > limit {
			t.Errorf("%.20s: read %d bytes, error %v", line, r.read, err)
		}
	}
}

// TestHungFile: while a read of a file hangs, the next one fails at once.
func TestHungFile(t *testing.T) {
	var files namedFiles
	hung, release := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = files.slot.Do(t.Context(), time.Minute, func(context.Context) ([]namedFile, error) {
			close(hung)
			<-release
			return nil, nil
		})
	}()
	<-hung
	defer close(release)
	e := &requester{tokenFile: "/token"}
	if _, err := files.one(t.Context(), place{}, "/token"); !errors.Is(err, bounded.ErrBusy) {
		t.Errorf("%v", err)
	}
	if _, err := e.readToken(t.Context()); errors.Is(err, bounded.ErrBusy) {
		t.Errorf("a hung file holds up another one: %v", err)
	}
}

// TestVersionIsKept: a kubelet has one version for as long as its process lives.
func TestVersionIsKept(t *testing.T) {
	f, s := startKubelet(t, nil)
	process := &facts.KubeletProcess{PID: 7, StartTicks: 1}
	k := askKubelet(t, Options{
		HealthzURL: s.URL + "/healthz", MetricsURL: s.URL + "/metrics",
		Process: func() (*facts.KubeletProcess, bool) { return process, true },
	})
	f.answer(answers(http.StatusOK, startMetrics(20, 5, 8, 1, 1)))
	mustGather(t, k)
	f.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			w.WriteHeader(http.StatusForbidden)
		}
	})
	for _, tt := range []struct {
		started uint64
		want    string
	}{{1, "v1.35.4"}, {2, ""}} {
		process = &facts.KubeletProcess{PID: 7, StartTicks: tt.started}
		check.Equal(t, mustGather(t, k).Version, tt.want, "started at %d: version", tt.started)
	}
}

// TestHealthzOff: of a kubelet without healthz the process counts, and one that cannot be
// looked for has not ended.
func TestHealthzOff(t *testing.T) {
	off := 0
	process, known := &facts.KubeletProcess{PID: 7, HealthzPort: &off}, true
	k := askKubelet(t, Options{
		HealthzURL: "http://127.0.0.1:1/healthz", Process: func() (*facts.KubeletProcess, bool) { return process, known },
	})
	if v := mustGather(t, k); !v.OK || !v.Seen || v.AnsweredAt.IsZero() {
		t.Errorf("it runs: %+v", v)
	}
	process, known = nil, false
	wantErr(t, k, "the search for its process failed")
	known = true
	if v := mustGather(t, k); v.OK || !v.Refused || !v.Silent() {
		t.Errorf("it has ended: %+v", v)
	}
}

// TestAPICalls: what the kubelet's requests to its API server end with.
func TestAPICalls(t *testing.T) {
	at := time.Now()
	for _, code := range []string{"401", "403", "<error>"} {
		sample := func(ok, refused float64) map[string]float64 {
			return map[string]float64{apiRequests + "200": ok, apiRequests + code: refused}
		}
		first := apiCalls(facts.APICalls{}, sample(5, 1), sample(6, 2), at)
		if first.Refused != "" || !first.OKAt.Equal(at) {
			t.Errorf("%s: one is answered: %+v", code, first)
		}
		second := apiCalls(first, sample(6, 2), sample(6, 3), at.Add(time.Second))
		if second.Refused != code || !second.OKAt.Equal(at) || second.RefusedSince.IsZero() {
			t.Errorf("%s: none is answered: %+v", code, second)
		}
		check.Equal(t, apiCalls(second, sample(6, 3), sample(6, 3), at.Add(2*time.Second)), second, "%s: none is made", code)
	}
}

// startMetrics are the kubelet's counters of calls that start pods.
func startMetrics(total, errors int, seconds float64, working, running int) string {
	return fmt.Sprintf(`kubernetes_build_info{build_date="x",git_version="v1.35.4",major="1"} 1
kubelet_running_pods %d
kubelet_runtime_operations_duration_seconds_bucket{operation_type="run_podsandbox",le="0.005"} 0
kubelet_runtime_operations_duration_seconds_sum{operation_type="run_podsandbox"} %g
kubelet_runtime_operations_duration_seconds_sum{operation_type="version"} 900
kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} %d
kubelet_runtime_operations_total{operation_type="create_container"} 7
kubelet_runtime_operations_total{operation_type="run_podsandbox"} %d
kubelet_working_pods{config="desired",lifecycle="sync",static=""} %d
kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1
kubelet_working_pods{config="desired",lifecycle="terminated",static=""} 5
kubelet_working_pods{config="desired",lifecycle="terminating",static=""} 1
kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1
kubelet_working_pods{config="runtime_only",lifecycle="sync",static="unknown"} 3
`, running, seconds, errors, total, working-1) + fmt.Sprintf(someMetrics, 1763696645)
}

// TestKubeletStops: the calls that stop and remove pods are followed, each by itself.
func TestKubeletStops(t *testing.T) {
	f, s := startKubelet(t, nil)
	k := askKubelet(t, Options{MetricsURL: s.URL})
	look := func(stops, removals int) *facts.Kubelet {
		t.Helper()
		const counter = "kubelet_runtime_operations_%stotal{operation_type=%q} %d\n"
		text := ""
		for operation, failed := range map[string]int{"stop_podsandbox": stops, "remove_podsandbox": removals} {
			text += fmt.Sprintf(counter, "", operation, 100+failed) + fmt.Sprintf(counter, "errors_", operation, failed)
		}
		f.answer(answers(http.StatusOK, text+fmt.Sprintf(someMetrics, 1763696645)))
		return mustGather(t, k)
	}
	look(1, 1)
	v := look(3, 1)
	if v.Stops == nil || v.Stops.Errors != 2 || v.Removals != nil {
		t.Errorf("%+v, %+v; want 2 stops that failed", v.Stops, v.Removals)
	}
	v = look(3, 5)
	if v.Removals == nil || v.Removals.Errors != 4 {
		t.Errorf("%+v; want 4 removals that failed", v.Removals)
	}
}

// TestNoStart: pods wait for a start from when the last call that starts one ended, or the first of them was seen.
func TestNoStart(t *testing.T) {
	f, s := startKubelet(t, nil)
	k := askKubelet(t, Options{MetricsURL: s.URL})
	look := func(calls, waiting int) *facts.Kubelet {
		t.Helper()
		f.answer(answers(http.StatusOK, startMetrics(calls, 0, float64(calls), 10+waiting, 10)))
		return mustGather(t, k)
	}
	if v := look(5, 0); !v.NoStartSince.IsZero() {
		t.Errorf("none waits: %s", v.NoStartSince)
	}
	first := look(5, 1)
	if first.NoStartSince.IsZero() {
		t.Error("one waits")
	}
	if v := look(5, 2); !v.NoStartSince.Equal(first.NoStartSince) {
		t.Errorf("another one waits, too: %s, want %s", v.NoStartSince, first.NoStartSince)
	}
	if v := look(6, 1); !v.NoStartSince.After(first.NoStartSince) {
		t.Errorf("a call has ended: %s, want later than %s", v.NoStartSince, first.NoStartSince)
	}
	if v := look(7, 0); !v.NoStartSince.IsZero() {
		t.Errorf("none waits any more: %s", v.NoStartSince)
	}
}

// TestSlowCalls: calls for pods that take seconds are noted; not those that wait by design, nor those before the first sample.
func TestSlowCalls(t *testing.T) {
	values := func(operation string, calls, seconds float64) map[string]float64 {
		return map[string]float64{operations + "total" + operation: calls, operations + "duration_seconds_sum" + operation: seconds}
	}
	for _, tt := range []struct {
		previous, values map[string]float64
		want             bool
	}{
		{previous: values("run_podsandbox", 10, 5), values: values("run_podsandbox", 12, 9), want: true},
		{previous: values("remove_podsandbox", 10, 5), values: values("remove_podsandbox", 11, 8), want: true},
		{previous: values("run_podsandbox", 10, 5), values: values("run_podsandbox", 12, 8)},
		{previous: values("run_podsandbox", 10, 500), values: values("run_podsandbox", 10, 500)},
		{previous: values("pull_image", 10, 5), values: values("pull_image", 11, 65)},
		{previous: values("stop_container", 10, 5), values: values("stop_container", 11, 35)},
		{values: values("run_podsandbox", 12, 900)},
	} {
		got := hasSlowCall(tt.previous, tt.values)
		if got != tt.want {
			t.Errorf("%v after %v: %t", tt.values, tt.previous, got)
		}
	}
}

// TestKubeletStarts follows the calls that start pods from one look to the next.
func TestKubeletStarts(t *testing.T) {
	f, s := startKubelet(t, nil)
	k := askKubelet(t, Options{MetricsURL: s.URL})
	look := func(total, errors int, seconds float64, waiting int) *facts.StartCalls {
		t.Helper()
		f.answer(answers(http.StatusOK, startMetrics(total, errors, seconds, 10+waiting, 10)))
		v := mustGather(t, k)
		if v.WaitingPods == nil || *v.WaitingPods != waiting || v.EndingPods != 2 || v.Containers != nil || v.Version != "v1.35.4" {
			t.Errorf("%+v; want %d pods that wait and 2 that end", v, waiting)
		}
		return v.Sandboxes
	}
	if c := look(20, 5, 8, 0); c != nil {
		t.Errorf("errors of before: %+v", c)
	}
	first := look(21, 6, 38, 1)
	if first == nil || first.Errors != 1 || first.Longest != 30*time.Second || first.Since.IsZero() {
		t.Fatalf("one call ran into its deadline: %+v", first)
	}
	later := look(23, 8, 38.1, 2)
	if later == nil || later.Errors != 3 || later.Longest != 30*time.Second || !later.Since.Equal(first.Since) || !later.LastError.After(first.LastError) {
		t.Errorf("two more failed at once: %+v", later)
	}
	if c := look(23, 8, 38.1, 2); c == nil || c.Errors != 3 || !c.LastError.Equal(later.LastError) {
		t.Errorf("none since: %+v", c)
	}
	if c := look(25, 9, 39, 0); c != nil {
		t.Errorf("one succeeded: %+v", c)
	}
	look(26, 10, 39, 0)
	if c := look(2, 1, 0, 0); c != nil {
		t.Errorf("another kubelet: %+v", c)
	}
}

// TestEventedLastSeen: with EventedPLEG the kubelet sets its last seen at each look at its health. Its relists count.
func TestEventedLastSeen(t *testing.T) {
	f, s := startKubelet(t, nil)
	process := &facts.KubeletProcess{EventedPLEG: true}
	k := askKubelet(t, Options{MetricsURL: s.URL, Process: func() (*facts.KubeletProcess, bool) { return process, true }})
	var last time.Time
	for _, look := range []struct {
		relists, failed int
		sum             float64
		took            time.Duration
		want            string
	}{
		{5, 1, 2, 0, "unknown"}, {5, 1, 2, 0, "unknown"}, {6, 1, 5, 3 * time.Second, "new"}, {6, 2, 5, 0, "as before"},
		{7, 3, 125, 0, "as before"}, {9, 3, 127, time.Second, "new"}, {1, 0, 0, 0, "unknown"},
	} {
		f.answer(answers(http.StatusOK, fmt.Sprintf(`kubelet_pleg_last_seen_seconds %d
kubelet_pleg_relist_duration_seconds_count %d
kubelet_pleg_relist_duration_seconds_sum %g
kubelet_runtime_operations_errors_total{operation_type="list_podsandbox"} %d
`, time.Now().Unix(), look.relists, look.sum, look.failed)))
		begun := time.Now()
		seen := mustGather(t, k).LastSeen
		read := seen.Add(look.took) // when the metrics were read, if a relist took that long
		got := seen.String()
		switch {
		case seen.IsZero():
			got = "unknown"
		case seen.Equal(last):
			got = "as before"
		case !read.Before(begun) && !read.After(time.Now()):
			got = "new"
		}
		last = seen
		check.Equal(t, got, look.want, "%+v", look)
	}
}

// certificate makes one for the names, signed by parent or by itself. It
// returns the pair and the certificate as PEM.
func certificate(t *testing.T, authority bool, parent *tls.Certificate, names ...string) (pair tls.Certificate, asPEM []byte) {
	t.Helper()
	return certificateUntil(t, time.Now().Add(time.Hour), authority, parent, names...)
}

// certificateUntil is certificate with the time at which it expires.
func certificateUntil(t *testing.T, until time.Time, authority bool, parent *tls.Certificate, names ...string) (pair tls.Certificate, asPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Do(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: authority, DNSNames: names,
	}
	signer, signerKey := template, any(key)
	if parent != nil {
		signer, signerKey = parent.Leaf, parent.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	must.Do(t, err)
	leaf, err := x509.ParseCertificate(der)
	must.Do(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(file, content, 0o600))
	return file
}

func TestKubeletTLS(t *testing.T) {
	ca, caPEM := certificate(t, true, nil, "kubernetes") // as kubeadm names its own
	node, nodePEM := certificate(t, false, &ca, "node-1")
	here, herePEM := certificate(t, false, &ca, "node-1", "localhost")
	self, selfPEM := certificate(t, false, nil, "node-1") // as a kubelet signs its own
	_, otherPEM := certificate(t, true, nil, "kubernetes")
	for _, tt := range []struct {
		name   string
		server tls.Certificate
		ca     []byte
		host   string // in place of the address
		want   string // in the error; empty: none
	}{
		{"its own, named", self, selfPEM, "", ""},
		{"signed, and named itself", node, append(nodePEM, caPEM...), "", ""},
		{"signed, by its name", here, caPEM, "localhost", ""},
		{"signed, by another name", node, caPEM, "", "use the name that the certificate is for"},
		{"nothing named", self, nil, "", "--kubelet-ca-file"},
		{"another one named", self, otherPEM, "", "--kubelet-ca-file"},
		{"another kubelet's named", self, herePEM, "", "--kubelet-ca-file"},
		{"nothing in the file", self, []byte("nothing"), "", "holds no PEM certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, s := startKubelet(t, &tls.Config{Certificates: []tls.Certificate{tt.server}})
			opts := Options{HealthzURL: s.URL}
			if tt.host != "" {
				opts.HealthzURL = strings.Replace(s.URL, "127.0.0.1", tt.host, 1)
			}
			if tt.ca != nil {
				opts.CAFile = writeFile(t, "ca.crt", tt.ca)
			}
			k := askKubelet(t, opts)
			if tt.want != "" {
				wantErr(t, k, tt.want)
				// plegd does not trust it: the kubelet's state is unknown, also after
				// it has answered.
				k.opts.Seen = true
				wantErr(t, k, tt.want)
				return
			}
			if v := mustGather(t, k); !v.OK {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestKubeletToken(t *testing.T) {
	self, selfPEM := certificate(t, false, nil, "node-1")
	f, s := startKubelet(t, &tls.Config{Certificates: []tls.Certificate{self}})
	plain, p := startKubelet(t, nil)
	want := "first"
	f.answer(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, metricsAfter(time.Now(), 0))
	})
	plain.answer(func(_ http.ResponseWriter, r *http.Request) {
		check.Equal(t, r.Header.Get("Authorization"), "", "the token went out in clear text")
	})
	token := writeFile(t, "token", []byte("first\n"))
	k := askKubelet(t, Options{
		HealthzURL: p.URL, MetricsURL: s.URL, TokenFile: token, CAFile: writeFile(t, "ca.crt", selfPEM),
	})
	if v := mustGather(t, k); v.Detail != "" || v.LastSeen.IsZero() {
		t.Errorf("with the token: %+v", v)
	}
	want = "second" // tokens rotate
	if v := mustGather(t, k); !v.LastSeen.IsZero() || !strings.Contains(v.Detail, "401") {
		t.Errorf("with the old token: %+v", v)
	}
	must.Do(t, os.WriteFile(token, []byte("second"), 0o600))
	if v := mustGather(t, k); v.LastSeen.IsZero() {
		t.Errorf("with the new token: %+v", v)
	}
	for content, want := range map[string]string{
		"": "is empty", "a\r\nX-Evil: b": "invalid header",
		strings.Repeat("x", maxFile+1): "larger than",
	} {
		must.Do(t, os.WriteFile(token, []byte(content), 0o600))
		v := mustGather(t, k)
		if !strings.Contains(v.Detail, want) || len(content) > 3 && strings.Contains(v.Detail, content) {
			t.Errorf("token %.20q: %+v", content, v)
		}
	}
	must.Do(t, os.Remove(token))
	if v := mustGather(t, k); !v.OK || !strings.Contains(v.Detail, "--kubelet-token-file") {
		t.Errorf("without the file: %+v", v)
	}
}

func TestValidate(t *testing.T) {
	for _, tt := range []struct{ healthz, metrics, token, ca, want string }{
		{"", "", "", "", ""},
		{DefaultHealthz, "", "", "", ""},
		{"", "https://node-1:10250/metrics", "/t", "/c", ""},
		{"http://[::1]:10248/healthz", "https://127.0.0.1:10250/metrics", "/t", "", ""},
		{"http://[127.0.0.1]:10248/healthz", "https://[10.0.0.7]:10250/metrics", "/t", "", ""},
		{"", "https://[fd00::7]:10250/metrics", "/t", "", ""},
		{"", "https://[node-1]:10250/metrics", "/t", "", "--kubelet-metrics-url"},
		{"127.0.0.1:10248", "", "", "", "--kubelet-healthz-url"},
		{"localhost:10248/healthz", "", "", "", "--kubelet-healthz-url"},
		{"ftp://127.0.0.1/", "", "", "", "--kubelet-healthz-url"},
		{"http:///healthz", "", "", "", "--kubelet-healthz-url"},
		{"http://127.0.0.1:99999/", "", "", "", "--kubelet-healthz-url"},
		{"http://127.0.0.1:0/", "", "", "", "--kubelet-healthz-url"},
		{"http://a b/", "", "", "", "--kubelet-healthz-url"},
		{"http://u:secret@127.0.0.1/", "", "", "", "--kubelet-healthz-url"},
		{"", "/metrics", "", "", "--kubelet-metrics-url"},
		{DefaultHealthz, "", "/t", "", "--kubelet-token-file"},
		{DefaultHealthz, "", "", "/c", "--kubelet-ca-file"},
	} {
		err := Validate(tt.healthz, tt.metrics, tt.token, tt.ca)
		if tt.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", tt, err)
			}
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), tt.want+": ") || !strings.Contains(err.Error(), "want ") {
			t.Errorf("%+v: %v; want it to name %s and the allowed values", tt, err, tt.want)
		} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(someMetrics, 1763696645)))
	f.Add([]byte("kubelet_pleg_last_seen_seconds{} -1e400\r\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		read, _ := parseMetrics(strings.NewReader(string(b)))
		if s := read.values[lastSeenMetric]; s < 0 || s > maxValue {
			t.Errorf("%v is no time of any clock", s)
		}
	})
}
