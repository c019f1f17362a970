// Package kubectl_test runs the kubectl plugin against a fake kubectl.
package kubectl_test

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

// fakeKubectl knows nodes with a pod each. The plegd of node-c does not answer, that of node-d is
// another program, and a pod is not scheduled.
const fakeKubectl = `#!/bin/sh
printf '%s\n' "$*" >>"$LOG"
case "$*" in
*--all-namespaces*) exit 1 ;;
*"get pods --namespace=plegd"*spec.nodeName=node-b*) echo "node-b|plegd-b" ;;
*"get pods --namespace=plegd"*spec.nodeName=node-d*) echo "node-d|plegd-d" ;;
*"get pods"*spec.nodeName=*) ;;
*"get pods --namespace=plegd"*) printf 'node-a|plegd-a\n|plegd-p\nnode-b|plegd-b\nnode-c|plegd-c\nnode-d|plegd-d\n' ;;
*"/pods/plegd-a:20290/proxy/api/v1/status?o=line"*) echo "healthy -" ;;
*"/namespaces/plegd/pods/plegd-b:20290/proxy/api/v1/status?o=line"*) echo "degraded ShimStuck; 41s until the kubelet stops managing pods" ;;
*"/namespaces/plegd/pods/plegd-b:20290/proxy/api/v1/status?o=text"*) echo "DEGRADED: ShimStuck" ;;
*"/namespaces/plegd/pods/plegd-d:20290/proxy/api/v1/status"*) printf '\033]52;c;ZXZpbA==\a\302\233red\nnode-e   unhealthy\n' ;;
"exec --namespace=plegd plegd-b -- /usr/bin/plegd bundle --output=-") echo archive ;;
*) echo "Error from server" >&2; exit 1 ;;
esac
`

func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(fakeKubectl), 0o755))
	plugin, err := filepath.Abs("kubectl-plegd")
	must.Do(t, err)
	log := filepath.Join(dir, "log")
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(plugin, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "LOG="+log)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	list, code := run("--context", "prod", "-v=1")
	lines := strings.Split(strings.TrimSpace(list), "\n")
	slices.Sort(lines)
	want := []string{"(pending) no answer", "node-b degraded ShimStuck; 41s until the kubelet stops managing pods", "node-c no answer", "node-d ?]52;c;ZXZpbA==???red"}
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}
	if code != 0 || !slices.Equal(lines, want) {
		t.Errorf("the list: %d\n%q, want\n%q", code, lines, want)
	}
	asked, err := os.ReadFile(log)
	if err != nil || strings.Count(string(asked), "--context prod -v=1\n") != 1+5 {
		t.Errorf("kubectl's flags are not passed on: %v\n%s", err, asked)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string // a part of the output
	}{
		{[]string{"node-b"}, 0, "DEGRADED: ShimStuck\n"},
		{[]string{"node-d"}, 0, "?]52;c;ZXZpbA==???red\nnode-e   unhealthy\n"},
		{[]string{"node-x"}, 3, "no pod of plegd"},
		{[]string{"-n", "other", "node-b"}, 3, "namespace other"},
		{[]string{"-nother", "node-b"}, 3, "namespace other"},
		{[]string{"--namespace=../x", "node-b"}, 4, "namespace"},
		{[]string{"*"}, 4, "no name of a node"},
		{[]string{"node-b,metadata.name=x"}, 4, "no name of a node"},
		{[]string{"a", "b"}, 4, "one node"},
		{[]string{"--context"}, 4, "wants a value"},
		{[]string{"bundle"}, 4, "wants a node"},
		{[]string{"bundle", "node-b"}, 0, "plegd-bundle-node-b.tar.gz\n"},
		{[]string{"bundle", "node-b"}, 1, "exists"},
		{[]string{"bundle", "node-d"}, 1, "run plegd bundle on the node"},
		{[]string{"-h"}, 0, "Usage:\n  kubectl plegd "},
		{[]string{"node-b", "--help"}, 0, "kubectl plegd bundle NODE"},
	} {
		out, code := run(tt.args...)
		if code != tt.code || !strings.Contains(out, tt.want) || strings.Contains(out, "set -eu") {
			t.Errorf("%q: %d, want %d with %q\n%s", tt.args, code, tt.code, tt.want, out)
		}
	}
	asked, err = os.ReadFile(log)
	must.Do(t, err)
	sayVerbs(t, strings.Split(strings.TrimSpace(string(asked)), "\n"))
	files, err := filepath.Glob(filepath.Join(dir, "plegd-bundle-*"))
	if err != nil || len(files) != 1 {
		t.Errorf("the bundles %q, %v", files, err)
	}
}

// sayVerbs fails unless the plugin's help and its documentation name the verbs of RBAC that the
// calls of kubectl need. kubectl exec gets the pod first.
func sayVerbs(t *testing.T, calls []string) {
	t.Helper()
	help, err := os.ReadFile("kubectl-plegd")
	must.Do(t, err)
	page, err := os.ReadFile("../../docs/operating.md")
	must.Do(t, err)
	needs := map[string][]string{
		"get pods --":                   {"list for pods"},
		"get --raw /api/v1/namespaces/": {"get for pods/proxy"},
		"exec --namespace=plegd plegd-": {"get for pods", "create for pods/exec"},
	}
	for _, call := range calls {
		known := false
		for prefix, verbs := range needs {
			if !strings.HasPrefix(call, prefix) {
				continue
			}
			known = true
			for _, verb := range verbs {
				check.Contains(t, strings.Join(strings.Fields(string(help)), " "), verb, "the help, for kubectl %s", call)
				check.Contains(t, string(page), verb, "the documentation, for kubectl %s", call)
			}
		}
		if !known {
			t.Errorf("which verb does kubectl %s need?", call)
		}
	}
}
