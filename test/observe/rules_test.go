//go:build e2e

package observe

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
)

// perCluster is how many nodes a cluster has.
const perCluster = 1000

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
	const limit = 5 * time.Second
	end := time.Now().Truncate(2 * time.Hour)
	nodes := lab.Number(t, "PLEGD_FLEET_NODES", 5000)
	p := filled(t, end, nodes)
	fmt.Printf("%s; Prometheus %s, %d nodes\n", time.Now().UTC().Format("2006-01-02"), version(t, p), nodes)
	at := strconv.FormatInt(end.Add(-15*time.Second).Unix(), 10)
	var sum time.Duration
	for _, text := range withRules(t, "") {
		var file struct {
			Groups []struct {
				Name  string
				Rules []struct{ Expr string }
			}
		}
		lab.Must(t, yaml.Unmarshal([]byte(text), &file))
		for _, g := range file.Groups {
			var group time.Duration
			for _, r := range g.Rules {
				least := time.Hour
				for range 3 { // the least: garbage of one query is collected in the next
					before := cpuTime(t, p.Pid)
					query := url.Values{"query": {r.Expr}, "time": {at}}
					if code, body, err := lab.Get(http.DefaultClient, p.URL()+"/api/v1/query?"+query.Encode()); err != nil || code != http.StatusOK {
						t.Fatalf("%s: %d %.500s %v", r.Expr, code, body, err)
					}
					least = min(least, cpuTime(t, p.Pid)-before)
				}
				group += least
			}
			fmt.Printf("%-20s %5.2f s of CPU time\n", g.Name, group.Seconds())
			sum += group
		}
	}
	fmt.Printf("%-20s %5.2f s of CPU time\n", "all", sum.Seconds())
	if sum > limit || sum == 0 {
		t.Errorf("the rules take %s, more than %s, or nothing", sum, limit)
	}
}

// writeNodes writes the series that the rules read over ten minutes, as OpenMetrics: a
// family's samples stand together.
func writeNodes(w io.Writer, end time.Time, n int) {
	const operations, states = "list_podsandbox list_containers version status", "starting healthy degraded unhealthy"
	nodes := make([]string, n)
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
	broken := nodes[:n*300/5000]
	each("pleg_reason", broken, `,reason="RuntimeListStall",severity="critical"`)
	each("pleg_primary_reason", broken, `,reason="RuntimeListStall"`)
	each("pleg_culprit", broken, `,kind="helper",id="runc"`)
	each("pleg_primary_reason_info", broken, `,reason="RuntimeListStall",cause="a list hangs",next="find the holder",culprit="helper runc"`)
	each("instance:pleg_primary_reason:active", broken, `,reason="RuntimeListStall",severity="critical"`)
	for _, name := range []string{"pleg_message:info", "pleg_fault:versions", "pleg_fault:labels", "pleg_fault:recent", "pleg_primary_reason:since"} {
		each("instance:"+name, broken, `,reason="RuntimeListStall"`)
	}
}

// filled starts a Prometheus that holds a fleet.
func filled(t *testing.T, end time.Time, nodes int) *lab.Prometheus {
	t.Helper()
	lab.RequirePrograms(t, "promtool")
	path, data := filepath.Join(t.TempDir(), "fleet.om"), filepath.Join(t.TempDir(), "data")
	f, err := os.Create(path)
	lab.Must(t, err)
	w := bufio.NewWriterSize(f, 1<<20)
	writeNodes(w, end, nodes)
	_, _ = w.WriteString("# EOF\n")
	lab.Must(t, w.Flush())
	_ = f.Close()
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", path, data).CombinedOutput(); err != nil {
		t.Fatalf("promtool tsdb create-blocks-from: %v\n%s", err, out)
	}
	lab.Must(t, os.Remove(path))
	return lab.NewPrometheus(t, lab.FreeAddress(t), map[string]string{"prometheus.yml": "global: {}\n"},
		"--storage.tsdb.path="+data, "--storage.tsdb.retention.time=7d")
}

// version is the version of a Prometheus.
func version(t *testing.T, p *lab.Prometheus) string {
	t.Helper()
	var answer struct{ Data struct{ Version string } }
	code, body, err := lab.Get(http.DefaultClient, p.URL()+"/api/v1/status/buildinfo")
	lab.Must(t, errors.Join(err, json.Unmarshal([]byte(body), &answer)))
	if code != http.StatusOK {
		t.Fatalf("buildinfo: %d %s", code, body)
	}
	return answer.Data.Version
}

// cpuTime is the CPU time of a process so far.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	var at unix.Timespec
	lab.Must(t, unix.ClockGettime(int32(^pid<<3|2), &at)) // clock_getcpuclockid(3)
	return time.Duration(at.Nano())
}
