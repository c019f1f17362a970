//go:build e2e

package realbench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
	"github.com/plegd/plegd/test/lab/kubernetes"
	"github.com/plegd/plegd/test/lab/runtime"
)

// podsLimit is how long a kubelet may take to start all static pods.
const podsLimit = 10 * time.Minute

// kubeletEnv names a kubelet that runs beside plegd.
const kubeletEnv = "PLEGD_BENCH_KUBELET"

// A kubelet is a program, and its name with its version. The zero value stands for none.
type kubelet struct{ path, name string }

// givenKubelet returns the kubelet that the environment names.
func givenKubelet(t *testing.T) kubelet {
	t.Helper()
	path := os.Getenv(kubeletEnv)
	if path == "" {
		return kubelet{}
	}
	if !filepath.IsAbs(path) || filepath.Base(path) != "kubelet" {
		t.Fatalf("%s is %q: want the absolute path of a program called kubelet, the name by which plegd finds it", kubeletEnv, path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	version, found := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes ")
	if err != nil || !found {
		t.Fatalf("%s is %q: --version does not print a version of Kubernetes: %q, error %v", kubeletEnv, path, out, err)
	}
	return kubelet{path: path, name: "kubelet " + version}
}

// start starts the kubelet, without an API server, on the node of a containerd. It returns its pid
// when its static pods run.
func (k kubelet) start(t *testing.T, containerd *runtime.Containerd, pods int) int {
	t.Helper()
	dir := lab.Dir(t)
	kubernetes.MakeKubeletDirs(t, dir)
	kubernetes.WriteStaticPods(t, dir, pods)
	config := kubernetes.KubeletConfig(dir, containerd.Socket)
	config["maxPods"] = pods
	kubernetes.WriteJSON(t, filepath.Join(dir, "kubelet.json"), config)
	log := filepath.Join(dir, "kubelet.log")
	t.Cleanup(func() { lab.KeepLog(t, log, "kubelet") })
	process := containerd.Node().Start(log, append([]string{k.path}, kubernetes.KubeletFlags(dir, "bench")...)...)
	client := containerd.CRI(t)
	lab.Eventually(t, podsLimit, "the kubelet's static pods run", func() error {
		if !process.Running() {
			t.Fatalf("the kubelet ended: %s\n%s", lab.DescribeExit(process.End.Status), lab.Tail(log, 20))
		}
		running := client.Containers()["running"]
		if running < pods {
			return fmt.Errorf("%d of %d containers run\n%s", running, pods, lab.Tail(log, 5))
		}
		return nil
	})
	return process.Pid
}

// startPlegd starts plegd on the node of a containerd and returns its pid when it watches a kubelet.
func startPlegd(t *testing.T, containerd *runtime.Containerd, env []string) int {
	t.Helper()
	dir := lab.Dir(t)
	log := filepath.Join(dir, "plegd.log")
	t.Cleanup(func() { lab.KeepLog(t, log, "plegd") })
	socket := filepath.Join(dir, "plegd.sock")
	process := containerd.Node().StartWith(append(os.Environ(), env...), log, lab.Binary(t), "run", "--runtime-endpoint="+containerd.Socket,
		"--control-socket="+socket, "--state-dir="+dir, "--log.format=json")
	client := lab.UnixClient(socket, 5*time.Second)
	process.Await(func() error {
		_, text, err := lab.Get(client, "http://plegd/metrics")
		if err == nil && !strings.Contains(text, "\npleg_kubelet_up 1\n") {
			err = fmt.Errorf("plegd sees no kubelet\n%s", lab.Tail(log, 5))
		}
		return err
	})
	return process.Pid
}
