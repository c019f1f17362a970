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

// namespace is a pair of mount and pid namespaces with a first process of the
// lab's own, in which programs can be started one after another.
type namespace struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan nsAnswer
}

// nsAnswer is the first process's answer to a command: for a start it includes the exit
// of the started process.
type nsAnswer struct {
	nsEvent
	end *exit
}

// exit is the end of one process in the namespace.
type exit struct {
	done   chan struct{}
	status syscall.WaitStatus
}

// newNamespace starts one; it ends, with everything in it, when the test does.
func newNamespace(t testing.TB, config nsConfig) *namespace {
	t.Helper()
	ns := &namespace{answers: make(chan nsAnswer, 1), cmd: again(t, nsInitEnv, config)}
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
	// The first process's death takes every other with it, and Wait returns when
	// the last of them is gone.
	startRead(t, ns.cmd, ns.read)
	if e, err := ns.answer(10 * time.Second); err != nil || !e.Ready {
		t.Fatalf("lab: prepare the namespaces: %v %s", err, stderr.String())
	}
	return ns
}

func (ns *namespace) read(r io.Reader) {
	defer close(ns.answers)
	dec := json.NewDecoder(bufio.NewReader(r))
	running := make(map[int]*exit)
	for {
		var e nsEvent
		if dec.Decode(&e) != nil {
			return
		}
		if e.Exited > 0 {
			// Orphans that the first process has reaped are not in the map.
			if x := running[e.Exited]; x != nil {
				delete(running, e.Exited)
				x.status = e.Status
				close(x.done)
			}
			continue
		}
		answer := nsAnswer{nsEvent: e}
		if e.Started > 0 {
			answer.end = &exit{done: make(chan struct{})}
			running[e.Started] = answer.end
		}
		ns.answers <- answer
	}
}

func (ns *namespace) answer(timeout time.Duration) (nsAnswer, error) {
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
func (ns *namespace) start(c nsCommand) (pid int, end *exit, err error) {
	inner, end, err := ns.launch(c)
	if err != nil {
		return 0, nil, err
	}
	pid, err = outerPid(ns.cmd.Process.Pid, inner)
	if err == nil {
		return pid, end, nil
	}
	select { // a missing process has exited, which its parent reports a moment later
	case <-end.done:
		err = fmt.Errorf("%s ended at once: %s", c.Argv[0], describe(end.status))
	case <-time.After(10 * time.Second):
	}
	return 0, end, err
}

// launch starts a program, which may end at once, and returns its pid inside the
// namespace.
func (ns *namespace) launch(c nsCommand) (inner int, end *exit, err error) {
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

// outerPid finds the child of a namespace's first process that has a pid
// inside, and returns the pid it has here.
func outerPid(initPid, inner int) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended meanwhile
		}
		var pids, parent string
		for line := range strings.Lines(string(b)) {
			switch key, value, _ := strings.Cut(line, ":"); key {
			case "NSpid":
				pids = strings.TrimSpace(value)
			case "PPid":
				parent = strings.TrimSpace(value)
			}
		}
		fields := strings.Fields(pids)
		if parent == strconv.Itoa(initPid) && len(fields) > 1 && fields[len(fields)-1] == strconv.Itoa(inner) {
			return strconv.Atoi(filepath.Base(filepath.Dir(f)))
		}
	}
	return 0, fmt.Errorf("no process has pid %d in the namespace of %d", inner, initPid)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// describe says in words how a process ended.
func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "killed by " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
