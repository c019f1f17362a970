//go:build e2e

package kubernetes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/runtime"
)

// KubeletConfig returns the configuration of a kubelet that needs no API server. Its files are in the
// directory that MakeKubeletDirs has prepared.
func KubeletConfig(dir, socket string) map[string]any {
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"failCgroupV1":   false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failSwapOn":   false,
		"evictionHard": map[string]string{"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
		// No garbage collection of images while a runtime is broken.
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"makeIPTablesUtilChains": false, "resolvConf": "",
		"address": "127.0.0.1", "staticPodPath": filepath.Join(dir, "manifests"), "podLogsDir": filepath.Join(dir, "pods"),
		"volumePluginDir":          filepath.Join(dir, "plugins"),
		"containerRuntimeEndpoint": "unix://" + socket,
	}
}

// MakeKubeletDirs makes the directories that KubeletConfig and KubeletFlags name.
func MakeKubeletDirs(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"manifests", "pods", "plugins", "certs"} {
		lab.Must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
}

// KubeletFlags returns the flags of a kubelet without an API server. Its configuration is in kubelet.json.
func KubeletFlags(dir, node string) []string {
	return []string{
		"--config=" + filepath.Join(dir, "kubelet.json"), "--root-dir=/var/lib/kubelet",
		// In memory, and short enough for the sockets that it makes there.
		"--cert-dir=" + filepath.Join(dir, "certs"), "--hostname-override=" + node, "--node-ip=127.0.0.1", "--v=2",
	}
}

// WriteStaticPods writes the manifests of pods of one container in the host's network.
func WriteStaticPods(t testing.TB, dir string, pods int) {
	t.Helper()
	for i := range pods {
		WriteJSON(t, filepath.Join(dir, "manifests", fmt.Sprintf("p%d.json", i)), map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": fmt.Sprintf("p%d", i), "namespace": "default"},
			"spec": map[string]any{
				"hostNetwork": true, "terminationGracePeriodSeconds": 0,
				"containers": []any{map[string]any{"name": "c", "image": runtime.PauseImage, "imagePullPolicy": "Never"}},
			},
		})
	}
}

// WriteJSON writes a value to a file.
func WriteJSON(t testing.TB, path string, v any) {
	t.Helper()
	b, err := json.Marshal(v)
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(path, b, 0o644))
}
