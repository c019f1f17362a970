//go:build e2e

package observe

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/must"
)

// TestRemoteWrite has two Prometheus agents scrape half of a fleet each and send
// everything to a Prometheus that receives and evaluates all rules, as a
// platform team does with an engine that it has already. PLEGD_FLEET_NODES is the
// number of nodes, PLEGD_FLEET_INTERVAL the scrape interval. One node in a hundred has
// a list that hangs, one has no network; in a small fleet one in twenty.
func TestRemoteWrite(t *testing.T) {
	size := lab.Number(t, "PLEGD_FLEET_NODES", 80)
	interval := lab.Duration(t, "PLEGD_FLEET_INTERVAL", 5*time.Second, time.Second, time.Hour)
	if os.Getenv("PLEGD_FLEET_NODES") == "" {
		t.Parallel()
	}
	group := 20
	if size >= 1000 {
		group = 100
	}
	must.Equal(t, size%(2*group), 0, "%d nodes are not two clusters with one node in %d for each fault: use a multiple of %d", size, group, 2*group)
	ill := size / group // with each of two faults
	nodes, address := serveNodes(t, group), lab.FreeAddress(t)
	config := fmt.Sprintf("global: {scrape_interval: 15s, evaluation_interval: %s}\n"+ruleFiles+"scrape_configs:\n", interval) + self(address)
	base := lab.NewPrometheus(t, address, withRules(t, config), "--web.enable-remote-write-receiver")
	for i, cluster := range []string{"east", "west"} {
		agent := lab.FreeAddress(t)
		config := scraping(interval, nodes, cluster, i*size/2, (i+1)*size/2) +
			fmt.Sprintf("  - job_name: agent\n    scrape_interval: 15s\n    static_configs: [{targets: [%q], labels: {cluster: %s}}]\n", agent, cluster) +
			fmt.Sprintf("remote_write: [{url: \"%s/api/v1/write\"}]\n", base.URL())
		lab.NewPrometheus(t, agent, map[string]string{"prometheus.yml": config}, lab.AgentMode)
	}
	began := time.Now()
	// The alerts have their delays, and one of them compares with two and a half minutes ago.
	is(t, base, 10*time.Minute+4*interval, "every node has arrived, and the alerts of those that are ill", []expectation{
		{`cluster:plegd_nodes:count{cluster="east"}`, size / 2},
		{`cluster:plegd_nodes:count{cluster="west"}`, size / 2},
		{`sum(cluster:pleg_verdict:sum)`, size},
		{`sum(cluster:pleg_verdict:sum{state="healthy"})`, size - 2*ill},
		{`count(ALERTS{alertname="PLEGReasonCritical", alertstate="firing", reason="RuntimeListStall"})`, ill},
		{`count(ALERTS{alertname="PLEGReasonCritical", alertstate="firing", reason="NetworkNotReady"})`, ill},
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
	lab.Report(t, "remote write: %d nodes every %s, %d of them ill: all there with their alerts after %s; %.0f series, %.0f samples/s; "+
		"two agents: %.2f of a core, %.0f MiB together, %.0f kB/s sent; "+
		"the receiver: %.2f of a core, %.0f MiB; evaluating the rules: %.2f s for all groups, %.2f s for the slowest, %.0f evaluations came too late for their turn",
		size, interval, 2*ill, arrived.Round(time.Second), ask(`prometheus_tsdb_head_series`), per("prometheus_remote_storage_samples_total", "agent"),
		per("process_cpu_seconds_total", "agent"), ask(`sum(process_resident_memory_bytes{job="agent"})`)/mib, per("prometheus_remote_storage_bytes_total", "agent")/1000,
		per("process_cpu_seconds_total", "self"), ask(`process_resident_memory_bytes{job="self"}`)/mib,
		ask(`sum(prometheus_rule_group_last_duration_seconds)`), ask(`max(prometheus_rule_group_last_duration_seconds)`),
		ask(`sum(prometheus_rule_group_iterations_missed_total)`))
}
