package family

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestMembers: a process with a helper's or a shim's name that has another user or namespaces of
// its own is none.
func TestMembers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: not root")
	}
	for name, tt := range map[string]struct {
		attributes    syscall.SysProcAttr
		shim, refused string
	}{
		"its own":           {},
		"another user":      {syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}, "uid", "uid"},
		"a PID namespace":   {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "pid", "pid"},
		"a mount namespace": {syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}, "", "mount"},
		"a user namespace": {syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: 0, Size: 1}},
		}, "user", "user"},
	} {
		t.Run(name, func(t *testing.T) {
			table := proc.NewTable("/proc")
			owner, err := table.Alive(os.Getpid())
			must.Do(t, err)
			m := NewMembers(table)
			for _, program := range []string{"runc", "conmon"} {
				p := startAs(t, table, program, tt.attributes)
				answer, want := m.Helper(t.Context(), p, p, owner), tt.refused
				if program == "conmon" {
					answer, want = m.Shim(t.Context(), p, owner.PID), tt.shim
				}
				if answer.Proven() != (want == "") || !strings.Contains(answer.Refused, want) {
					t.Errorf("%s: %+v", program, answer)
				}
			}
		})
	}
}

// TestLeft: a child of a shim is a helper where it is an OCI runtime, or keeps a pipe of the shim's
// open; a daemon that a hook has left is none, in a session of its own or not.
func TestLeft(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: not root")
	}
	reader, writer, err := os.Pipe()
	must.Do(t, err)
	t.Cleanup(func() { _ = reader.Close(); _ = writer.Close() })
	table := proc.NewTable("/proc")
	shim, err := table.Alive(os.Getpid())
	must.Do(t, err)
	shim.Comm = "containerd-shim"
	shim.Start -= 2 * setup // older than its helpers
	for name, tt := range map[string]struct {
		program string
		output  *os.File
		session bool
		want    bool
	}{
		"an OCI runtime": {program: "runc", want: true},
		"a program that an OCI runtime has become": {program: "wrapper", output: writer, want: true},
		"a daemon":                                {program: "daemon", session: true},
		"a daemon in the shim's session":          {program: "daemon"},
		"a daemon with a pipe of somebody else's": {program: "daemon", output: otherPipe(t)},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, table, tt.program, tt.output, syscall.SysProcAttr{Setsid: tt.session})
			answer := NewMembers(table).Helper(t.Context(), p, p, shim)
			check.Equal(t, answer.Proven(), tt.want, "proven: %+v", answer)
		})
	}
}

// TestOwnMounts: a container's process is refused by its mount namespace alone, also where nothing else of
// it can be read; one whose namespace cannot be read is not.
func TestOwnMounts(t *testing.T) {
	root := t.TempDir()
	evidencetest.WriteTree(t, root, map[string]string{"10/ns/.keep": "", "20/ns/.keep": "", "30/ns/.keep": ""})
	must.Do(t, os.Symlink("mnt:[1]", filepath.Join(root, "10/ns/mnt")))
	must.Do(t, os.Symlink("mnt:[2]", filepath.Join(root, "20/ns/mnt")))
	shim := proc.Process{PID: 10, Comm: "containerd-shim", Start: 1}
	m := NewMembers(proc.NewTable(root))
	for pid, want := range map[int]string{20: otherMounts.Refused, 30: "may run for long"} {
		p := proc.Process{PID: pid, Comm: "app", Start: 1}
		for range 2 {
			answer := m.Helper(t.Context(), p, p, shim)
			if answer.Err != nil || !strings.Contains(answer.Refused, want) {
				t.Errorf("%d: %+v", pid, answer)
			}
		}
	}
}

// otherPipe returns a FIFO: a path, and no pipe of the shim's.
func otherPipe(t *testing.T) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	must.Do(t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must.Do(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// startAs starts a process under a name.
func startAs(t *testing.T, table *proc.Table, name string, attributes syscall.SysProcAttr) proc.Process {
	t.Helper()
	return start(t, table, name, nil, attributes)
}

func start(t *testing.T, table *proc.Table, name string, output *os.File, attributes syscall.SysProcAttr) proc.Process {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	must.Do(t, err)
	program := filepath.Join(filepath.Dir(evidencetest.SocketPath(t)), name)
	b, err := os.ReadFile(sleep)
	must.Do(t, err)
	must.Do(t, os.WriteFile(program, b, 0o755)) //nolint:gosec // it is run
	cmd := exec.Command(program, "1000")
	cmd.SysProcAttr = &attributes
	if output != nil {
		cmd.Stdout = output
	}
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := table.Alive(cmd.Process.Pid)
	must.Do(t, err)
	return p
}

// TestBelongsDenied: where the namespaces may not be read, the cgroup shows a container's process.
func TestBelongsDenied(t *testing.T) {
	denied := &proc.ReadError{Path: "x", Outcome: proc.Denied}
	for name, tt := range map[string]struct {
		change func(p *proc.Identity)
		want   bool
	}{
		"in the shim's cgroup":     {func(*proc.Identity) {}, true},
		"in the shim's pod":        {func(p *proc.Identity) { p.Cgroups[""] += "/" + someID }, false},
		"in another pod":           {func(p *proc.Identity) { p.Cgroups[""] = "/kubepods/" + somePod }, false},
		"a cgroup that is hidden":  {func(p *proc.Identity) { p.Unread[proc.ProofCgroup] = denied }, false},
		"a kernel without cgroups": {func(p *proc.Identity) { p.Cgroups, p.Unread[proc.ProofCgroup] = nil, proc.ErrGone }, true},
		"another user":             {func(p *proc.Identity) { p.UIDs[1] = 7 }, false},
	} {
		shim := identity("conmon", "")
		shim.Cgroups[""] = "/machine.slice/crio-conmon-1.scope"
		p := identity("runc", "")
		p.Cgroups[""] = shim.Cgroups[""]
		p.MountNS, p.Unread[proc.ProofMountNS] = "", denied
		tt.change(&p)
		if answer := belongs(p, shim); answer.Proven() != tt.want {
			t.Errorf("%s: %+v", name, answer)
		}
	}
}

// TestShimsOnce: the shims in one table of processes are searched for once, and again in another one, of another runtime
// and at other sockets. A reader that ends while another search hangs has none.
func TestShimsOnce(t *testing.T) {
	root := t.TempDir()
	const socket = "/run/containerd/containerd.sock"
	evidencetest.WriteTree(t, root, map[string]string{
		"1/stat":     evidencetest.StatLine(1, "systemd", 'S', 0, 1),
		"10/stat":    evidencetest.StatLine(10, "containerd", 'S', 1, 1),
		"11/stat":    evidencetest.StatLine(11, "containerd", 'S', 1, 1),
		"20/stat":    evidencetest.StatLine(20, "containerd-shim", 'S', 1, 1),
		"20/cmdline": "containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-address\x00" + socket + "\x00",
	})
	hidden := filepath.Join(root, "20/cmdline")
	must.Do(t, os.Rename(hidden, hidden+".kept"))
	must.Do(t, os.Symlink("cmdline", hidden)) // a loop cannot be read, by root either
	table := proc.NewTable(root)
	all, err := table.Processes(t.Context(), 0)
	must.Do(t, err)
	s := NewShims(table)
	unread := s.In(t.Context(), all, 10, []string{socket}).Unread
	check.Equal(t, len(unread), 1, "parts that the first search could not read")
	must.Do(t, os.Remove(hidden))
	must.Do(t, os.Rename(hidden+".kept", hidden))
	newer, err := table.Processes(t.Context(), 0)
	must.Do(t, err)
	for _, tt := range []struct {
		name    string
		all     *proc.Processes
		runtime int
		socket  string
		found   int
	}{
		{name: "the same", all: all, runtime: 10, socket: socket},
		{name: "another table", all: newer, runtime: 10, socket: socket, found: 1},
		{name: "another runtime", all: newer, runtime: 11, socket: socket, found: 1},
		{name: "another socket", all: newer, runtime: 11, socket: "/run/other.sock"},
	} {
		got := s.In(t.Context(), tt.all, tt.runtime, []string{tt.socket})
		check.Equal(t, len(got.Shims), tt.found, "%s: shims", tt.name)
		check.Equal(t, len(got.Unread) > 0, tt.all == all, "%s: as it was read, %v", tt.name, got.Unread)
	}
	s.finding <- struct{}{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	check.Equal(t, s.In(ended, newer, 11, []string{socket}).Unread[UnreadShims], string(proc.Late), "while another search hangs")
}
