//go:build e2e

package hostile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
)

// symptoms are the reasons that name no cause, and those that a busy machine has beside a test.
var symptoms = []string{
	"RuntimeUnresponsive", "RuntimeListStall", "RuntimeNotReady", "NodeStatusStalled", "RelistSlow", "NodePressure", "RuntimeStarved",
}

// TestDenied denies plegd what a security module, a missing capability or another /proc denies,
// beside a call that hangs and beside a stopped runtime. plegd reports the parts that it could not
// read, names the causes that it still sees, and no other cause.
func TestDenied(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	const noPtrace = `exec setpriv --bounding-set -sys_ptrace "$@"`
	cases := map[string]struct {
		deny    []string // the command that plegd is run by; the name of a directory comes before it
		unread  string   // in the evidence of the call that hangs
		stopped string   // the reason beside a stopped runtime
		up      []string // the sources of pleg_evidence_up that are 0
	}{
		"no capability": {
			deny:    []string{"sh", "-c", noPtrace},
			unread:  "process: descriptors (denied)",
			stopped: "RuntimeFrozen",
		},
		"processes are hidden": {
			deny:    []string{"unshare", "-m", "sh", "-c", `mount -t proc -o hidepid=ptraceable plegd "$0" && ` + noPtrace},
			unread:  "process (no sample)",
			stopped: "RuntimeUnresponsive",
		},
		"links are refused": {
			deny:    []string{"/proc/self/exe"},
			unread:  "descriptors (denied)",
			stopped: "RuntimeFrozen",
		},
		"cgroups and pressure are refused": {
			deny: []string{"unshare", "-m", "sh", "-c", `mount -t proc plegd "$0" && mount -t tmpfs -o mode=0 plegd "$0/pressure" &&
				mount -t tmpfs -o mode=0 plegd /sys/fs/cgroup && exec setpriv --bounding-set -dac_override,-dac_read_search "$@"`},
			unread:  "node: pressure/io (denied)",
			stopped: "RuntimeFrozen",
			up:      []string{"cgroup/cpu_files", "cgroup/memory_files", "cgroup/freezer_files", "node/pressure/memory"},
		},
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			countAttack(t, denials)
			t.Parallel()
			p, rt := startDenied(t, tt.deny)
			rt.Fail("ListContainers=hang")
			s := p.await("what could not be read", func(s lab.Status) bool {
				return s.Reason == "RuntimeListStall" && strings.Contains(unreadOf(s), tt.unread)
			})
			checkCauses(t, s, "RuntimeListStall")
			for _, source := range tt.up {
				p.awaitMetric(fmt.Sprintf("pleg_evidence_up{source=%q}", source), "0")
			}
			rt.Fail("")
			p.awaitReason()
			lab.Freeze(t, rt.PID)
			checkCauses(t, p.awaitReason(tt.stopped), tt.stopped)
			lab.Thaw(t, rt.PID)
			p.awaitReason()
		})
	}
	t.Logf("%d denials, two faults each", len(cases))
}

// startDenied starts a runtime, and plegd beside the node's /proc by a command that denies it
// something; nil for none. The command's first argument is a directory, where /proc may be mounted.
func startDenied(t *testing.T, deny []string) (*plegd, *lab.Simulated) {
	t.Helper()
	rt := lab.NewSimulated(t, "--pods=5")
	procfs := filepath.Join(lab.Dir(t), "mounted")
	lab.Must(t, os.Mkdir(procfs, 0o755))
	used := "/proc"
	if len(deny) > 0 && deny[0] == "unshare" {
		used = procfs
	}
	p := start(t, rt.Socket, prepared(func(c *exec.Cmd) {
		if len(deny) == 0 {
			return
		}
		program, err := exec.LookPath(deny[0])
		lab.Must(t, err)
		c.Args = append(append(slices.Clone(deny), procfs, c.Path), c.Args[1:]...)
		c.Path = program
		c.Env = append(c.Env, denyLinksEnv+"=1")
	}, "--path.procfs="+used, "--path.sysfs=/sys"))
	p.awaitReason()
	return p, rt
}

// unreadOf is what the evidence of the primary reason says about what could not be read.
func unreadOf(s lab.Status) string {
	for _, r := range s.Reasons {
		for _, line := range r.Evidence {
			if r.ID == s.Reason && strings.HasPrefix(line, "could not be read: ") {
				return line
			}
		}
	}
	return ""
}

// checkCauses requires that no other cause is named.
func checkCauses(t *testing.T, s lab.Status, want string) {
	t.Helper()
	t.Logf("%s; %s", describe(s), unreadOf(s))
	for _, r := range s.Reasons {
		if r.ID != want && !slices.Contains(symptoms, r.ID) {
			t.Errorf("a false cause is named: %s, %q", r.ID, r.Evidence)
		}
	}
}

// denyLinksEnv makes the test binary run a command that may read no symbolic link.
const denyLinksEnv = "PLEGD_TEST_DENY_LINKS"

// denyLinksMain runs the command after the first argument in place of the test binary, below a
// seccomp filter by which readlinkat(2) is denied.
func denyLinksMain() error {
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_READLINKAT},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EACCES)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	if err != nil {
		return err
	}
	err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	if err != nil {
		return err
	}
	if len(os.Args) < 3 {
		return errors.New("no command")
	}
	return syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
}
