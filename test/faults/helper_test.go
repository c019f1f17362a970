//go:build e2e

package faults

import (
	"fmt"
	"os"
	"os/exec"
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
		err = lab.TraceAll(argument, func() {})
	case "fanotify":
		err = lab.PermitNothing(argument, func() {})
	case "inherit":
		err = inherit(argument)
	}
	fmt.Fprintln(os.Stderr, "helper:", kind, err)
	return 1
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
