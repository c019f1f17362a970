//go:build e2e

package lab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Namespace is a pair of mount and pid namespaces with a first process of the
// lab's own, in which programs can be started one after another.
type Namespace struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan nsAnswer
}

// nsAnswer is the first process's answer to a command: for a start it includes the exit of the started process.
type nsAnswer struct {
	nsEvent
	end *Exit
}

// Exit is the end of one process in the namespace.
type Exit struct {
	Done   chan struct{}
	Status syscall.WaitStatus
}

// Pid is the process id of its first process.
func (ns *Namespace) Pid() int { return ns.cmd.Process.Pid }

// NewNamespace starts one; it ends, with everything in it, when the test does.
func NewNamespace(t testing.TB, config NamespaceConfig) *Namespace {
	t.Helper()
	ns := &Namespace{answers: make(chan nsAnswer, 1), cmd: Again(t, nsInitEnv, config)}
	flags := uintptr(syscall.CLONE_NEWNS | syscall.CLONE_NEWPID)
	if config.Loopback {
		flags |= syscall.CLONE_NEWNET
	}
	ns.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: flags,
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
	}
	var stderr bytes.Buffer
	ns.cmd.Stderr = &stderr
	var err error
	ns.stdin, err = ns.cmd.StdinPipe()
	Must(t, err)
	// The first process's death takes every other with it, and Wait returns when the last of them is gone.
	StartRead(t, ns.cmd, ns.read)
	if e, err := ns.answer(10 * time.Second); err != nil || !e.Ready {
		t.Fatalf("lab: prepare the namespaces: %v %s", err, stderr.String())
	}
	return ns
}

func (ns *Namespace) read(r io.Reader) {
	defer close(ns.answers)
	dec := json.NewDecoder(bufio.NewReader(r))
	running := make(map[int]*Exit)
	for {
		var e nsEvent
		if dec.Decode(&e) != nil {
			return
		}
		if e.Exited > 0 {
			// Orphans that the first process has reaped are not in the map.
			if x := running[e.Exited]; x != nil {
				delete(running, e.Exited)
				x.Status = e.Status
				close(x.Done)
			}
			continue
		}
		answer := nsAnswer{nsEvent: e}
		if e.Started > 0 {
			answer.end = &Exit{Done: make(chan struct{})}
			running[e.Started] = answer.end
		}
		ns.answers <- answer
	}
}

func (ns *Namespace) answer(timeout time.Duration) (nsAnswer, error) {
	select {
	case e, ok := <-ns.answers:
		if !ok {
			return e, errors.New("the first process of the namespaces is gone")
		}
		if e.Error != "" {
			return e, errors.New(e.Error)
		}
		return e, nil
	case <-time.After(timeout):
		return nsAnswer{}, errors.New("the first process of the namespaces does not answer")
	}
}

// start starts a program in the namespace and returns its pid as the tests see
// it, and its end. The program must run for a while.
func (ns *Namespace) start(c NamespaceCommand) (pid int, end *Exit, err error) {
	inner, end, err := ns.Launch(c)
	if err != nil {
		return 0, nil, err
	}
	pid, err = outerPid(ns.cmd.Process.Pid, inner)
	if err == nil {
		return pid, end, nil
	}
	select { // a missing process has exited, which its parent reports a moment later
	case <-end.Done:
		err = fmt.Errorf("%s ended at once: %s", c.Argv[0], DescribeExit(end.Status))
	case <-time.After(10 * time.Second):
	}
	return 0, end, err
}

// Launch starts a program, which may end at once, and returns its pid inside the namespace.
func (ns *Namespace) Launch(c NamespaceCommand) (inner int, end *Exit, err error) {
	line, err := json.Marshal(c)
	if err != nil {
		return 0, nil, err
	}
	if _, err := ns.stdin.Write(append(line, '\n')); err != nil {
		return 0, nil, err
	}
	e, err := ns.answer(10 * time.Second)
	if err != nil {
		return 0, nil, err
	}
	return e.Started, e.end, nil
}

// outerPid finds the child of a namespace's first process that has a pid inside, and returns the pid it has here.
func outerPid(initPid, inner int) (int, error) {
	for _, child := range Children(initPid) {
		status, _ := os.ReadFile(filepath.Join("/proc", child, "status")) // it may have ended meanwhile
		_, rest, _ := strings.Cut(string(status), "\nNSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		pids := strings.Fields(line)
		if len(pids) > 1 && pids[len(pids)-1] == strconv.Itoa(inner) {
			return strconv.Atoi(child)
		}
	}
	return 0, fmt.Errorf("no process has pid %d in the namespace of %d", inner, initPid)
}

// IsClosed reports whether a channel is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// DescribeExit says in words how a process ended.
func DescribeExit(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "killed by " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
