//go:build e2e

package vm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/test/lab"
)

// connect waits for ssh.
func (m *machine) connect() error {
	return within(bootLimit, m.qemu, m.login)
}

// login opens the connection that all commands share, and forwards containerd's
// socket through it. It is one key exchange for a boot: that takes seconds in
// there.
func (m *machine) login() error {
	_ = os.Remove(m.path("cri"))
	_ = os.Remove(m.path("ssh"))
	master, err := startProcess("ssh", m.sshTo("-M", "-N", "-L", m.path("cri")+":/run/containerd/containerd.sock")...)
	if err != nil {
		return err
	}
	if err := within(bootLimit, master, func() error {
		return exec.Command("ssh", m.sshTo("-O", "check")...).Run()
	}); err != nil {
		master.kill()
		return fmt.Errorf("%w: %s", err, master.output.String())
	}
	m.master = master
	return nil
}

// sshTo returns ssh's arguments, with the options before the machine's name.
func (m *machine) sshTo(options ...string) []string {
	argv := []string{
		"-F", "/dev/null", "-p", m.ssh, "-i", m.image + "/key", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=120",
		"-o", "ExitOnForwardFailure=yes", "-o", "ControlPath=" + m.path("ssh"),
	}
	return append(append(argv, options...), "root@127.0.0.1")
}

// CRI returns a client of the machine's containerd.
func (m *machine) CRI(t *testing.T) *lab.CRI { t.Helper(); return lab.OpenCRI(t, m.path("cri")) }

// try runs a shell script in the machine.
func (m *machine) try(script string) (string, error) { return m.tryWithin(runLimit, script) }

func (m *machine) tryWithin(limit time.Duration, script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ssh", append(m.sshTo("-o", "ControlMaster=no"), "sh")...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs a shell script in the machine that must succeed.
func (m *machine) run(t testing.TB, script string) string {
	t.Helper()
	out, err := m.try(script)
	if err != nil {
		t.Fatalf("in the machine: %s: %v\n%s", script, err, out)
	}
	return strings.TrimSpace(out)
}

// property is a property of a unit.
func (m *machine) property(t testing.TB, unit, name string) string {
	t.Helper()
	return m.run(t, "systemctl show --value --property="+name+" "+unit)
}

// powerOff ends qemu as a power cut does: unwritten data is lost.
func (m *machine) powerOff() {
	m.qemu.kill()
	m.hangUp()
}

// hangUp forgets the connections of a boot that has ended.
func (m *machine) hangUp() {
	if m.master != nil {
		m.master.kill()
		m.master = nil
	}
}

// process is a program of the host that the tests have started.
type process struct {
	pid    int
	name   string
	output bytes.Buffer
	done   chan struct{}
}

// startProcess starts a program, which ends with the tests.
func startProcess(program string, args ...string) (*process, error) {
	p := &process{name: program, done: make(chan struct{})}
	cmd := exec.Command(program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.pid = cmd.Process.Pid
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) kill() {
	if p.running() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	<-p.done
}

// within polls a condition until it holds, the time is over or a process ends.
func within(limit time.Duration, p *process, condition func() error) error {
	ended := false
	err := lab.Within(limit, func() error {
		err := condition()
		if ended = err != nil && !p.running(); ended {
			return nil
		}
		return err
	})
	if ended {
		err = fmt.Errorf("%s has ended: %s", p.name, p.output.String())
	}
	return err
}
