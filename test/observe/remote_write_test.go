//go:build e2e

package observe

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestRemoteWrite has two Prometheus agents scrape half of a fleet each and send
// everything to a Prometheus that receives and evaluates all rules, as a
// platform team does with an engine that it has already. PLEGD_FLEET_NODES is the
// number of nodes, PLEGD_FLEET_INTERVAL the scrape interval. One node in a hundred has
// a list that hangs, one has no network; in a small fleet one in twenty.
func TestRemoteWrite(t *testing.T) {
	size, interval := fleetSize(t, 80), 5*time.Second
	if os.Getenv("PLEGD_FLEET_NODES") != "" {
		var err error
		if interval, err = time.ParseDuration(os.Getenv("PLEGD_FLEET_INTERVAL")); err != nil {
			t.Fatal(err)
		}
	} else {
		t.Parallel()
	}
	group := 20
	if size >= 1000 {
		group = 100
	}
	if size%(2*group) != 0 {
		t.Fatalf("%d nodes are not two clusters with one node in %d for each fault: use a multiple of %d", size, group, 2*group)
	}
	ill := size / group // with each of two faults
	nodes, _ := nodes(t, group)
	address := freeAddress(t)
	config := fmt.Sprintf("global: {scrape_interval: 15s, evaluation_interval: %s}\nrule_files: [plegd.rules.yml, plegd.recording.yml]\nscrape_configs:\n", interval) + self(address)
	base := prometheusAt(t, address, config, rulesFor(t, interval), "--web.enable-remote-write-receiver")
	for i, cluster := range []string{"east", "west"} {
		agent := freeAddress(t)
		config := scraping(interval, nodes, cluster, i*size/2, (i+1)*size/2) +
			fmt.Sprintf("  - job_name: agent\n    scrape_interval: 15s\n    static_configs: [{targets: [%q], labels: {cluster: %s}}]\n", agent, cluster) +
			fmt.Sprintf("remote_write: [{url: \"%s/api/v1/write\"}]\n", base)
		prometheusAt(t, agent, config, nil, agentMode)
	}
	began := time.Now()
	// The alerts have their delays, and one of them compares with two and a half minutes ago.
	is(t, base, 10*time.Minute+4*interval, "every node has arrived, and the alerts of those that are ill", []expectation{
		{`cluster:plegd_nodes:count{cluster="east"}`, size / 2},
		{`cluster:plegd_nodes:count{cluster="west"}`, size / 2},
		{`sum(cluster:pleg_verdict:sum)`, size},
		{`sum(cluster:pleg_verdict:sum{state="healthy"})`, size - 2*ill},
		{`count(ALERTS{alertname="PLEGUnhealthy", alertstate="firing", reason="RuntimeListStall"})`, ill},
		{`count(ALERTS{alertname="PLEGUnhealthy", alertstate="firing", reason="NetworkNotReady"})`, ill},
		{`count(ALERTS{alertname="PLEGUnhealthy", alertstate="firing"})`, 2 * ill},
		{`count(up{job="plegd"} == 1)`, size},
	})
	arrived := time.Since(began)
	// The steady state begins after the first samples.
	steady := 6*interval + 30*time.Second
	is(t, base, steady+2*time.Minute, "every node has been scraped several times since, and the agents have caught up", []expectation{
		// Asked twenty times a second: first what costs little.
		{`sum(prometheus_remote_storage_samples_pending) < bool 50000`, 1},
		{`count(rate(prometheus_remote_storage_bytes_total[1m]) > bool 0)`, 2},
		{fmt.Sprintf(`count_over_time(up{node="node0"}[%s]) > bool 5`, steady), 1},
		{fmt.Sprintf(`count(count_over_time(up{job="plegd"}[%s]) > 4)`, steady), size},
	})
	is(t, base, 0, "nothing is lost, and no node that is well has an alert", []expectation{
		{`sum(prometheus_remote_storage_samples_failed_total + prometheus_remote_storage_samples_dropped_total)`, 0},
		{`count(count by (node) (ALERTS{alertstate="firing", node!=""}))`, 2 * ill},
		{`count(ALERTS{alertname="PLEGUnhealthy", alertstate="firing"})`, 2 * ill},
	})
	ask := asker(t, base)
	const mib = 1 << 20
	window := max(time.Minute, 2*interval)
	per := func(metric, job string) float64 {
		return ask(fmt.Sprintf(`sum(rate(%s{job=%q}[%s]))`, metric, job, window))
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Error(err)
	}
	lab.Report(t, "remote write: %d nodes every %s, %d of them ill: all there with their alerts after %s; %.0f series, %.0f samples/s; "+
		"two agents: %.2f of a core, %.0f MiB together, %.0f kB/s sent; "+
		"the receiver: %.2f of a core, %.0f MiB; evaluating the rules: %.2f s for all groups, %.2f s for the slowest, %.0f evaluations came too late for their turn; load of the machine %s",
		size, interval, 2*ill, arrived.Round(time.Second), ask(`prometheus_tsdb_head_series`), per("prometheus_remote_storage_samples_total", "agent"),
		per("process_cpu_seconds_total", "agent"), ask(`sum(process_resident_memory_bytes{job="agent"})`)/mib, per("prometheus_remote_storage_bytes_total", "agent")/1000,
		per("process_cpu_seconds_total", "self"), ask(`process_resident_memory_bytes{job="self"}`)/mib,
		ask(`sum(prometheus_rule_group_last_duration_seconds)`), ask(`max(prometheus_rule_group_last_duration_seconds)`),
		ask(`sum(prometheus_rule_group_iterations_missed_total)`), strings.TrimSpace(string(load)))
}

// fleetSize returns PLEGD_FLEET_NODES, or a default.
func fleetSize(t *testing.T, nodes int) int {
	t.Helper()
	if s := os.Getenv("PLEGD_FLEET_NODES"); s != "" {
		var err error
		if nodes, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return nodes
}

// An expectation is what an expression must be.
type expectation struct {
	expr string
	want int
}

// is waits until all expressions have their values.
func is(t *testing.T, base string, limit time.Duration, what string, all []expectation) {
	t.Helper()
	lab.Eventually(t, limit, what, func() error {
		for _, e := range all {
			got, err := value(base, e.expr)
			if err != nil {
				return fmt.Errorf("%s: %w", e.expr, err)
			}
			if got != float64(e.want) {
				return fmt.Errorf("%s is %v, want %d", e.expr, got, e.want)
			}
		}
		return nil
	})
}

// rulesFor are the deployed rules, or for scrapes that are rarer than every 30 s those
// that the mixin makes for them.
func rulesFor(t *testing.T, interval time.Duration) map[string]string {
	t.Helper()
	if interval <= 30*time.Second {
		return rules(t)
	}
	dir := lab.Dir(t)
	config := fmt.Sprintf("{lookback: '%.0fs'}", 2*interval.Seconds())
	if out, err := exec.Command("go", "run", "-C", filepath.Join("..", "..", "deploy", "mixin"), ".", "-dir", dir, "-config", config).CombinedOutput(); err != nil {
		t.Fatalf("the mixin with %s: %v\n%s", config, err, out)
	}
	files := map[string]string{}
	for name := range rules(t) {
		b, err := os.ReadFile(filepath.Join(dir, "prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	return files
}
