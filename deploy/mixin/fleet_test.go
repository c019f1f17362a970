//go:build e2e

package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	nodes = flag.String("nodes", "100,1000,5000", "numbers of `nodes`, separated by commas")
	plegd = flag.String("plegd", "../../build/plegd", "`path` of plegd, which is asked for the series of a node")
)

const (
	// day is what the dashboards look back over, with a point for each interval: more points than
	// a panel has pixels.
	day      = 24 * time.Hour
	interval = time.Minute
	// maxSamples is the limit of a query, Prometheus' default of --query.max-samples.
	maxSamples = 50_000_000
	// perCluster is how many nodes a cluster has.
	perCluster = 1000
)

// TestFleet opens the dashboards over a day of fleets of several sizes in a real Prometheus
// with its default limits, and counts the samples that each panel reads. The fleet had a bad
// day: each node had a reason for ten minutes, and in the last half hour all of them have one.
func TestFleet(t *testing.T) {
	promtool(t)
	if _, err := exec.LookPath("prometheus"); err != nil {
		t.Skip("SKIPPED: prometheus is not installed; see test/e2e/install-deps.sh")
	}
	scrape := scrapeOf(t)
	m, err := evaluate("")
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for text := range strings.SplitSeq(*nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, n)
	}
	type row struct{ dashboard, panel string }
	table, order := map[row]map[int]stats{}, []row{}
	for _, size := range sizes {
		base := filled(t, size, scrape)
		for _, name := range []string{"plegd-overview.json", "plegd-node.json"} {
			var d dashboard
			if err := json.Unmarshal(m.Dashboards[name], &d); err != nil {
				t.Fatal(err)
			}
			for _, p := range d.Panels {
				if p.Type == "row" {
					continue
				}
				var sum stats
				for _, target := range p.Targets {
					s := query(t, base, target.Expr, target.Instant)
					sum.total, sum.peak, sum.took = sum.total+s.total, max(sum.peak, s.peak), sum.took+s.took
				}
				// A tenth of the limit is left for years of growth and panels of your own.
				if sum.peak > maxSamples/10 {
					t.Errorf("%s: %s holds %d samples at once with %d nodes", d.Title, p.Title, sum.peak, size)
				}
				r := row{d.Title, p.Title}
				if table[r] == nil {
					table[r] = map[int]stats{}
					order = append(order, r)
				}
				table[r][size] = sum
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| dashboard, panel |")
	for _, size := range sizes {
		fmt.Fprintf(&b, " %d nodes |", size)
	}
	fmt.Fprintf(&b, "\n|---|%s\n", strings.Repeat("---|", len(sizes)))
	for _, r := range order {
		fmt.Fprintf(&b, "| %s, %s |", strings.TrimPrefix(r.dashboard, "plegd: "), r.panel)
		for _, size := range sizes {
			s := table[r][size]
			fmt.Fprintf(&b, " %d (%d), %d ms |", s.total, s.peak, s.took.Milliseconds())
		}
		b.WriteByte('\n')
	}
	t.Logf("samples read (at most in memory at once), time; limit %d at once\n%s", maxSamples, b.String())
	// The fleet's size must not show in the dashboard of one node.
	for _, r := range order {
		if r.dashboard == "plegd: node" && table[r][sizes[0]].total != table[r][sizes[len(sizes)-1]].total {
			t.Errorf("%s reads %d samples with %d nodes and %d with %d", r.panel, table[r][sizes[0]].total, sizes[0], table[r][sizes[len(sizes)-1]].total, sizes[len(sizes)-1])
		}
	}
}

// scrapeOf returns the series of a real plegd beside a fake runtime, without their values.
func scrapeOf(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	socket, address := filepath.Join(dir, "runtime.sock"), freeAddress(t)
	start(t, *plegd, "simulate", "--socket="+socket, "--pods=20")
	start(t, *plegd, "run", "--runtime-endpoint="+socket, "--state-dir="+dir, "--control-socket=", "--web.listen-address="+address, "--kubelet-healthz-url=")
	// All series are there once the first relist and the first look at the runtime are over.
	body := ""
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(body, "pleg_running_containers{") || !strings.Contains(body, "pleg_runtime_process_threads{"); {
		if time.Now().After(deadline) {
			t.Fatal("plegd does not see the fake runtime")
		}
		await(t, "http://"+address+"/-/ready")
		body = get(t, "http://"+address+"/metrics")
	}
	var series []string
	for line := range strings.Lines(body) {
		if name, _, ok := strings.Cut(line, " "); ok && strings.HasPrefix(line, "pleg") {
			series = append(series, name)
		}
	}
	if len(series) < 100 {
		t.Fatalf("plegd serves %d series", len(series))
	}
	return series
}

// filled starts a Prometheus that holds a day of a fleet, and returns its address.
func filled(t *testing.T, size int, scrape []string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "day.om")
	end := time.Now().Truncate(2 * time.Hour)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	write(w, size, scrape, end)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", path, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool tsdb create-blocks-from: %v\n%s", err, out)
	}
	_ = os.Remove(path)
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	start(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=7d", "--web.listen-address="+address)
	await(t, "http://"+address+"/-/ready")
	return "http://" + address
}

// write writes a day of a fleet: what the rules record of it, and all series of its first
// node. Series after series, so that the file is as OpenMetrics wants it.
func write(w io.Writer, size int, scrape []string, end time.Time) {
	begin := end.Add(-day)
	put := func(series string, from, to time.Time, value float64) {
		for at := from; at.Before(to); at = at.Add(interval) {
			fmt.Fprintf(w, "%s %g %d\n", series, value, at.Unix())
		}
	}
	clusters := (size + perCluster - 1) / perCluster
	// A family's samples must stand together.
	perClusterSeries := func(name string, labels ...string) {
		fmt.Fprintf(w, "# TYPE %s unknown\n", name)
		for c := range clusters {
			for _, l := range labels {
				put(fmt.Sprintf(`%s{cluster="c%d",job="plegd/plegd"%s}`, name, c, l), begin, end, 1)
			}
		}
	}
	values := func(label, metric string) (out []string) {
		for _, series := range scrape {
			if rest, ok := strings.CutPrefix(series, metric+"{"); ok {
				for l := range strings.SplitSeq(strings.TrimSuffix(rest, "}"), ",") {
					if strings.HasPrefix(l, label+"=") && !slices.Contains(out, ","+l) {
						out = append(out, ","+l)
					}
				}
			}
		}
		return out
	}
	for _, name := range []string{"plegd_nodes:count", "plegd_down:count", "pleg_never_seen:count", "pleg_node_ready_predicted:sum", "pleg_last_seen_age_seconds:max", "pleg_not_ready_in_seconds:min", "pleg_relist_duration_seconds:p99_5m"} {
		perClusterSeries("cluster:"+name, "")
	}
	perClusterSeries("cluster:pleg_verdict:sum", values("state", "pleg_verdict")...)
	perClusterSeries("cluster:pleg_primary_reason:sum", values("reason", "pleg_primary_reason")...)
	var kinds []string
	for _, kind := range strings.Fields("call container pod runtime shim helper process client mount device cgroup node kernel kubelet") {
		kinds = append(kinds, fmt.Sprintf(`,kind="%s"`, kind))
	}
	perClusterSeries("cluster:pleg_culprit:sum", kinds...)
	perClusterSeries("cluster:pleg_running_containers:sum", values("container_state", "pleg_running_containers")...)
	perClusterSeries("cluster:pleg_relist_duration_seconds_bucket:rate5m", values("le", "pleg_relist_duration_seconds_bucket")...)
	operations := values("operation_type", "pleg_runtime_operations_total")
	perClusterSeries("cluster:pleg_runtime_operations:rate5m", operations...)
	perClusterSeries("cluster:pleg_runtime_operations_errors:rate5m", operations...)

	reasons := values("reason", "pleg_primary_reason")
	random := rand.New(rand.NewPCG(1, 2))
	outage := end.Add(-30 * time.Minute)
	own := make([]time.Time, size)
	for i := range own {
		own[i] = begin.Add(time.Duration(random.IntN(9*60)) * time.Minute)
	}
	for _, name := range []string{"instance:pleg_primary_reason:active", "instance:pleg_last_seen_age_seconds:old"} {
		fmt.Fprintf(w, "# TYPE %s unknown\n", name)
		for i := range size {
			node := fmt.Sprintf(`cluster="c%d",job="plegd/plegd",instance="10.0.%d.%d:20290",node="node-%d"`, i/perCluster, i/250, i%250, i)
			for j, from := range []time.Time{own[i], outage} {
				labels, to := node, from.Add([]time.Duration{10 * time.Minute, 30 * time.Minute}[j])
				if strings.Contains(name, "reason") {
					labels += reasons[(i*(1-j))%len(reasons)]
				}
				put(name+"{"+labels+"}", from, to, 1)
			}
		}
	}

	// The first node, as plegd serves it.
	const node = `cluster="c0",job="plegd/plegd",instance="10.0.0.0:20290",node="node-0"`
	family := ""
	for _, series := range scrape {
		name, labels, ok := strings.Cut(series, "{")
		if ok {
			labels = "," + strings.TrimSuffix(labels, "}")
		}
		if name != family {
			fmt.Fprintf(w, "# TYPE %s unknown\n", name)
			family = name
		}
		put(name+"{"+node+labels+"}", begin, end, 1)
	}
	fmt.Fprintf(w, "# EOF\n")
}

// stats is what a query costs: samples read, samples in memory at once, time.
type stats struct {
	total, peak int
	took        time.Duration
}

// query runs an expression as Grafana does.
func query(t *testing.T, base, expr string, instant bool) stats {
	t.Helper()
	expr = strings.NewReplacer("$cluster", ".*", "$job", ".*", "$node", "node-0", "$__rate_interval", "4m").Replace(expr)
	end := time.Now().Truncate(2 * time.Hour).Add(-interval)
	values := url.Values{"query": {expr}, "stats": {"all"}}
	path := "/api/v1/query_range?"
	if instant {
		path = "/api/v1/query?"
		values.Set("time", strconv.FormatInt(end.Unix(), 10))
	} else {
		values.Set("start", strconv.FormatInt(end.Add(-day+2*interval).Unix(), 10))
		values.Set("end", strconv.FormatInt(end.Unix(), 10))
		values.Set("step", strconv.Itoa(int(interval.Seconds())))
	}
	var answer struct {
		Status, Error string
		Data          struct {
			Stats struct {
				Timings struct {
					Total float64 `json:"evalTotalTime"`
				}
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
	s := answer.Data.Stats
	return stats{s.Samples.Total, s.Samples.Peak, time.Duration(s.Timings.Total * float64(time.Second))}
}

func start(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
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
