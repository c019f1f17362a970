//go:build e2e

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// helperEnv makes the test binary a process of a fault: "trace PID", "fanotify DIR" or
// "listen PATH".
const helperEnv = "PLEGD_FAULTS_HELPER"

// helper starts a process of a fault, and returns what ends it.
func (b *bench) helper(kind, argument string) (end func()) {
	b.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+kind+" "+argument)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	b.must(cmd.Start())
	b.other = cmd.Process.Pid
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// helperMain is the process.
func helperMain(text string) int {
	kind, argument, _ := strings.Cut(text, " ")
	var err error
	switch kind {
	case "trace":
		traceAll(argument)
	case "fanotify":
		err = permitNothing(argument)
	}
	fmt.Fprintln(os.Stderr, "helper:", kind, err)
	return 1
}

// traceAll stops all threads of a process by ptrace, as a debugger does. The kernel
// continues them when the tracer ends.
func traceAll(pid string) {
	runtime.LockOSThread()
	var traced []int
	for again := true; again; { // new threads appear until all are stopped
		again = false
		tasks, _ := filepath.Glob("/proc/" + pid + "/task/[0-9]*")
		for _, task := range tasks {
			var tid int
			if _, err := fmt.Sscan(filepath.Base(task), &tid); err != nil || slices.Contains(traced, tid) {
				continue
			}
			if err := unix.PtraceAttach(tid); err == nil {
				_, _ = unix.Wait4(tid, nil, unix.WALL, nil)
				traced, again = append(traced, tid), true
			}
		}
	}
	time.Sleep(time.Hour)
}

// permitNothing is a fanotify agent that answers nothing about a directory.
func permitNothing(dir string) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, dir)
	}
	for b := make([]byte, 4096); err == nil; {
		_, err = unix.Read(fd, b)
	}
	return err
}
