package proc

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/plegd/plegd/test/must"
)

// TestIdentify reads what real processes prove, of another user and in other namespaces too.
func TestIdentify(t *testing.T) {
	table := NewTable("/proc")
	own, err := table.Identify(t.Context(), os.Getpid())
	if err != nil || len(own.UIDs) != 4 || own.UIDs[0] != os.Getuid() || own.Exe == "" || len(own.Unread) > 0 {
		t.Fatalf("%+v, %v", own, err)
	}
	_, noRoot := fileOf("/proc/1/root" + own.Exe) // where pid 1 is another security context's
	for name, tt := range map[string]struct {
		attr *syscall.SysProcAttr
		fits func(Identity) bool
	}{
		"a child": {&syscall.SysProcAttr{}, func(is Identity) bool { return is.IsRoot() && is.MountNS == own.MountNS }},
		"another user": {
			&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}},
			func(is Identity) bool { return !is.IsRoot() && !is.ExeOnNode },
		},
		"in a mount namespace": {
			&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS},
			func(is Identity) bool { return is.MountNS != own.MountNS && is.ExeOnNode == (noRoot == nil) },
		},
		"in a pid namespace": {
			&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID},
			func(is Identity) bool { return is.PIDDepth == own.PIDDepth+1 && is.PIDNS != own.PIDNS },
		},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 {
				t.Skip("SKIPPED: not root")
			}
			cmd := exec.Command("cat")
			cmd.SysProcAttr = tt.attr
			in, out := startEcho(t, cmd)
			// The first byte comes back once the new program runs: before that it has no arguments.
			if _, err := in.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			is, err := table.Identify(t.Context(), cmd.Process.Pid)
			if err != nil || !tt.fits(is) || ArgValue(is.Args, "x") != "" || !slices.Equal(is.Args, []string{"cat"}) {
				t.Errorf("%+v, %v", is, err)
			}
		})
	}
	if _, err := table.Identify(t.Context(), 1<<30); OutcomeOf(err) != Absent {
		t.Errorf("a process that has ended: %v", err)
	}
}

// startEcho starts a program that writes what it reads, and ends it with the test.
func startEcho(t *testing.T, cmd *exec.Cmd) (io.Writer, io.Reader) {
	t.Helper()
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return in, out
}
