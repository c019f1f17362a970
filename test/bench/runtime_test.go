//go:build e2e

// Package bench measures what relisting a real runtime costs, and what it costs the
// runtime: make bench-runtime.
package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/plegd/plegd/test/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// TestRuntime runs the bench against a runtime of 200 pods with two containers each,
// which are made and not started: a list does not ask whether they run.
func TestRuntime(t *testing.T) {
	pods := 200
	if n, err := strconv.Atoi(os.Getenv("PLEGD_BENCH_PODS")); err == nil {
		pods = n
	}
	build, err := filepath.Abs("../../build")
	if err != nil {
		t.Fatal(err)
	}
	c := lab.NewContainerd(t, lab.ContainerdOptions{Metrics: true})
	r := c.CRI(t)
	lab.Two(pods, func(int) {
		p := r.RunPod()
		p.CreateContainer("app")
		p.CreateContainer("sidecar")
	})
	if t.Failed() {
		t.FailNow()
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(build, "bench"), "-mode", "runtime", "-socket", c.Socket, "-pid", strconv.Itoa(c.Pid()),
		"-metrics", c.Metrics, "-log", c.Log, "-plegd", filepath.Join(build, "plegd"), "-window", "1m")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("measure (make bench-runtime builds what is needed): %v", err)
	}
}
