package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/facts"
)

// TestSettings: arguments win over drop-ins, a later drop-in over an
// earlier one, these over the file.
func TestSettings(t *testing.T) {
	root := t.TempDir()
	for file, content := range map[string]string{
		"/etc/k/config.yaml": "kind: KubeletConfiguration\nnodeStatusUpdateFrequency: 20s\nruntimeRequestTimeout: 15s\ncontainerRuntimeEndpoint: unix:///a.sock\nfeatureGates:\n  EventedPLEG: true\n",
		"/etc/k/d/10.conf":   "nodeStatusUpdateFrequency: 30s\nruntimeRequestTimeout: 0s\n",
		"/etc/k/d/20.conf":   "nodeStatusUpdateFrequency: 40s\n",
		"/etc/k/d/25/a.conf": "nodeStatusUpdateFrequency: 45s\n",
		"/etc/k/d/30.txt":    "nodeStatusUpdateFrequency: 50s\n",
		"/etc/k/d/40.conf":   "nodeStatusUpdateFrequency: soon\n",
	} {
		if err := os.MkdirAll(filepath.Dir(root+file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(root+file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, endpoint := ReadSettings(root, []string{"/usr/bin/kubelet", "--config=/etc/k/config.yaml", "--config-dir", "/etc/k/d", "--container-runtime-endpoint=unix:///b.sock", "--feature-gates=A=true,EventedPLEG=false", "--feature-gates=B=true", "--runtime-request-timeout=x"})
	if endpoint != "unix:///b.sock" || !strings.Contains(got.Problem, "/etc/k/d/40.conf: ") || !strings.Contains(got.Problem, "--runtime-request-timeout: ") {
		t.Errorf("endpoint %s, problem %q", endpoint, got.Problem)
	}
	got.Problem = ""
	args := "the kubelet's arguments"
	want := facts.KubeletProcess{
		NodeStatusPeriod: 45 * time.Second, RequestTimeout: 15 * time.Second,
		From: map[string]string{
			facts.SettingEndpoint: args, facts.SettingEventedPLEG: args,
			facts.SettingNodeStatusPeriod: "/etc/k/d/25/a.conf", facts.SettingRequestTimeout: "/etc/k/config.yaml",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if none, _ := ReadSettings(t.TempDir(), nil); none.Problem != "" || len(none.From) != 0 {
		t.Errorf("without a file: %+v", none)
	}
}
