//go:build e2e

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fleetNodes are in clusters of perCluster nodes.
const fleetNodes, perCluster = 5000, 1000

// labels returns the label with each of its values, to follow other labels.
func labels(name, values string) (out []string) {
	for v := range strings.FieldsSeq(values) {
		out = append(out, fmt.Sprintf(",%s=%q", name, v))
	}
	return out
}

// TestRulesCost evaluates every rule once over 5,000 nodes, 300 of them with a reason, and
// measures the CPU time of Prometheus: at most a third of the interval, 15 s.
func TestRulesCost(t *testing.T) {
	m, err := evaluate("")
	if err != nil {
		t.Fatal(err)
	}
	const limit = 5 * time.Second
	end := time.Now().Truncate(2 * time.Hour)
	base, pid := filled(t, end)
	var sum time.Duration
	for _, g := range append(m.Alerts.Groups, m.Rules.Groups...) {
		var group time.Duration
		for _, r := range g.Rules {
			least := time.Hour
			for range 3 { // the least: garbage of one query is collected in the next
				before := cpuTime(t, pid)
				query(t, base, r.Expr, end.Add(-15*time.Second))
				least = min(least, cpuTime(t, pid)-before)
			}
			group += least
		}
		t.Logf("%s: %.2f s of CPU time", g.Name, group.Seconds())
		sum += group
	}
	t.Logf("rules: one evaluation over %d nodes takes %.2f s of CPU time", fleetNodes, sum.Seconds())
	if sum > limit {
		t.Errorf("the rules take %s, more than %s", sum, limit)
	}
}

// writeNodes writes the series that the rules read over ten minutes, as OpenMetrics: a
// family's samples stand together.
func writeNodes(w io.Writer, end time.Time) {
	const operations, states = "list_podsandbox list_containers version status", "starting healthy degraded unhealthy"
	nodes := make([]string, fleetNodes)
	for i := range nodes {
		nodes[i] = fmt.Sprintf(`cluster="c%d",job="plegd",instance="10.0.%d.%d:20290",node="node-%d"`, i/perCluster, i/250, i%250, i)
	}
	each := func(name string, nodes []string, labels ...string) {
		fmt.Fprintf(w, "# TYPE %s unknown\n", name)
		for i, n := range nodes {
			for _, l := range labels {
				for at := end.Add(-10 * time.Minute); at.Before(end); at = at.Add(15 * time.Second) {
					fmt.Fprintf(w, "%s{%s%s} 1 %d\n", name, n, strings.ReplaceAll(l, "VERSION", fmt.Sprint(i/300%2)), at.Unix())
				}
			}
		}
	}
	for _, name := range []string{
		"up", "pleg_threshold_seconds", "pleg_relist_period_seconds", "pleg_last_seen_age_seconds", "pleg_last_seen_seconds",
		"pleg_node_ready_predicted", "pleg_runtime_process_open_fds", "pleg_runtime_process_max_fds",
	} {
		each(name, nodes, "")
	}
	each("pleg_node_info", nodes, `,runtime_name="containerd",runtime_version="2.4.VERSION",kernel_version="6.1.VERSION",os_image="Debian",cgroup_version="2",plegd_version="1"`)
	each("pleg_verdict", nodes, labels("state", states)...)
	each("pleg_running_containers", nodes, labels("container_state", "created exited running unknown")...)
	each("pleg_runtime_operations_total", nodes, labels("operation_type", operations)...)
	each("pleg_runtime_operations_errors_total", nodes, labels("operation_type", operations)...)
	each("pleg_relist_duration_seconds_bucket", nodes, labels("le", ".005 .025 .1 .5 1 2.5 5 10 30 60 120 180 +Inf")...)
	broken := nodes[:300]
	each("pleg_reason", broken, `,reason="RuntimeListStall",severity="critical"`)
	each("pleg_primary_reason", broken, `,reason="RuntimeListStall"`)
	each("pleg_culprit", broken, `,kind="helper",id="runc"`)
	for _, name := range []string{"active", "sustained", "recent", "since"} {
		each("instance:pleg_primary_reason:"+name, broken, `,reason="RuntimeListStall"`)
	}
}

// filled starts a Prometheus that holds the fleet, and returns its address and pid.
func filled(t *testing.T, end time.Time) (base string, pid int) {
	t.Helper()
	promtool(t)
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("SKIPPED: prometheus is not installed; see test/e2e/install-deps.sh")
	}
	dir := t.TempDir()
	path, data, config := filepath.Join(dir, "fleet.om"), filepath.Join(dir, "data"), filepath.Join(dir, "prometheus.yml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	writeNodes(w, end)
	_, _ = w.WriteString("# EOF\n")
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", path, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool tsdb create-blocks-from: %v\n%s", err, out)
	}
	_ = os.Remove(path)
	if err := os.WriteFile(config, []byte("global: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=7d", "--web.listen-address="+address)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	await(t, "http://"+address+"/-/ready")
	return "http://" + address, cmd.Process.Pid
}

// cpuTime is the CPU time of a process so far, in ticks of 10 ms.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime: proc(5)
		n, _ := strconv.Atoi(f)
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum
}

// query evaluates an expression at a moment.
func query(t *testing.T, base, expr string, at time.Time) {
	t.Helper()
	var answer struct{ Status, Error string }
	values := url.Values{"query": {expr}, "time": {strconv.FormatInt(at.Unix(), 10)}}
	if err := json.Unmarshal([]byte(get(t, base+"/api/v1/query?"+values.Encode())), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "success" {
		t.Errorf("%s: %s", expr, answer.Error)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// await polls a page until it is there: the programs have no other way to say so.
func await(t *testing.T, page string) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		answer, err := http.Get(page)
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come: %v", page, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func get(t *testing.T, page string) string {
	t.Helper()
	answer, err := http.Get(page)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
