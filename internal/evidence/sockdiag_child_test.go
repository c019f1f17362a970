package evidence

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

// What a child process of these tests is to do, and with which socket.
const (
	childEnv     = "PLEGD_TEST_CHILD"
	childPathEnv = "PLEGD_TEST_CHILD_SOCKET"
)

// childSees is what a child without privilege reports.
type childSees struct {
	UID            int
	Queue          *health.Queue
	QueueErr       string
	Connections    *health.Connections
	ConnectionsErr string
}

// TestSockDiagChild is no test: it is what the child processes run.
func TestSockDiagChild(t *testing.T) {
	path := os.Getenv(childPathEnv)
	switch os.Getenv(childEnv) {
	case "client":
		// Connects, says so, and reads nothing before it is told to.
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("connected")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		_, _ = io.Copy(io.Discard, c)
	case "look":
		out := childSees{UID: os.Getuid()}
		var err error
		if out.Queue, err = newQueueSource(at(path)).gather(t.Context()); err != nil {
			out.QueueErr = err.Error()
		}
		c := newConnectionsSource(node.NewTable("/proc"), at(path))
		_, _ = c.gather(t.Context())
		c.rest = time.Time{}
		if out.Connections, err = c.gather(t.Context()); err != nil {
			out.ConnectionsErr = err.Error()
		}
		_ = json.NewEncoder(os.Stdout).Encode(out)
	}
}

// startClient starts a process that connects to path and does not read until
// the returned function is called.
func startClient(t *testing.T, path string) (pid int, read func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestSockDiagChild$")
	cmd.Env = append(os.Environ(), childEnv+"=client", childPathEnv+"="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "connected\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	return cmd.Process.Pid, func() { _, _ = io.WriteString(in, "\n") }
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
