package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/must"
)

// mainEnv makes the test binary plegd itself.
const mainEnv = "PLEGD_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestCrash: a crash is no exit status, which could be that of a wrong flag.
func TestCrash(t *testing.T) {
	cmd := exec.Command(os.Args[0], "simulate", "--socket", filepath.Join(t.TempDir(), "s"))
	cmd.Dir = t.TempDir() // a core may be dumped there
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	out, err := cmd.StderrPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewReader(out)
	_, err = lines.ReadString('\n') // it runs
	must.Do(t, err)
	must.Do(t, cmd.Process.Signal(syscall.SIGABRT))
	_, err = io.Copy(io.Discard, lines)
	must.Do(t, err)
	_ = cmd.Wait()
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	check.Equal(t, status.Signal(), syscall.SIGABRT, "%s", cmd.ProcessState)
}
