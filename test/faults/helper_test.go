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
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
)

// helperEnv makes the test binary a process of a fault: "trace PID", "fanotify DIR" or
// "inherit PID".
const helperEnv = "PLEGD_FAULTS_HELPER"

// helper starts a process of a fault, and returns what ends it.
func (b *bench) helper(kind, argument string) (end func()) {
	b.t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+kind+" "+argument)
	cmd.Stderr = os.Stderr
	_, end = lab.StartCommand(b.t, cmd)
	b.other = cmd.Process.Pid
	return end
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
	case "inherit":
		err = inherit(argument)
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

// inherit takes the listening socket of a process with a path, as a child that it has
// started has it, and keeps it.
func inherit(pid string) error {
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		return err
	}
	pidfd, err := unix.PidfdOpen(n, 0)
	for fd := 0; err == nil && fd < 256; fd++ {
		own, getErr := unix.PidfdGetfd(pidfd, fd, 0)
		if getErr != nil {
			continue
		}
		address, nameErr := unix.Getsockname(own)
		listens, _ := unix.GetsockoptInt(own, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if path, ok := address.(*unix.SockaddrUnix); nameErr != nil || !ok || listens == 0 || strings.HasSuffix(path.Name, ".ttrpc") {
			_ = unix.Close(own)
		}
	}
	time.Sleep(time.Hour)
	return err
}
