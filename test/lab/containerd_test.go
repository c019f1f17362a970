//go:build e2e

package lab

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestContainerd shows that the lab does what its users rely on: pods that
// outlive their runtime, and nothing that outlives the test.
func TestContainerd(t *testing.T) {
	var group, socket string
	t.Run("lab", func(t *testing.T) {
		c := NewContainerd(t, ContainerdOptions{})
		group, socket = c.Cgroup, c.Socket
		r := c.CRI(t)
		pods := r.RunPods(3, 1)
		code := pods[0].RunContainer("brief", "--exit-code=3", "--after=100ms")
		asked := pods[1].RunContainer("asked", "--exit-code=4")
		asked.Stop()
		pods[2].Stop()
		pods[2].Remove()
		exits := func(want map[*Container]int32) {
			t.Helper()
			for c, code := range want {
				Eventually(t, 5*time.Second, "the exit code", func() error {
					ctx, cancel := r.call()
					defer cancel()
					s, err := r.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
					if err == nil && (s.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || s.GetStatus().GetExitCode() != code) {
						err = errors.New(s.String())
					}
					return err
				})
			}
		}
		exits(map[*Container]int32{code: 3, asked: 4})

		for _, end := range []func(){c.Kill, c.Terminate, func() { c.Freeze(); c.Thaw(); c.Freeze(); c.Kill() }} {
			end()
			c.Start()
			ctx, cancel := r.call()
			list, err := r.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			running := 0
			for _, c := range list.GetContainers() {
				if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
					running++
				}
			}
			if running != 2 || len(list.GetContainers()) != 4 {
				t.Fatalf("after a restart %d containers run of %d, want 2 of 4", running, len(list.GetContainers()))
			}
		}
		exits(map[*Container]int32{code: 3, asked: 4})
		c.Freeze() // what is frozen must end, too
	})
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	for _, h := range cgroupHierarchies() {
		if _, err := os.Stat(h + "/" + group); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a cgroup is still there: %v", err)
		}
	}
}

// TestContainerdOpenFiles shows that a limit reaches containerd itself.
func TestContainerdOpenFiles(t *testing.T) {
	c := NewContainerd(t, ContainerdOptions{OpenFiles: 256, NoCNI: true})
	limits, err := os.ReadFile("/proc/" + strconv.Itoa(c.Pid()) + "/limits")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`Max open files +256 +256 `).Match(limits) {
		t.Errorf("limits of containerd:\n%s", limits)
	}
}

// TestContainerdVersions shows that those of other versions run pods too.
func TestContainerdVersions(t *testing.T) {
	for version, want := range map[string]string{Containerd17: "1.7.", Containerd2: "2.4.2"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := NewContainerd(t, ContainerdOptions{Version: version})
			r := c.CRI(t)
			r.RunPods(2, 1)[0].Remove()
			ctx, cancel := r.call()
			defer cancel()
			v, err := r.version(ctx)
			if err != nil || v.GetRuntimeName() != "containerd" || !strings.Contains(v.GetRuntimeVersion(), want) {
				t.Errorf("version %v, %v; want %s", v, err, want)
			}
		})
	}
}
