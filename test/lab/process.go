//go:build e2e

package lab

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// StartProgram starts a program, which is killed when the test ends. It returns its pid and a
// channel that is closed when the program has ended.
func StartProgram(t testing.TB, name string, argv ...string) (pid int, ended <-chan struct{}) {
	t.Helper()
	path := filepath.Join(Dir(t), name+".log")
	log, err := os.Create(path)
	Must(t, err)
	t.Cleanup(func() {
		closeQuietly(log)
		KeepLog(t, path, name)
	})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	ended, _ = StartCommand(t, cmd)
	return cmd.Process.Pid, ended
}

// StartCommand starts a process, which is killed by end or when the test ends.
func StartCommand(t testing.TB, cmd *exec.Cmd) (ended <-chan struct{}, end func()) {
	t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	}
	Must(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	end = func() {
		_ = cmd.Process.Kill()
		<-done
	}
	t.Cleanup(end)
	return done, end
}

// again returns a command that starts this test binary again, with a configuration in a
// variable of the environment that tells Main what the process is for.
func again(t testing.TB, variable string, config any) *exec.Cmd {
	t.Helper()
	if !mainCalled.Load() {
		t.Fatal("lab: TestMain must call lab.Main")
	}
	text, err := json.Marshal(config)
	Must(t, err)
	self, err := os.Executable()
	Must(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), variable+"="+string(text))
	return cmd
}

// process is a program in a namespace, started by launch, again after its end.
type process struct {
	t         testing.TB
	ns        *namespace
	name      string
	argv, env []string
	log, pipe string // the file with its output; the pipe that it writes to, "": none
	cgroup    string // its own; "": that of the tests
	pid       int
	end       *exit
}

func (p *process) launch() {
	p.t.Helper()
	if p.running() {
		p.t.Fatalf("lab: %s runs already", p.name)
	}
	var err error
	if p.pid, p.end, err = p.ns.start(nsCommand{Argv: p.argv, Env: p.env, Log: cmp.Or(p.pipe, p.log)}); err != nil {
		p.t.Fatalf("start %s: %v\n%s", p.name, err, Tail(p.log, 20))
	}
	if p.cgroup != "" {
		Must(p.t, joinCgroup(p.cgroup, p.pid))
	}
}

func (p *process) running() bool { return p.end != nil && !isClosed(p.end.done) }

// Pid is the process id outside the namespace.
func (p *process) Pid() int { return p.pid }

// await waits until the process answers.
func (p *process) await(answers func() error) {
	p.t.Helper()
	Eventually(p.t, startLimit, p.name+" answers", func() error {
		if !p.running() {
			p.t.Fatalf("%s ended: %s\n%s", p.name, describe(p.end.status), Tail(p.log, 20))
		}
		return answers()
	})
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if !p.running() {
		p.t.Fatalf("lab: no %s to send %s to", p.name, s)
	}
	Must(p.t, syscall.Kill(p.pid, s))
}

// finish sends a signal that ends the process, and waits for its end.
func (p *process) finish(s syscall.Signal, limit time.Duration) {
	p.t.Helper()
	p.signal(s)
	if !p.ends(limit) {
		p.t.Fatalf("%s does not end within %s\n%s", p.name, limit, Tail(p.log, 20))
	}
}

// ends reports whether the process ends within a limit.
func (p *process) ends(limit time.Duration) bool {
	select {
	case <-p.end.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// endLimit is how long a process may take until it has ended.
const endLimit = 20 * time.Second

// Kill ends the process by SIGKILL and waits for its end.
func (p *process) Kill() {
	p.t.Helper()
	p.finish(syscall.SIGKILL, endLimit)
}

// Freeze stops every thread of the process, and returns when they have stopped.
func (p *process) Freeze() {
	p.t.Helper()
	Freeze(p.t, p.pid)
}

// Thaw continues a frozen process.
func (p *process) Thaw() {
	p.t.Helper()
	p.signal(syscall.SIGCONT)
}

// startRead starts a process and reads its output until its end, which is that of the
// test.
func startRead(t testing.TB, cmd *exec.Cmd, read func(io.Reader)) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	Must(t, err)
	if err := cmd.Start(); err != nil {
		t.Fatalf("lab: start %s: %v", cmd, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		read(out)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
}

// processState returns the state letter of a process, "" when it is gone.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command's name stands in parentheses and may hold any of them.
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')'):]), " ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}
