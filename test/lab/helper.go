//go:build e2e

package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// TraceAll stops all threads of a process by ptrace, as a debugger does, calls ready and
// keeps them. The kernel continues them when the tracer ends.
func TraceAll(pid string, ready func()) error {
	runtime.LockOSThread()
	var traced []string
	for again := true; again; { // new threads appear until all are stopped
		again = false
		tasks, _ := filepath.Glob("/proc/" + pid + "/task/[0-9]*")
		for _, task := range tasks {
			var tid int
			if _, err := fmt.Sscan(filepath.Base(task), &tid); err != nil || slices.Contains(traced, task) {
				continue
			}
			if stopTraced(tid) == nil {
				traced, again = append(traced, task), true
			}
		}
	}
	if len(traced) == 0 {
		return fmt.Errorf("no thread of process %s can be traced", pid)
	}
	ready()
	select {}
}

// stopTraced traces a thread and stops it. It sends no SIGSTOP, which could stop the process once its tracer has ended.
func stopTraced(tid int) error {
	err := errors.Join(unix.PtraceSeize(tid), unix.PtraceInterrupt(tid))
	if err == nil {
		_, err = unix.Wait4(tid, nil, unix.WALL, nil)
	}
	return err
}

// TracePollers stops the threads of a Go program that wait for its connections by ptrace, calls ready and keeps them: the
// program reads nothing meanwhile.
func TracePollers(pid string, ready func()) error {
	const settles = 500 * time.Millisecond
	runtime.LockOSThread()
	traced := 0
	for last := time.Now(); time.Since(last) < settles || traced == 0; {
		tasks, _ := filepath.Glob("/proc/" + pid + "/task/[0-9]*")
		if len(tasks) == 0 {
			return fmt.Errorf("process %s has no threads", pid)
		}
		for _, task := range tasks {
			if traceIf(task, polls) {
				traced++
				last = time.Now()
			}
		}
	}
	ready()
	select {}
}

// traceIf traces a thread that is as wanted, still so once it is stopped, and reports whether it does.
func traceIf(task string, wanted func(task string) bool) bool {
	var tid int
	_, err := fmt.Sscan(filepath.Base(task), &tid)
	if err != nil || !wanted(task) {
		return false
	}
	if stopTraced(tid) != nil { // it is traced already
		return false
	}
	if !wanted(task) {
		_ = unix.PtraceDetach(tid)
		return false
	}
	return true
}

// polls reports whether a thread waits for connections.
func polls(task string) bool {
	call, _ := os.ReadFile(filepath.Join(task, "syscall"))
	return strings.HasPrefix(string(call), fmt.Sprint(unix.SYS_EPOLL_PWAIT)+" ")
}

// PermitNothing is a fanotify agent that reads the events of a directory and answers none.
func PermitNothing(dir string, ready func()) error {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, dir)
	}
	if err == nil {
		ready()
	}
	for b := make([]byte, 4096); err == nil; {
		_, err = unix.Read(fd, b)
	}
	return err
}

// CommandLines are the command lines of all processes, by pid.
func CommandLines() map[int]string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	lines := map[int]string{}
	for _, f := range files {
		var pid int
		text, err := os.ReadFile(f)
		if _, scanErr := fmt.Sscanf(f, "/proc/%d/cmdline", &pid); err == nil && scanErr == nil {
			lines[pid] = string(text)
		}
	}
	return lines
}
