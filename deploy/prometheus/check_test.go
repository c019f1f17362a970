package prometheus_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// targets has Prometheus discover and relabel the job's targets, and compares
// the addresses and nodes that come out.
func targets(dir, config string, want ...string) error {
	if err := run(dir, "promtool", "check", "config", config); err != nil {
		return err
	}
	cmd := exec.Command("promtool", "check", "service-discovery", "--timeout=3s", config, "plegd")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("promtool check service-discovery %s: %s", config, out)
	}
	_, all, _ := strings.Cut(string(out), "[") // before it: how many there are
	var got []string
	var address string
	inLabels := false
	for line := range strings.Lines(all) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, `"discoveredLabels"`):
			inLabels = false
		case strings.HasPrefix(line, `"labels"`):
			inLabels = true
		case inLabels && strings.HasPrefix(line, `"__address__"`):
			address = unquoted(line)
		case inLabels && strings.HasPrefix(line, `"node"`):
			got = append(got, address+" is "+unquoted(line))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: the targets are %q, want %q\n%s", config, got, want, out)
	}
	return nil
}

// unquoted returns the value of a line of JSON.
func unquoted(line string) string {
	_, value, _ := strings.Cut(line, `": "`)
	return strings.Trim(value, `",`)
}

func checkStatic(dir string) error {
	return targets(dir, "prometheus.static.yml", "node1:20290 is node1", "node2:20290 is node2")
}

// checkFile puts the example where the configuration looks for it.
func checkFile(dir string) error {
	tmp, err := copied(dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.Mkdir(filepath.Join(tmp, "targets"), 0o755); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(tmp, "targets.example.yml"), filepath.Join(tmp, "targets", "nodes.yml")); err != nil {
		return err
	}
	return targets(tmp, "prometheus.file.yml", "node1:20290 is node1", "node2:20290 is node2", "node3:20290 is node3")
}

// nodes is what the discovery of nodes hands to the relabelling.
const nodes = `    static_configs:
      - targets: ['10.0.0.7:10250']
        labels: {__meta_kubernetes_node_name: worker-7}
      - targets: ['[fd00::8]:10250']
        labels: {__meta_kubernetes_node_name: worker-8}
`

// checkKubernetes puts two nodes in the place of the cluster: Debian's promtool is built
// without Kubernetes.
func checkKubernetes(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, kubernetes))
	if err != nil {
		return err
	}
	text := string(b)
	for old, replacement := range map[string]string{
		"    kubernetes_sd_configs:\n      - role: node\n":                                                       nodes,
		"    - kubernetes_sd_configs:\n        - role: endpoints\n          namespaces: {names: [monitoring]}\n": "    - static_configs: [{targets: ['10.0.0.9:9093']}]\n",
	} {
		if !strings.Contains(text, old) {
			return fmt.Errorf("%s: there is no %q", kubernetes, old)
		}
		text = strings.Replace(text, old, replacement, 1)
	}
	tmp, err := copied(dir)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.WriteFile(filepath.Join(tmp, kubernetes), []byte(text), 0o644); err != nil {
		return err
	}
	return targets(tmp, kubernetes, "10.0.0.7:20290 is worker-7", "[fd00::8]:20290 is worker-8")
}

// copied returns a new directory with the files of dir.
func copied(dir string) (string, error) {
	tmp, err := os.MkdirTemp("", "plegd-deploy-")
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yml"))
	if err != nil {
		return "", err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(tmp, filepath.Base(f)), b, 0o644); err != nil {
			return "", err
		}
	}
	return tmp, nil
}
