package chain

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/health"
)

// TestMountOfRuntime: the status of a container that has no shim yet hangs, and the
// daemon that starts it waits for a mount. A daemon that waits for nothing is not
// named.
func TestMountOfRuntime(t *testing.T) {
	for _, waits := range []bool{true, false} {
		root := procTree(t, map[int]byte{10: 'D', 11: 'S'})
		evidencetest.WriteTree(t, root, map[string]string{
			"10/task/10/syscall": fmt.Sprintf("%d 0xffffff9c 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_NEWFSTATAT),
			"10/task/10/wchan":   "rpc_wait_bit_killable",
			"10/mountinfo":       "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n30 1 0:93 / /volume rw - nfs4 server:/export rw\n",
		})
		var c health.Chain
		e := NewExplorer(root, t.TempDir(), &fakeAsker{}, func(found health.Chain) { c = found })
		s := Symptom{Operation: "container_status", Target: Target{ID: "c", SandboxID: "s"}, RuntimePID: 11, OthersAnswered: always, Lasts: always}
		if waits {
			s.DaemonPID = 10
		}
		e.Explore(t.Context(), s)
		e.Close()
		switch last := c.Links[len(c.Links)-1]; {
		case !waits && (last.Kind != health.KindContainer || c.Unknown == ""):
			t.Errorf("%+v, %q: want no more than the container", c.Links, c.Unknown)
		case waits && (last.Kind != health.KindMount || last.Name != "/volume" || c.Links[2].PID != 10 || c.Unknown != ""):
			t.Errorf("%+v, %q: want the mount", c.Links, c.Unknown)
		}
	}
}
