package prometheus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// TestConfigurations has Prometheus discover and relabel the job's targets, and compares the
// addresses and nodes that come out. Debian's promtool is built without Kubernetes: two nodes
// stand in the place of the cluster, as the discovery hands them to the relabelling.
func TestConfigurations(t *testing.T) {
	must.Programs(t, "promtool")
	for file, c := range map[string]struct {
		replace []string // pairs
		want    []string
	}{
		"prometheus.static.yml": {nil, []string{"node1:20290 is node1", "node2:20290 is node2"}},
		"prometheus.file.yml":   {nil, []string{"node1:20290 is node1", "node2:20290 is node2", "node3:20290 is node3"}},
		"prometheus.kubernetes.yml": {[]string{
			"    kubernetes_sd_configs:\n      - role: node\n", `    static_configs:
      - targets: ['10.0.0.7:10250']
        labels: {__meta_kubernetes_node_name: worker-7}
      - targets: ['[fd00::8]:10250']
        labels: {__meta_kubernetes_node_name: worker-8}
`,
			"    - kubernetes_sd_configs:\n        - role: endpoints\n          namespaces: {names: [monitoring]}\n",
			"    - static_configs: [{targets: ['10.0.0.9:9093']}]\n",
		}, []string{"10.0.0.7:20290 is worker-7", "[fd00::8]:20290 is worker-8"}},
	} {
		t.Run(file, func(t *testing.T) {
			dir, text := t.TempDir(), contents(t, file)
			for i := 0; i < len(c.replace); i += 2 {
				check.Contains(t, text, c.replace[i], "text")
				text = strings.Replace(text, c.replace[i], c.replace[i+1], 1)
			}
			must.Do(t, os.Mkdir(filepath.Join(dir, "targets"), 0o755))
			for name, content := range map[string]string{
				file: text, "targets/nodes.yml": contents(t, "targets.example.yml"),
				alertRules: contents(t, alertRules), recordingRules: contents(t, recordingRules),
			} {
				must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
			}
			if err := run(dir, "promtool", "check", "config", file); err != nil {
				t.Error(err)
			}
			cmd := exec.Command("promtool", "check", "service-discovery", "--timeout=3s", file, "plegd")
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if got := discovered(string(out)); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("the targets are %q, want %q (%v)\n%s", got, c.want, err, out)
			}
		})
	}
}

// discovered returns the addresses and nodes of promtool's answer, sorted.
func discovered(out string) (got []string) {
	_, all, _ := strings.Cut(out, "[") // before it: how many there are
	var address string
	inLabels := false
	for line := range strings.Lines(all) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), `: "`)
		value = strings.Trim(value, `",`)
		switch {
		case strings.HasPrefix(name, `"discoveredLabels"`), strings.HasPrefix(name, `"labels"`):
			inLabels = strings.HasPrefix(name, `"labels"`)
		case inLabels && name == `"__address__"`:
			address = value
		case inLabels && name == `"node"`:
			got = append(got, address+" is "+value)
		}
	}
	slices.Sort(got)
	return got
}
