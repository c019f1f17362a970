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

const (
	// day is the time range of the dashboards, with a point each minute: more points than
	// a panel has pixels.
	day = 24 * time.Hour
	// maxSamples is the limit of a query, Prometheus' default of --query.max-samples.
	maxSamples = 50_000_000
	// fleetNodes are in clusters of perCluster nodes.
	fleetNodes = 5000
	perCluster = 1000
)

// A writer writes series as OpenMetrics: a family's samples stand together.
type writer struct {
	*bufio.Writer
	begin, end time.Time
	every      time.Duration
}

func (w *writer) family(name string) { fmt.Fprintf(w, "# TYPE %s unknown\n", name) }

func (w *writer) series(name, labels string, from, to time.Time) {
	for at := from; at.Before(to); at = at.Add(w.every) {
		fmt.Fprintf(w, "%s{%s} 1 %d\n", name, labels, at.Unix())
	}
}

// each writes a family with one label in several values, for each of some targets.
func (w *writer) each(name string, targets []string, labels ...string) {
	w.family(name)
	for _, t := range targets {
		for _, l := range labels {
			w.series(name, t+l, w.begin, w.end)
		}
	}
}

// labels returns the label with each of its values, to follow other labels.
func labels(name, values string) (out []string) {
	for v := range strings.FieldsSeq(values) {
		out = append(out, fmt.Sprintf(",%s=%q", name, v))
	}
	return out
}

const (
	operations = "list_podsandbox list_containers version status"
	states     = "starting healthy degraded unhealthy"
	containers = "created exited running unknown"
	buckets    = ".005 .025 .1 .5 1 2.5 5 10 30 60 120 180 +Inf"
)

func cluster(i int) string { return fmt.Sprintf(`cluster="c%d",job="plegd"`, i) }

func node(i int) string {
	return fmt.Sprintf(`%s,instance="10.0.%d.%d:20290",node="node-%d"`, cluster(i/perCluster), i/250, i%250, i)
}

func targets(n int, of func(int) string) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = of(i)
	}
	return out
}

// TestFleet opens the dashboards of a fleet over a day of 5,000 nodes in a real Prometheus
// with its default limits, and counts the samples that each panel reads. Each node had a
// reason for ten minutes, and in the last half hour all of them have one. The node's
// dashboard reads one node only: see TestDashboards.
func TestFleet(t *testing.T) {
	m, err := evaluate("")
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Truncate(2 * time.Hour)
	base, _ := filled(t, &writer{begin: end.Add(-day), end: end, every: time.Minute}, writeRecorded)
	for _, name := range []string{"plegd-overview.json", "plegd-fleet.json"} {
		var d dashboard
		if err := json.Unmarshal(m.Dashboards[name], &d); err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				s := query(t, base, target.Expr, end.Add(-time.Minute), target.Instant)
				t.Logf("%s, %s: %d samples read, %d at once", d.Title, p.Title, s.total, s.peak)
				// A tenth of the limit is left for years of growth and panels of your own.
				if s.peak > maxSamples/10 {
					t.Errorf("%s: %s holds %d samples at once", d.Title, p.Title, s.peak)
				}
			}
		}
	}
}

// writeRecorded writes what the rules record of a fleet.
func writeRecorded(w *writer) {
	clusters := targets(fleetNodes/perCluster, cluster)
	for name, more := range map[string][]string{
		"plegd_nodes:count": {""}, "plegd_down:count": {""}, "pleg_never_seen:count": {""}, "pleg_node_ready_predicted:sum": {""},
		"pleg_last_seen_age_seconds:max": {""}, "pleg_not_ready_in_seconds:min": {""},
		"pleg_verdict:sum": labels("state", states), "pleg_running_containers:sum": labels("container_state", containers),
		"pleg_relist_duration_seconds_bucket:rate5m": labels("le", buckets),
		"pleg_runtime_operations:rate5m":             labels("operation_type", operations),
		"pleg_runtime_operations_errors:rate5m":      labels("operation_type", operations),
		"pleg_primary_reason:sum":                    labels("reason", reasons()),
		"pleg_primary_reason:recent":                 labels("reason", reasons()),
		"plegd_group_nodes:count":                    labels("label", "runtime_version"),
	} {
		w.each("cluster:"+name, clusters, more...)
	}
	// 20 groups with each of five reasons: more are not active at once.
	active := labels("reason", strings.Join(strings.Fields(reasons())[:5], " "))
	for _, name := range []string{"plegd_group_reason:count", "plegd_group_lift:ratio", "pleg_culprit_id:count"} {
		w.family("cluster:" + name)
		for _, c := range clusters {
			for _, reason := range active {
				for v := range 20 {
					w.series("cluster:"+name, fmt.Sprintf(`%s%s,label="zone",value="%d",kind="mount",id="%d"`, c, reason, v, v), w.begin, w.end)
				}
			}
		}
	}
	all := labels("reason", reasons())
	outage := w.end.Add(-30 * time.Minute)
	for _, name := range []string{"active", "since"} {
		name = "instance:pleg_primary_reason:" + name
		w.family(name)
		for i := range fleetNodes {
			own := w.begin.Add(time.Duration(i*7%(9*60)) * time.Minute)
			w.series(name, node(i)+all[i%len(all)], own, own.Add(10*time.Minute))
			w.series(name, node(i)+all[0], outage, w.end)
		}
	}
}

// reasons are the names of their pages.
func reasons() string {
	pages, _ := filepath.Glob("../../docs/reasons/*.md")
	for i, p := range pages {
		pages[i] = strings.TrimSuffix(filepath.Base(p), ".md")
	}
	return strings.Join(pages, " ")
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
	base, pid := filled(t, &writer{begin: end.Add(-10 * time.Minute), end: end, every: 15 * time.Second}, writeNodes)
	var sum time.Duration
	for _, g := range append(m.Alerts.Groups, m.Rules.Groups...) {
		var group time.Duration
		for _, r := range g.Rules {
			least := time.Hour
			for range 3 { // the least: garbage of one query is collected in the next
				before := cpuTime(t, pid)
				query(t, base, r.Expr, end.Add(-15*time.Second), true)
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

// writeNodes writes the series that the rules read.
func writeNodes(w *writer) {
	nodes := targets(fleetNodes, node)
	for _, name := range []string{
		"up", "pleg_threshold_seconds", "pleg_relist_period_seconds", "pleg_last_seen_age_seconds", "pleg_last_seen_seconds",
		"pleg_node_ready_predicted", "pleg_runtime_process_open_fds", "pleg_runtime_process_max_fds",
	} {
		w.each(name, nodes, "")
	}
	w.family("pleg_node_info")
	for i, n := range nodes {
		info := fmt.Sprintf(`,runtime_name="containerd",runtime_version="2.4.%d",kernel_version="6.1.%d",os_image="Debian %d",cgroup_version="2",plegd_version="1"`,
			i/300%2, i/7%3, 12+i%2)
		w.series("pleg_node_info", n+info, w.begin, w.end)
	}
	w.each("pleg_verdict", nodes, labels("state", states)...)
	w.each("pleg_running_containers", nodes, labels("container_state", containers)...)
	w.each("pleg_runtime_operations_total", nodes, labels("operation_type", operations)...)
	w.each("pleg_runtime_operations_errors_total", nodes, labels("operation_type", operations)...)
	w.each("pleg_relist_duration_seconds_bucket", nodes, labels("le", buckets)...)
	broken := nodes[:300]
	w.each("pleg_reason", broken, `,reason="RuntimeListStall",severity="critical"`)
	w.each("pleg_primary_reason", broken, `,reason="RuntimeListStall"`)
	w.each("pleg_culprit", broken, `,kind="helper",id="runc"`)
	for _, name := range []string{"active", "sustained", "recent", "since"} {
		w.each("instance:pleg_primary_reason:"+name, broken, `,reason="RuntimeListStall"`)
	}
}

// filled starts a Prometheus that holds what write writes, and returns its address and pid.
func filled(t *testing.T, w *writer, write func(*writer)) (base string, pid int) {
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
	w.Writer = bufio.NewWriterSize(f, 1<<20)
	write(w)
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

// stats is what a query costs: samples read, and samples in memory at once.
type stats struct{ total, peak int }

// query runs an expression as Grafana does: at a moment, or over the day before it.
func query(t *testing.T, base, expr string, at time.Time, instant bool) stats {
	t.Helper()
	expr = strings.NewReplacer("$cluster", ".*", "$job", ".*", "$__rate_interval", "4m").Replace(expr)
	values := url.Values{"query": {expr}, "stats": {"all"}}
	path := "/api/v1/query_range?"
	if instant {
		path = "/api/v1/query?"
		values.Set("time", strconv.FormatInt(at.Unix(), 10))
	} else {
		values.Set("start", strconv.FormatInt(at.Add(-day+2*time.Minute).Unix(), 10))
		values.Set("end", strconv.FormatInt(at.Unix(), 10))
		values.Set("step", "60")
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Stats struct {
				Samples struct {
					Total int `json:"totalQueryableSamples"`
					Peak  int `json:"peakSamples"`
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(get(t, base+path+values.Encode())), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Status != "success" {
		t.Errorf("%s: %s", expr, answer.Error)
	}
	return stats{answer.Data.Stats.Samples.Total, answer.Data.Stats.Samples.Peak}
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
