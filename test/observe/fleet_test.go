//go:build e2e

package observe

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

const ruleFiles = "rule_files: [plegd.rules.yml, plegd.recording.yml]\n"

// withRules are a configuration and the deployed rules.
func withRules(t *testing.T, config string) map[string]string {
	t.Helper()
	files := map[string]string{"prometheus.yml": config}
	for _, name := range []string{"plegd.rules.yml", "plegd.recording.yml"} {
		files[name] = lab.Deployed(t, "prometheus", name)
	}
	return files
}

// scraping is a configuration with a target for each node of a cluster, from one number
// to below another.
func scraping(interval time.Duration, nodes, cluster string, from, to int) string {
	var c strings.Builder
	fmt.Fprintf(&c, "global: {scrape_interval: %[1]s, evaluation_interval: %[1]s, scrape_timeout: %[1]s}\n"+
		"scrape_configs:\n  - job_name: plegd\n    static_configs:\n", interval)
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

// serveNodes serves a fleet's metrics, of node n at /node/n. Three real plegds answer: of
// each `group` nodes the second has a list that hangs, the third has no network, and the
// others have 110 pods that come and go. Each is asked once a second: the machine that plays
// a fleet has not the cores that the fleet's plegds have.
func serveNodes(t *testing.T, group int) (address string) {
	t.Helper()
	var pages [3]atomic.Value // of string
	for i, fault := range []string{"", "ListContainers=hang", "Status=notready(NetworkReady)"} {
		r := lab.NewSimulated(t, "--pods=110", "--churn=0.02")
		p := lab.NewPlegd(t, r.Socket, lab.PlegdOptions{Flags: []string{"--log.level=info"}})
		p.AwaitState(time.Minute, "healthy")
		r.Fail(fault)
		pages[i].Store("")
		lab.Every(t, time.Second, func() {
			if _, body, err := p.Get("/metrics"); err == nil {
				pages[i].Store(body)
			}
		})
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/node/"))
		if n %= group; n >= len(pages) {
			n = 0
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, pages[n].Load().(string))
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// expectation is what an expression must be.
type expectation struct {
	expr string
	want int
}

// is waits until all expressions have their values.
func is(t *testing.T, p *lab.Prometheus, limit time.Duration, what string, all []expectation) {
	t.Helper()
	lab.Eventually(t, limit, what, func() error {
		for _, e := range all {
			if got, err := p.Value(e.expr); err != nil || got != float64(e.want) {
				return fmt.Errorf("%s is %v (%w), want %d", e.expr, got, err, e.want)
			}
		}
		return nil
	})
}

// asker returns a function that asks for a single number.
func asker(t *testing.T, p *lab.Prometheus) func(string) float64 {
	return func(expr string) float64 {
		t.Helper()
		v, err := p.Value(expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
		}
		return v
	}
}
