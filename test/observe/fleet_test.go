//go:build e2e

package observe

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// fleet is how many nodes Prometheus sees.
const fleet = 200

// TestFleet has a real Prometheus scrape 200 nodes, with all rules, at the
// interval of the example configurations.
func TestFleet(t *testing.T) {
	t.Parallel()
	lab.RequirePrograms(t, "prometheus")
	nodes, plegds := nodes(t, 3)

	address := freeAddress(t)
	text := scraping(15*time.Second, nodes, "test", 0, fleet) + self(address) + "rule_files: [plegd.rules.yml, plegd.recording.yml]\n"
	base := prometheusAt(t, address, text, rules(t))

	ask := asker(t, base)
	lab.Eventually(t, 3*time.Minute, "the fleet's view is there", func() error {
		for expr, want := range map[string]float64{
			`count(up{job="plegd"} == 1)`:                                fleet,
			`cluster:plegd_nodes:count{cluster="test"}`:                  fleet,
			`sum(cluster:pleg_verdict:sum)`:                              fleet,
			`cluster:pleg_primary_reason:sum{reason="NetworkNotReady"}`:  fleet / 3,
			`cluster:pleg_primary_reason:sum{reason="RuntimeListStall"}`: fleet/3 + 1,
			`count(ALERTS{alertname="PLEGUnhealthy"})`:                   2*(fleet/3) + 1,
			`sum(cluster:pleg_runtime_operations:rate5m) > bool 0`:       1,
		} {
			if got, err := value(base, expr); err != nil || got != want {
				return fmt.Errorf("%s is %v (%w), want %v", expr, got, err, want)
			}
		}
		return nil
	})

	perNode := ask(`max(scrape_samples_post_metric_relabeling{job="plegd"})`)
	if perNode > 205 {
		t.Errorf("a node has %v series", perNode)
	}
	view := ask(`count({__name__=~"cluster:pleg.*"})`)
	if view > 300 {
		t.Errorf("the view of a cluster has %v series", view)
	}
	slowest := ask(`max(prometheus_rule_group_last_duration_seconds)`)
	// CPU time, since the clock says more of the machine's other work than of the rules.
	cores := ask(`rate(process_cpu_seconds_total{job="self"}[1m])`)
	if cores > 0.5 {
		t.Errorf("Prometheus uses %.2f of a core for %d nodes", cores, fleet)
	}
	plain, packed := size(t, plegds[0])
	lab.Report(t, "fleet: %.0f to %.0f series a node, a scrape of %d bytes, %d packed; Prometheus holds %.0f series of %d nodes in %.0f MiB; "+
		"a cluster's view is %.0f series; the slowest group of rules takes %.2f s, all together %.2f s; Prometheus uses %.2f of a core",
		ask(`min(scrape_samples_post_metric_relabeling{job="plegd"})`), perNode, plain, packed, ask(`prometheus_tsdb_head_series`), fleet,
		ask(`process_resident_memory_bytes{job="self"}`)/(1<<20), view, slowest, ask(`sum(prometheus_rule_group_last_duration_seconds)`), cores)
}

// scraping is a configuration with a target for each node of a cluster, from one
// number to below another.
func scraping(interval time.Duration, nodes, cluster string, from, to int) string {
	var c strings.Builder
	fmt.Fprintf(&c, "global: {scrape_interval: %[1]s, evaluation_interval: %[1]s, scrape_timeout: %[1]s}\nscrape_configs:\n  - job_name: plegd\n    static_configs:\n", interval)
	for n := from; n < to; n++ {
		fmt.Fprintf(&c, "      - targets: [node%[1]d:20290]\n        labels: {cluster: %[2]s, node: node%[1]d, __metrics_path__: /node/%[1]d}\n", n, cluster)
	}
	fmt.Fprintf(&c, "    relabel_configs:\n      - {source_labels: [__address__], target_label: instance}\n      - {target_label: __address__, replacement: %q}\n", nodes)
	return c.String()
}

// self is the job of a Prometheus' own metrics.
func self(address string) string {
	return fmt.Sprintf("  - job_name: self\n    static_configs: [{targets: [%q]}]\n", address)
}

// rules are the deployed ones.
func rules(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"plegd.rules.yml", "plegd.recording.yml"} {
		files[name] = lab.Deployed(t, "prometheus", name)
	}
	return files
}

// asker returns a function that asks a Prometheus for a single number.
func asker(t *testing.T, base string) func(string) float64 {
	return func(expr string) float64 {
		t.Helper()
		v, err := value(base, expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
		}
		return v
	}
}

// nodes serves a fleet's metrics, of node n at /node/n. Three real plegds answer: of each
// `group` nodes the second has a list that hangs, the third has no network, and the others
// have 110 pods that come and go.
func nodes(t *testing.T, group int) (address string, plegds []*lab.Plegd) {
	t.Helper()
	var pages []*page
	for _, fault := range []string{"", "ListContainers=hang", "Status=notready(NetworkReady)"} {
		r := newRuntime(t, "--pods=110", "--churn=0.02")
		p := lab.NewPlegd(t, r.socket, lab.PlegdOptions{Flags: []string{"--log.level=info"}})
		p.AwaitState(time.Minute, "healthy")
		r.fail(fault)
		pages, plegds = append(pages, &page{url: "http://" + p.Address + "/metrics"}), append(plegds, p)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/node/"))
		if n %= group; n >= len(pages) {
			n = 0
		}
		pages[n].ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), plegds
}

// A page is the metrics of one plegd, asked for at most once a second: the machine that
// plays a fleet has not the cores that the fleet's plegds have.
type page struct {
	url string

	mu     sync.Mutex
	at     time.Time
	status int
	header http.Header
	body   []byte
}

func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) > time.Second {
		if err := p.ask(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	maps.Copy(w.Header(), p.header)
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body)
}

// ask asks the plegd as the scraper asks, who accepts gzip.
func (p *page) ask(r *http.Request) error {
	ask, err := http.NewRequest(http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	ask.Header = r.Header.Clone()
	answer, err := (&http.Client{Timeout: 15 * time.Second}).Do(ask)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	p.at, p.status, p.header, p.body = time.Now(), answer.StatusCode, answer.Header, body
	return nil
}

// value asks for a single number.
func value(base, expr string) (float64, error) {
	answer, err := http.Get(base + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	var data struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&data); err != nil {
		return 0, err
	}
	if n := len(data.Data.Result); n != 1 {
		return 0, fmt.Errorf("%d results", n)
	}
	text, _ := data.Data.Result[0].Value[1].(string)
	return strconv.ParseFloat(text, 64)
}

// size returns the bytes of a scrape, as they are and packed as Prometheus asks.
func size(t *testing.T, p *lab.Plegd) (plain, packed int) {
	t.Helper()
	_, body, err := p.Get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	var n counter
	z := gzip.NewWriter(&n)
	_, _ = io.WriteString(z, body)
	_ = z.Close()
	return len(body), int(n)
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }
