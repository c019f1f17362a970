//go:build e2e

package observe

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestRemoteWrite has two Prometheus agents scrape half of a fleet each and send
// it to a Prometheus that receives and evaluates all rules, as a platform team
// does with an engine that it has already. PLEGD_FLEET_NODES is the number of
// nodes, PLEGD_FLEET_INTERVAL the scrape interval. The agents of a large fleet send what
// docs/fleets.md says that the rules need.
func TestRemoteWrite(t *testing.T) {
	size, interval := 60, 5*time.Second
	if n := os.Getenv("PLEGD_FLEET_NODES"); n != "" {
		var err error
		if size, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
		if interval, err = time.ParseDuration(os.Getenv("PLEGD_FLEET_INTERVAL")); err != nil {
			t.Fatal(err)
		}
	} else {
		t.Parallel()
	}
	relabel := ""
	if size > 1000 {
		relabel = fmt.Sprintf(", write_relabel_configs: [{source_labels: [__name__], action: keep, regex: %q}]", ruleSeries(t))
	}
	nodes, _ := nodes(t)
	address := freeAddress(t)
	config := fmt.Sprintf("global: {scrape_interval: 15s, evaluation_interval: %s}\nrule_files: [plegd.rules.yml, plegd.recording.yml]\nscrape_configs:\n", interval) + self(address)
	base := prometheusAt(t, address, config, rules(t), "--web.enable-remote-write-receiver")
	for i, cluster := range []string{"east", "west"} {
		agent := freeAddress(t)
		config := scraping(interval, nodes, cluster, i*size/2, (i+1)*size/2) +
			fmt.Sprintf("  - job_name: agent\n    scrape_interval: 15s\n    static_configs: [{targets: [%q], labels: {cluster: %s}}]\n", agent, cluster) +
			fmt.Sprintf("remote_write: [{url: \"%s/api/v1/write\"%s}]\n", base, relabel)
		prometheusAt(t, agent, config, nil, agentMode)
	}
	// Counters of the agents' own need two samples, alerts the time that they wait.
	lab.Eventually(t, 3*time.Minute+4*interval, "the fleet's view is there", func() error {
		for expr, want := range map[string]int{
			`count(up{job="plegd"} == 1)`:                                     size,
			`cluster:plegd_nodes:count{cluster="east"}`:                       size / 2,
			`cluster:plegd_nodes:count{cluster="west"}`:                       size / 2,
			`sum(cluster:pleg_verdict:sum)`:                                   size,
			`count(ALERTS{alertname="PLEGReasonCritical"})`:                   size - (size+2)/3,
			`count(rate(prometheus_remote_storage_bytes_total[1m]) > bool 0)`: 2,
		} {
			got, err := value(base, expr)
			if err != nil {
				return fmt.Errorf("%s: %w", expr, err)
			}
			if got != float64(want) {
				return fmt.Errorf("%s is %v, want %v", expr, got, want)
			}
		}
		return nil
	})
	// What is said of the steady state is of the time after the first samples.
	lab.Eventually(t, 5*interval+2*time.Minute, "every node has been scraped several times since, and the agents have caught up", func() error {
		for _, expr := range []string{
			fmt.Sprintf(`min(count_over_time(up{job="plegd"}[%[1]s])) > 4`, 5*interval+30*time.Second),
			`max(prometheus_remote_storage_samples_pending) < 50000`,
		} {
			if _, err := value(base, expr); err != nil {
				return fmt.Errorf("%s: %w", expr, err)
			}
		}
		return nil
	})
	ask := asker(t, base)
	lost := ask(`sum(prometheus_remote_storage_samples_failed_total)`)
	if relabel == "" { // what relabelling leaves out counts as dropped, too
		lost += ask(`sum(prometheus_remote_storage_samples_dropped_total)`)
	}
	if lost != 0 {
		t.Errorf("%v samples were lost", lost)
	}
	slowest := ask(`max(prometheus_rule_group_last_duration_seconds)`)
	const mib = 1 << 20
	window := max(time.Minute, 2*interval)
	per := func(metric, job string) float64 {
		return ask(fmt.Sprintf(`sum(rate(%s{job=%q}[%s]))`, metric, job, window))
	}
	lab.Report(t, "remote write: %d nodes every %s: %.0f series, %.0f samples/s; "+
		"two agents: %.2f of a core, %.0f MiB together, %.0f kB/s sent; "+
		"the receiver: %.2f of a core, %.0f MiB; the slowest group of rules takes %.2f s, all together %.2f s",
		size, interval, ask(`prometheus_tsdb_head_series`), per("prometheus_remote_storage_samples_total", "agent"),
		per("process_cpu_seconds_total", "agent"), ask(`sum(process_resident_memory_bytes{job="agent"})`)/mib, per("prometheus_remote_storage_bytes_total", "agent")/1000,
		per("process_cpu_seconds_total", "self"), ask(`process_resident_memory_bytes{job="self"}`)/mib,
		slowest, ask(`sum(prometheus_rule_group_last_duration_seconds)`))
}

// ruleSeries is the regular expression of docs/fleets.md for the series that the rules
// need, and those of the agents themselves, by which the test measures.
func ruleSeries(t *testing.T) string {
	t.Helper()
	_, after, _ := strings.Cut(lab.Deployed(t, "..", "docs", "fleets.md"), "Only what the alerts and recording rules need")
	found := regexp.MustCompile(`(?m)^ *regex: (.*)$`).FindStringSubmatch(after)
	if found == nil {
		t.Fatal("docs/fleets.md does not say which series the rules need")
	}
	return found[1] + "|prometheus_remote_storage_.*|process_(cpu_seconds_total|resident_memory_bytes)"
}
