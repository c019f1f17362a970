package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
)

// holdStateDir names the directory that a child of TestStateDirInUse holds.
const holdStateDir = "PLEGD_TEST_HOLD_STATE_DIR"

// TestStateDirInUse: a second plegd on the same state directory is refused and
// learns the pid of the first; when that has ended, the directory is free, and one
// that cannot be written is no reason not to run.
func TestStateDirInUse(t *testing.T) {
	if dir := os.Getenv(holdStateDir); dir != "" {
		fmt.Println(newStore(dir, "/proc", zap.NewNop()).lock())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	dir := filepath.Join(t.TempDir(), "state")
	first := exec.Command(os.Args[0], "-test.run=^TestStateDirInUse$")
	first.Env = append(os.Environ(), holdStateDir+"="+dir)
	stdin, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("the first plegd: %q, %v", line, err)
	}
	s := newStore(dir, "/proc", zap.NewNop())
	var used *InUseError
	if err := s.lock(); !errors.As(err, &used) || used.PID != first.Process.Pid || used.Dir != dir {
		t.Errorf("while pid %d has it: %v", first.Process.Pid, err)
	}
	_ = stdin.Close()
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := s.lock(); err != nil || s.locked == nil {
		t.Errorf("when the first has ended: %v", err)
	}
	file := filepath.Join(dir, lockFile)
	if err := newStore(filepath.Join(file, "below-a-file"), "/proc", zap.NewNop()).lock(); err != nil {
		t.Errorf("a directory that cannot be made: %v", err)
	}
}
