package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late a timer of the daemon's may fire. Go's monitor thread asks to be woken after
// 20 microseconds again and again while anything runs: otherwise it causes most of the daemon's wake-ups.
const timerSlack = 5 * time.Millisecond

// allowTimerSlack starts the daemon's program again with timerSlack, unless it has it already, as by
// TimerSlackNSec= of a systemd unit: the monitor thread is older than main and keeps the slack that it
// was started with. Where that fails, the daemon only costs more.
func allowTimerSlack(args []string) {
	if len(args) < 2 || args[1] != "run" {
		return
	}
	program, err := os.Executable()
	if err != nil {
		return
	}
	// The slack is the thread's: execve(2) keeps that of the one that calls it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if hasTimerSlack() {
		return
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0); err != nil {
		return
	}
	if !hasTimerSlack() {
		return // as of a process with real-time scheduling, which has none: it would start again for ever
	}
	_ = syscall.Exec(program, args, os.Environ()) //nolint:forbidigo // it replaces plegd by itself
}

// hasTimerSlack reports whether the calling thread has at least timerSlack.
func hasTimerSlack() bool {
	present, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return err == nil && present >= int(timerSlack)
}
