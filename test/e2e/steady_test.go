//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// TestSteadyNode has plegd look at a node on which nothing happens: it must
// find nothing, and say nothing.
func TestSteadyNode(t *testing.T) {
	t.Parallel()
	runtime := lab.NewContainerd(t, lab.ContainerdOptions{}).CRI(t)
	runtime.RunPods(20, 1)
	plegd := lab.NewPlegd(t, runtime.Socket, lab.PlegdOptions{})
	plegd.AwaitState(10*time.Second, healthy)
	plegd.AwaitRelists(10*time.Second, 2)
	logged := plegd.Log.Len()
	before := relists(t, plegd)
	const span = 20 * time.Second
	lab.Throughout(t, span, "the verdict is healthy", func() error {
		s, err := plegd.Status()
		if err == nil && !well(s) {
			err = fmt.Errorf("it is %s, %s: %+v", s.State, s.Reason, s.Reasons)
		}
		return err
	})
	for _, line := range plegd.Log.Since(logged) {
		if !line.Quiet() {
			t.Errorf("a line of the log of a steady node: %s", line.Text)
		}
	}
	// A relist takes milliseconds and the next one comes a period later.
	if n := relists(t, plegd) - before; n < 17 || n > 21 {
		t.Errorf("%.0f relists in %s, want about 20", n, span)
	}
	if events := plegd.Log.Events(logged); len(events) > 0 {
		t.Errorf("events of a steady node: %v", events)
	}
}

// maxResident is how much memory plegd may hold for 110 pods of 2 containers.
const maxResident = 40 << 20

// TestResidentMemory measures plegd's memory at the kubelet's default number of
// pods, on plegd's own fake runtime.
func TestResidentMemory(t *testing.T) {
	t.Parallel()
	socket := lab.Dir(t) + "/sim.sock"
	simulate(t, "--socket="+socket, "--pods=110", "--containers=2")
	plegd := lab.NewPlegd(t, socket, lab.PlegdOptions{Flags: []string{"--relist-period=200ms", "--log.level=info"}})
	plegd.AwaitState(10*time.Second, healthy)
	plegd.AwaitRelists(30*time.Second, 30)
	if got := counts(t, plegd); got.pods != 110 || got.running != 220 {
		t.Errorf("counts are %+v, want 110 pods with 220 containers", got)
	}
	resident, err := lab.ResidentBytes(plegd.Pid())
	if err != nil {
		t.Fatal(err)
	}
	lab.Report(t, "resident memory at 110 pods of 2 containers: %.1f MiB of %d", float64(resident)/(1<<20), maxResident>>20)
	if resident > maxResident {
		t.Errorf("plegd holds %d bytes, want %d at most", resident, maxResident)
	}
}

// simulate runs plegd's fake runtime until the test ends.
func simulate(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(lab.Binary(t), append([]string{"simulate"}, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
