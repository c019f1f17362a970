package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestTable: one pass has the processes with their children and ancestors, and
// counts until it is too old.
func TestTable(t *testing.T) {
	root := t.TempDir()
	write := func(pid, ppid int, comm string, state byte) {
		evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/stat", pid): evidencetest.StatLine(pid, comm, state, ppid, 100)})
	}
	write(1, 0, "systemd", 'S')
	write(10, 1, "containerd", 'S')
	write(12, 10, "runc", 'S')
	write(11, 10, "containerd-shim", 'T')
	write(13, 10, "runc", 'Z')
	table := NewTable(root)
	p, err := table.Processes(t.Context(), 0)
	must.Do(t, err)
	const living = 4
	if c := p.Children(10); len(p.ByPID) != living || len(c) != 2 || c[0].PID != 11 || c[1].PID != 12 {
		t.Errorf("children %+v of %d processes", c, len(p.ByPID))
	}
	if a := p.Ancestors(12); !slices.Equal(a, []int{12, 10, 1}) {
		t.Errorf("ancestors %d", a)
	}
	write(14, 1, "bash", 'S')
	if again, err := table.Processes(t.Context(), time.Minute); err != nil || again != p {
		t.Errorf("a young pass is not used again: %v", err)
	}
	if again, err := table.Processes(t.Context(), 0); err != nil || len(again.ByPID) != living+1 {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := table.Alive(13); !Gone(err) {
		t.Errorf("a zombie: %v", err)
	}
	if _, err := NewTable(t.TempDir()).Processes(t.Context(), 0); err == nil {
		t.Error("no error of a /proc without processes")
	}
}

// TestTableArgs: of arguments that cannot be read in time, at most slowReaders are waited for.
func TestTableArgs(t *testing.T) {
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{"9/stat": evidencetest.StatLine(9, "x", 'S', 1, 1), "9/cmdline": "x\x00-id\x00y\x00"})
	ids := []ID{}
	for pid := 10; pid < 20; pid++ {
		evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/stat", pid): evidencetest.StatLine(pid, "shim", 'D', 1, 1)})
		must.Do(t, unix.Mkfifo(filepath.Join(root, fmt.Sprint(pid), "cmdline"), 0o600))
		ids = append(ids, ID{PID: pid, Start: 1})
	}
	table := NewTable(root)
	if got := table.Args(ID{PID: 9, Start: 1}); ArgValue(got, "id") != "y" {
		t.Errorf("%q", got)
	}
	for range 2 {
		for _, id := range ids {
			if got := table.Args(id); got != nil {
				t.Errorf("%d: %q", id.PID, got)
			}
		}
	}
	for i, id := range ids {
		mode := os.O_WRONLY // waits for the reader, and releases it
		if i >= slowReaders {
			mode |= unix.O_NONBLOCK // fails without a reader
		}
		f, err := os.OpenFile(filepath.Join(root, fmt.Sprint(id.PID), "cmdline"), mode, 0)
		if (err == nil) != (i < slowReaders) {
			t.Errorf("%d: a reader of process %d: %v", i, id.PID, err)
		}
		_ = f.Close()
	}
}

// TestArgsAfterExec: a process that begins another program, under the same name or another one,
// has other arguments.
func TestArgsAfterExec(t *testing.T) {
	root := t.TempDir()
	table := NewTable(root)
	for _, tt := range []struct{ comm, exe, args, want string }{
		{"kubelet", "/bin/bash", "/bin/bash\x00/opt/kubelet", "/bin/bash"}, // a wrapper
		{"kubelet", "/opt/kubelet", "/opt/kubelet\x00--config=x", "/opt/kubelet"},
		{"kubelet", "/opt/kubelet", "not read again", "/opt/kubelet"},
		{"sleep", "/opt/kubelet", "sleep\x001", "sleep"},
	} {
		evidencetest.WriteTree(t, root, map[string]string{
			"9/stat": evidencetest.StatLine(9, tt.comm, 'S', 1, 1), "9/cmdline": tt.args,
		})
		link := filepath.Join(root, "9/exe")
		_ = os.Remove(link) // there is none at first
		must.Do(t, os.Symlink(tt.exe, link))
		if got := table.Args(ID{PID: 9, Start: 1}); len(got) == 0 || got[0] != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// TestArgsOfEnded: a process that has ended, and is not reaped, has the arguments of before; those that were not read then
// are not known.
func TestArgsOfEnded(t *testing.T) {
	cmd := exec.Command("sh", "-c", "echo; read never")
	input, err := cmd.StdinPipe()
	must.Do(t, err)
	output, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Wait() }() // it was killed
	defer func() { _ = input.Close() }()
	_, err = output.Read(make([]byte, 1)) // its program runs: before that the kernel shows no arguments
	must.Do(t, err)
	p, err := ReadStat("/proc", cmd.Process.Pid)
	must.Do(t, err)
	table := NewTable("/proc")
	want := []string{"sh", "-c", "echo; read never"}
	check.Same(t, table.Args(p.ID()), want, "while it runs")
	must.Do(t, cmd.Process.Kill())
	must.Do(t, unix.Waitid(unix.P_PID, p.PID, nil, unix.WEXITED|unix.WNOWAIT, nil))
	check.Same(t, table.Args(p.ID()), want, "after its end")
	check.Same(t, NewTable("/proc").Args(p.ID()), []string(nil), "never read before")
}

// TestInterruptedPass: a pass whose context ends keeps its processes, and the next one continues it.
func TestInterruptedPass(t *testing.T) {
	const processes = 33_000
	root, err := os.MkdirTemp("/dev/shm", "proc") //nolint:usetesting // so many files take seconds on a disk
	if err != nil {
		root = t.TempDir()
	}
	defer func() { _ = os.RemoveAll(root) }()
	evidencetest.WriteTree(t, root, map[string]string{"1/stat": evidencetest.StatLine(1, "x", 'S', 0, 1)})
	for pid := 2; pid <= processes; pid++ {
		must.Do(t, os.Symlink("1", filepath.Join(root, strconv.Itoa(pid))))
	}
	table := NewTable(root)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	table.passing <- struct{}{}
	if _, err := table.Processes(ended, 0); OutcomeOf(err) != Late {
		t.Errorf("behind another pass: %v", err)
	}
	<-table.passing
	current, err := table.startPass()
	if err != nil || len(current.pids) != processes || current.next.Unread != nil {
		t.Fatalf("%d processes, %v", len(current.pids), err)
	}
	left := current.pids[processes-2:]
	current.pids = left
	table.paused = current
	if p, err := table.Processes(ended, 0); OutcomeOf(err) != Late || p == current.next || OutcomeOf(p.Unread) != Late || len(current.pids) != len(left) {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := table.Processes(t.Context(), 0); err != nil || p != current.next || len(current.pids) != 0 || len(p.ByPID) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	visited := 0
	_, err = Holders(ended, root, func(int, int, string) bool { visited++; return false })
	if OutcomeOf(err) != Late || visited > 0 {
		t.Errorf("holders: %v after %d descriptors", err, visited)
	}
}

// TestHolder finds this process by a socket that it has open.
func TestHolder(t *testing.T) {
	l := evidencetest.ListenAt(t, evidencetest.SocketPath(t), 1)
	table := NewTable("/proc")
	if p, err := table.Holder(t.Context(), uint32(l.Inode())); err != nil || p.PID != os.Getpid() {
		t.Errorf("%+v, %v; want %d", p, err, os.Getpid())
	}
	if p, err := table.Holder(t.Context(), 1); p.PID != 0 || !errors.Is(err, ErrGone) && !errors.Is(err, ErrHidden) {
		t.Errorf("%+v, %v of a socket that no process has", p, err)
	}
}

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
			in, out := must.Start(t, cmd)
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
