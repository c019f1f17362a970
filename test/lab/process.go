//go:build e2e

package lab

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// StartProgram starts a program, which is killed when the test ends. It returns its pid and a
// channel that is closed when the program has ended.
func StartProgram(t testing.TB, name string, argv ...string) (pid int, ended <-chan struct{}) {
	t.Helper()
	path := filepath.Join(Dir(t), name+".log")
	log, err := os.Create(path)
	Must(t, err)
	t.Cleanup(func() {
		Close(log)
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

// Again returns a command that starts this test binary again, with a configuration in a
// variable of the environment that tells Main what the process is for.
func Again(t testing.TB, variable string, config any) *exec.Cmd {
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

// Process is a program in a namespace, started by launch, again after its end.
type Process struct {
	TB        testing.TB
	Namespace *Namespace
	Name      string
	Argv, Env []string
	Log, Pipe string // the file with its output; the pipe that it writes to, "": none
	Cgroup    string // its own; "": that of the tests
	pid       int
	End       *Exit
}

// Launch starts the process and does not wait until it answers.
func (p *Process) Launch() {
	p.TB.Helper()
	if p.Running() {
		p.TB.Fatalf("lab: %s runs already", p.Name)
	}
	var err error
	if p.pid, p.End, err = p.Namespace.start(NamespaceCommand{Argv: p.Argv, Env: p.Env, Log: cmp.Or(p.Pipe, p.Log)}); err != nil {
		p.TB.Fatalf("start %s: %v\n%s", p.Name, err, Tail(p.Log, 20))
	}
	if p.Cgroup != "" {
		Must(p.TB, joinCgroup(p.Cgroup, p.pid))
	}
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool { return p.End != nil && !IsClosed(p.End.Done) }

// Pid is the process id outside the namespace.
func (p *Process) Pid() int { return p.pid }

// Await waits until the process answers.
func (p *Process) Await(answers func() error) {
	p.TB.Helper()
	Eventually(p.TB, StartLimit, p.Name+" answers", func() error {
		if !p.Running() {
			p.TB.Fatalf("%s ended: %s\n%s", p.Name, DescribeExit(p.End.Status), Tail(p.Log, 20))
		}
		return answers()
	})
}

func (p *Process) signal(s syscall.Signal) {
	p.TB.Helper()
	if !p.Running() {
		p.TB.Fatalf("lab: no %s to send %s to", p.Name, s)
	}
	Must(p.TB, syscall.Kill(p.pid, s))
}

// Finish sends a signal that ends the process, and waits for its end.
func (p *Process) Finish(s syscall.Signal, limit time.Duration) {
	p.TB.Helper()
	p.signal(s)
	if !p.Ends(limit) {
		p.TB.Fatalf("%s does not end within %s\n%s", p.Name, limit, Tail(p.Log, 20))
	}
}

// Ends reports whether the process ends within a limit.
func (p *Process) Ends(limit time.Duration) bool {
	select {
	case <-p.End.Done:
		return true
	case <-time.After(limit):
		return false
	}
}

// EndLimit is how long a process may take until it has ended.
const EndLimit = 20 * time.Second

// Kill ends the process by SIGKILL and waits for its end.
func (p *Process) Kill() {
	p.TB.Helper()
	p.Finish(syscall.SIGKILL, EndLimit)
}

// Freeze stops every thread of the process, and returns when they have stopped.
func (p *Process) Freeze() {
	p.TB.Helper()
	Freeze(p.TB, p.pid)
}

// Thaw continues a frozen process.
func (p *Process) Thaw() {
	p.TB.Helper()
	p.signal(syscall.SIGCONT)
}

// StartRead starts a process and reads its output until its end, which is that of the test.
func StartRead(t testing.TB, cmd *exec.Cmd, read func(io.Reader)) {
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

// State returns the state of a process and the fields behind it in /proc/PID/stat, "" when it is gone.
func State(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return AfterName(b)
}

// Children returns the children of all threads of a process.
func Children(pid int) (pids []string) {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		b, _ := os.ReadFile(task) // a thread may just have ended
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

// AfterName returns the fields of a stat file behind the name, which may hold parentheses: the state is the first.
func AfterName(stat []byte) string {
	return strings.TrimSpace(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
}

// StartLimit is how long a runtime may take until it answers.
const StartLimit = 30 * time.Second

// LookPath returns the path of a program that the test needs.
func LookPath(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Unable(t, err.Error())
	}
	return path
}

// LimitFiles sets the soft limit of a process's open files, and returns what undoes it.
func LimitFiles(t testing.TB, pid int, soft uint64) (undo func()) {
	t.Helper()
	var was unix.Rlimit
	Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was))
	Must(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: was.Max}, nil))
	return func() {
		err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil)
		if !errors.Is(err, unix.ESRCH) { // a restart has ended it
			Must(t, err)
		}
	}
}

// StopInTurn stops a process and continues it after each half of period, and returns what ends that.
func StopInTurn(t testing.TB, pid int, period time.Duration) (end func()) {
	return Every(t, period, func() {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		time.Sleep(period / 2)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	})
}

// Freeze stops a process that the lab has started, and returns when it has stopped.
func Freeze(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatalf("lab: stop process %d: %v", pid, err)
	}
	Eventually(t, 5*time.Second, "the process is stopped", func() error {
		if state := State(pid); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("process %d is in state %q", pid, state)
		}
		return nil
	})
}

// Thaw continues a stopped process.
func Thaw(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatalf("lab: continue process %d: %v", pid, err)
	}
}
