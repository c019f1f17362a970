package evidence

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/health"
)

// What a child process of these tests is to do, and with which socket.
const (
	childEnv     = "PLEGD_TEST_CHILD"
	childPathEnv = "PLEGD_TEST_CHILD_SOCKET"
)

// childSees is what a child without privilege reports.
type childSees struct {
	UID      int
	Queue    *health.Queue
	QueueErr string
}

// TestSockDiagChild is no test: it is what the child processes run.
func TestSockDiagChild(t *testing.T) {
	path := os.Getenv(childPathEnv)
	switch os.Getenv(childEnv) {
	case "look":
		out := childSees{UID: os.Getuid()}
		var err error
		if out.Queue, err = newQueueSource(at(path)).gather(t.Context()); err != nil {
			out.QueueErr = err.Error()
		}
		_ = json.NewEncoder(os.Stdout).Encode(out)
	}
}

// lookUnprivileged tells what a process of uid 65534 sees of path.
func lookUnprivileged(t *testing.T, path string) childSees {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	// The test binary is in a directory that only its owner may enter.
	exe := filepath.Join(filepath.Dir(path), "child.test")
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestSockDiagChild$")
	cmd.Dir = filepath.Dir(path)
	cmd.Env = append(os.Environ(), childEnv+"=look", childPathEnv+"="+path)
	cmd.Stderr = os.Stderr
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	b, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	var out childSees
	line, _, _ := strings.Cut(string(b), "\n")
	if err := json.Unmarshal([]byte(line), &out); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return out
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("not within 10 s")
		}
	}
}
