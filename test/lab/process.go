//go:build e2e

package lab

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// StartProgram starts a program, which is killed when the test ends. It returns a channel
// that is closed when the program has ended.
func StartProgram(t testing.TB, name string, argv ...string) (ended <-chan struct{}) {
	t.Helper()
	path := filepath.Join(Dir(t), name+".log")
	log, err := os.Create(path)
	must(t, err)
	t.Cleanup(func() { KeepLog(t, path, name) })
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true}
	must(t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		closeQuietly(log)
	})
	return done
}

// startRead starts a process and reads its output until its end, which is that of the
// test.
func startRead(t testing.TB, cmd *exec.Cmd, read func(io.Reader)) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
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
