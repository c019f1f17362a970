//go:build e2e

package observe

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// A rollout has waves of waveNodes nodes, one node a second.
const (
	waveNodes = 50
	waveEvery = 2 * time.Minute
)

// updatedAt is when node n gets the new version, since the rollout's begin.
func updatedAt(n int) time.Duration {
	return time.Duration(n/waveNodes)*waveEvery + time.Duration(n%waveNodes)*time.Second
}

// TestRollout brings a bad runtime version to 300 of 5,000 nodes (PLEGD_FLEET_NODES sets
// another size), and requires that a real Prometheus names the version within 3 minutes of the
// fifth broken node. TestRulesCost in deploy/mixin measures the rules.
func TestRollout(t *testing.T) {
	rolloutNodes := fleetSize(t, 5000)
	badNodes := rolloutNodes * 6 / 100
	var began atomic.Int64 // Unix time at which the rollout begins; 0: not yet
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/node/"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		at := began.Load()
		updated := n < badNodes && at > 0 && time.Since(time.Unix(at, 0)) >= updatedAt(n)
		_, _ = io.WriteString(w, rolloutMetrics(n, updated))
	}))
	t.Cleanup(server.Close)
	address := lab.FreeAddress(t)
	const interval = 15 * time.Second
	text := scraping(interval, strings.TrimPrefix(server.URL, "http://"), "test", 0, rolloutNodes) + self(address) +
		ruleFiles
	base := lab.NewPrometheus(t, address, withRules(t, text))
	is(t, base, 3*time.Minute, "the fleet is there", []expectation{{`cluster:plegd_nodes:count{cluster="test"}`, rolloutNodes}})

	start := time.Now()
	began.Store(start.Unix())
	fifth := start.Add(updatedAt(4))
	named := `count(ALERTS{alertname="PLEGFleetCommonCause", alertstate="firing", reason="RuntimeListStall", label="runtime_version", value="2.4.2"})`
	is(t, base, 4*time.Minute, "the version is named", []expectation{{named, 1}})
	took := time.Since(fifth)
	if took > 3*time.Minute {
		t.Errorf("the version was named %s after the fifth broken node, want 3 min", took.Round(time.Second))
	}
	ask := asker(t, base)
	if n := ask(`count(ALERTS{alertname="PLEGFleetCommonCause"})`); n != 1 {
		t.Errorf("%v groups are named, want one", n)
	}
	lab.Report(t, "rollout: %d nodes, %d get a bad version: named %s after the fifth broken node; %.0f series, %.0f MiB",
		rolloutNodes, badNodes, took.Round(time.Second), ask(`prometheus_tsdb_head_series`), ask(`process_resident_memory_bytes{job="self"}`)/(1<<20))
}

const stall = "RuntimeListStall"

// rolloutMetrics is what the rules read of one node. Of ten nodes with the new version nine
// hang; a few others have faults of their own.
func rolloutMetrics(n int, updated bool) string {
	reason := ""
	switch {
	case updated && n%10 != 9, n == 1000:
		reason = stall
	case n > 1000 && n%1000 == 1:
		reason = "NetworkNotReady"
	}
	version := "2.4.1"
	if updated {
		version = "2.4.2"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pleg_threshold_seconds 180\npleg_relist_period_seconds 1\npleg_last_seen_age_seconds 0.5\npleg_last_seen_seconds 1700000000\npleg_node_ready_predicted 1\n")
	fmt.Fprintf(&b, "kube_node_labels{label_topology_kubernetes_io_zone=\"%c\"} 1\n", 'a'+n%3)
	fmt.Fprintf(&b, "pleg_node_info{runtime_name=\"containerd\",runtime_version=%q,kernel_version=\"6.1.%d\",os_image=\"Debian %d\",cgroup_version=\"2\",plegd_version=\"0.1.0\"} 1\n", version, n/7%3, 12+n%2)
	for _, state := range []string{"starting", "healthy", "degraded", "unhealthy"} {
		value := 0
		if state == "degraded" && reason != "" || state == "healthy" && reason == "" {
			value = 1
		}
		fmt.Fprintf(&b, "pleg_verdict{state=%q} %d\n", state, value)
	}
	for i := range 4 {
		fmt.Fprintf(&b, "pleg_running_containers{container_state=\"s%d\"} 30\n", i)
	}
	for _, op := range []string{"list_podsandbox", "list_containers", "version", "status"} {
		fmt.Fprintf(&b, "pleg_runtime_operations_total{operation_type=%q} 100\npleg_runtime_operations_errors_total{operation_type=%q} 0\n", op, op)
	}
	for _, le := range []string{".005", ".025", ".1", ".5", "1", "2.5", "5", "10", "30", "60", "120", "180", "+Inf"} {
		fmt.Fprintf(&b, "pleg_relist_duration_seconds_bucket{le=%q} 100\n", le)
	}
	if reason != "" {
		fmt.Fprintf(&b, "pleg_reason{reason=%[1]q,severity=\"critical\"} 1\npleg_primary_reason{reason=%[1]q} 1\n", reason)
	}
	if reason == stall {
		b.WriteString("pleg_culprit{kind=\"helper\",id=\"runc\"} 1\n")
	}
	return b.String()
}
