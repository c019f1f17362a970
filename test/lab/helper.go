//go:build e2e

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

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
			if err := unix.PtraceAttach(tid); err == nil {
				_, _ = unix.Wait4(tid, nil, unix.WALL, nil)
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
