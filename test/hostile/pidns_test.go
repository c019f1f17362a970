//go:build e2e

package hostile

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/plegd/plegd/internal/fakeruntime"
	"github.com/plegd/plegd/test/lab"
)

// TestOtherPIDNamespace: in a container that does not share the node's process
// ids the kernel tells plegd no pid behind the socket. With the node's /proc
// mounted elsewhere the process is found by its socket all the same.
func TestOtherPIDNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: needs root for a pid namespace")
	}
	_, socket := serve(t, fakeruntime.Options{}, 5)
	proc := lab.Dir(t) + "/host-proc"
	link(t, "/proc", proc)
	p := start(t, socket, options{
		flags:   []string{"--path.procfs=" + proc},
		prepare: func(c *exec.Cmd) { c.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID },
	})
	outside, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	p.awaitMetric(`pleg_evidence_up{source="process"}`, "1")
	p.awaitMetric(`pleg_evidence_up{source="queue"}`, "1")
	p.awaitMetric(`pleg_verdict{state="healthy"}`, "1")
	if ns, err := os.Readlink("/proc/" + strconv.Itoa(p.Pid()) + "/ns/pid"); err != nil || ns == outside {
		t.Errorf("plegd's pid namespace is %s, %v: the test's is %s", ns, err, outside)
	}
}
