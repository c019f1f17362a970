// Package kubectl_test runs the kubectl plugin against a fake kubectl.
package kubectl_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeKubectl knows three nodes with a pod each; the plegd of node-c does not
// answer.
const fakeKubectl = `#!/bin/sh
echo "$*" >>"$LOG"
case "$*" in
*"get pods"*spec.nodeName=node-b*) echo "node-b monitoring plegd-b" ;;
*"get pods"*spec.nodeName=*) ;;
*"get pods"*) printf 'node-a monitoring plegd-a\nnode-b monitoring plegd-b\nnode-c monitoring plegd-c\n' ;;
*"/pods/plegd-a:20290/proxy/api/v1/status?o=line"*) echo "healthy -" ;;
*"/namespaces/monitoring/pods/plegd-b:20290/proxy/api/v1/status?o=line"*) echo "degraded ShimStuck; 41s until the kubelet stops managing pods" ;;
*"/namespaces/monitoring/pods/plegd-b:20290/proxy/api/v1/status?o=text"*) echo "DEGRADED: ShimStuck" ;;
*) echo "Error from server" >&2; exit 1 ;;
esac
`

func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(fakeKubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command("./kubectl-plegd", args...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LOG="+log)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	list, code := run("--context=prod")
	lines := strings.Split(strings.TrimSpace(list), "\n")
	slices.Sort(lines)
	if code != 0 || len(lines) != 2 || !strings.HasPrefix(lines[0], "node-b ") || !strings.Contains(lines[0], "degraded ShimStuck; 41s") || !strings.HasSuffix(lines[1], "no answer") {
		t.Errorf("the list: %d\n%s", code, list)
	}
	if out, code := run("node-b"); code != 0 || out != "DEGRADED: ShimStuck\n" {
		t.Errorf("one node: %d\n%s", code, out)
	}
	if out, code := run("node-x"); code != 3 || !strings.Contains(out, "no pod of plegd") {
		t.Errorf("an unknown node: %d\n%s", code, out)
	}
	if _, code := run("a", "b"); code != 4 {
		t.Errorf("two nodes: %d", code)
	}
	if out, code := run("--help"); code != 0 || !strings.HasPrefix(out, "kubectl plegd [NODE]") || strings.Contains(out, "set -eu") {
		t.Errorf("help: %d\n%s", code, out)
	}
	asked, err := os.ReadFile(log)
	if err != nil || strings.Count(string(asked), "--context=prod") != 4 {
		t.Errorf("kubectl's flags are not passed on: %v\n%s", err, asked)
	}
}
