package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A member is a node of a made fleet. One with a reason has it from a minute on, until another one
// if that is set. One with an earlier kernel leaves it at that time.
type member struct {
	version, kernel, zone, pool string
	kernelBefore                string
	reason                      string
	minute, until               int
}

// versions are the labels of pleg_node_info.
func versions(runtime, kernel string) string {
	return fmt.Sprintf(`runtime_name="containerd", runtime_version="%s", kernel_version="%s", os_image="Debian", cgroup_version="2", plegd_version="1"`, runtime, kernel)
}

// fleetSeries begins a test with the series of a fleet for half an hour.
func fleetSeries(b *strings.Builder, cluster string, nodes []member) {
	fmt.Fprintf(b, "  - name: %s\n    interval: 15s\n    input_series:\n", cluster)
	const intervals = 4 * 30
	for i, n := range nodes {
		id := fmt.Sprintf(`cluster="%s", job="plegd", instance="n%d", node="n%d"`, cluster, i, i)
		series := func(name, labels, values string) {
			fmt.Fprintf(b, "      - {series: '%s{%s, %s}', values: '%s'}\n", name, id, labels, values)
		}
		always := fmt.Sprintf("1x%d", intervals)
		series("pleg_threshold_seconds", `env="x"`, always)
		if n.kernelBefore != "" {
			// It moves on from one kernel to the next; its fault ends then.
			moved := 4 * n.until
			series("pleg_node_info", versions(n.version, n.kernelBefore), fmt.Sprintf("1x%d stale", moved-1))
			always = fmt.Sprintf("_x%d 1x%d", moved, intervals-moved)
		}
		series("pleg_node_info", versions(n.version, n.kernel), always)
		always = fmt.Sprintf("1x%d", intervals)
		fmt.Fprintf(b, "      - {series: 'kube_node_labels{cluster=\"%s\", job=\"ksm\", node=\"n%d\", label_topology_kubernetes_io_zone=\"%s\", label_pool=\"%s\"}', values: '%s'}\n", cluster, i, n.zone, n.pool, always)
		if n.reason != "" {
			values := fmt.Sprintf("1x%d", intervals-4*n.minute)
			if n.until > 0 {
				values = fmt.Sprintf("1x%d stale", 4*(n.until-n.minute))
			}
			if n.minute > 0 {
				values = fmt.Sprintf("_x%d ", 4*n.minute) + values
			}
			series("pleg_primary_reason", fmt.Sprintf(`reason="%s"`, n.reason), values)
			series("pleg_reason", fmt.Sprintf(`reason="%s", severity="critical"`, n.reason), values)
		}
	}
}

// runShared runs unit tests of the rules with promtool. promtool holds at most 10,000 samples at
// once, so that each fleet is a test of its own.
func runShared(t *testing.T, interval, tests string) (output string, err error) {
	t.Helper()
	promtool(t)
	files, err := render(`{kubeNodeLabels+: {pool: 'label_pool'}}`)
	must(t, err)
	dir := t.TempDir()
	text := "rule_files: [plegd.rules.yml, plegd.recording.yml]\nevaluation_interval: " + interval + "\ntests:\n" + tests
	for name, b := range map[string][]byte{
		"plegd.rules.yml": files["prometheus/plegd.rules.yml"], "plegd.recording.yml": files["prometheus/plegd.recording.yml"], "test.yml": []byte(text),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	cmd := exec.Command("promtool", "test", "rules", "test.yml")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// healthyFleet returns nodes whose labels are spread independently: three zones, four
// pools, two kernels, and containerd 2.4.1.
func healthyFleet(n int) []member {
	nodes := make([]member, n)
	for i := range nodes {
		nodes[i] = member{version: "2.4.1", kernel: "6." + strconv.Itoa(i/12%2), zone: string(rune('a' + i%3)), pool: "p" + strconv.Itoa(i/3%4)}
	}
	return nodes
}

// A shared is what a message of many nodes says; now: nodes that still have the reason.
type shared struct {
	reason, summary string
	now             int
}

// TestShared: what the rules name for fleets with a known cause.
func TestShared(t *testing.T) {
	const stall, slow = "RuntimeListStall", "RuntimeStorageStall"
	var tests strings.Builder
	for _, tt := range []struct {
		cluster string
		make    func(i int, n *member)
		want    []shared
	}{
		{"waves", func(i int, n *member) { // 10, 20 and 30 nodes get the version, most of them break
			if i < 60 {
				n.version = "2.4.2"
				if i%5 != 0 {
					n.reason, n.minute = stall, 5+5*(i/20)
				}
			}
			if i == 200 {
				n.reason, n.minute = stall, 3
			}
		}, []shared{{stall, "49 nodes have had " + stall + " within 30m; 97.96% of them runtime_version=2.4.2", 49}}},
		{"confounded", func(i int, n *member) { // only zone a and pool p0 have the version, and not all of them
			if n.zone == "a" && n.pool == "p0" && i < 250 {
				n.version, n.reason, n.minute = "2.4.2", stall, 6
			}
		}, []shared{{stall, "21 nodes have had " + stall + " within 30m; 100% of them runtime_version=2.4.2", 21}}},
		{"both", func(i int, n *member) { // one slow zone and one bad version
			if i%11 == 0 {
				n.version, n.reason, n.minute = "2.4.2", stall, 6
			} else if n.zone == "b" && i%2 == 0 {
				n.reason, n.minute = slow, 7
			}
		}, []shared{{stall, "33 nodes have had " + stall + " within 30m; 100% of them runtime_version=2.4.2", 33},
			{slow, "54 nodes have had " + slow + " within 30m; 100% of them zone=b", 54}}},
		{"four", func(i int, n *member) { // too few
			if i < 4 {
				n.version, n.reason, n.minute = "2.4.2", stall, 6
			}
		}, nil},
		{"forward", func(i int, n *member) { // nodes broke on one kernel and moved on to the next
			if i%10 == 0 {
				*n = member{version: n.version, kernelBefore: "6.8-bad", kernel: "6.9-good", zone: n.zone, pool: n.pool, reason: slow, minute: 5, until: 12}
			}
		}, []shared{{slow, "36 nodes have had " + slow + " within 30m; 100% of them kernel_version=6.8-bad", 0}}},
		{"everywhere", func(i int, n *member) { // a cause that no label has
			if i%7 == 0 {
				n.reason, n.minute = stall, 6
			}
		}, []shared{{stall, "52 nodes have had " + stall + " within 30m", 52}}},
		{"one-version", func(i int, n *member) { // a label that all nodes have explains nothing
			n.version = "2.4.2"
			if i%7 == 0 {
				n.reason, n.minute = stall, 6
			}
		}, []shared{{stall, "52 nodes have had " + stall + " within 30m", 52}}},
	} {
		nodes := healthyFleet(360)
		for i := range nodes {
			tt.make(i, &nodes[i])
		}
		fleetSeries(&tests, tt.cluster, nodes)
		if tt.cluster == "waves" {
			// The first wave is named as soon as its nodes have had the reason for a while.
			tests.WriteString(`    promql_expr_test:
      - expr: 'count(ALERTS{alertname="PLEGFleetFault"})'
        eval_time: 7m
        exp_samples: [{labels: '{}', value: 1}]
      - expr: 'count(ALERTS{alertname="PLEGNodeInhibited"})'
        eval_time: 18m
        exp_samples: [{labels: '{}', value: 49}]
`)
		}
		tests.WriteString("    alert_rule_test:\n      - eval_time: 18m\n        alertname: PLEGFleetFault\n        exp_alerts:\n")
		for _, w := range tt.want {
			now := "None of them has it now."
			if w.now > 0 {
				now = fmt.Sprintf("%d of them have it now: stop the rollout of what they share, or check what all of them use.", w.now)
			}
			fmt.Fprintf(&tests, `          - exp_labels: {severity: critical, cluster: %s, job: plegd, reason: %s}
            exp_annotations:
              summary: %q
              description: '%s The dashboard "What do they share?" has all groups. It is a correlation, not a proof.'
              runbook_url: https://github.com/plegd/plegd/blob/main/docs/fleets.md
`, tt.cluster, w.reason, w.summary, now)
		}
	}
	if out, err := runShared(t, "30s", tests.String()); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// TestSharedByChance: random nodes of random fleets break for no common cause. FLEETS sets how
// many fleets; at most one in a hundred may have an alert.
func TestSharedByChance(t *testing.T) {
	fleets := 40
	if n := os.Getenv("FLEETS"); n != "" {
		var err error
		fleets, err = strconv.Atoi(n)
		must(t, err)
	}
	var tests strings.Builder
	for f := range fleets {
		r := rand.New(rand.NewPCG(uint64(f), 28))
		nodes := make([]member, 60+r.IntN(240))
		versions, kernels, zones, pools := 1+r.IntN(4), 1+r.IntN(4), 1+r.IntN(4), 1+r.IntN(8)
		pick := func(prefix string, n int) string { return prefix + strconv.Itoa(min(r.IntN(n), r.IntN(n))) }
		for i := range nodes {
			nodes[i] = member{version: pick("2.4.", versions), kernel: pick("6.", kernels), zone: pick("z", zones), pool: pick("p", pools)}
		}
		for range 5 + r.IntN(len(nodes)/4) {
			n := &nodes[r.IntN(len(nodes))]
			n.reason, n.minute = "RuntimeListStall", r.IntN(20)
		}
		fleetSeries(&tests, "f"+strconv.Itoa(f), nodes)
		fmt.Fprintf(&tests, `    promql_expr_test:
      - expr: 'count(max_over_time(cluster:plegd_common_cause:ratio[30m]))'
        eval_time: 30m
      - expr: 'count(cluster:plegd_group_lift:ratio > -1) > bool 0'
        eval_time: 30m
        exp_samples: [{labels: '{}', value: 1}]
`)
	}
	// Nothing here depends on the moment: rare evaluations are enough.
	out, err := runShared(t, "3m", tests.String())
	named := strings.Count(out, "expr: \"count(max_over_time(cluster:plegd_common")
	t.Logf("%d of %d random fleets had a common cause", named, fleets)
	if named > fleets/100 || err != nil && named == 0 {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
