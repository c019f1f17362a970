//go:build e2e

package runtime

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/plegd/plegd/test/lab"
)

// ReplaceInConfig changes a containerd's configuration before it is started.
func (c *Containerd) ReplaceInConfig(old, new string) {
	c.TB.Helper()
	path := filepath.Join(filepath.Dir(c.Socket), "config.toml")
	b, err := os.ReadFile(path)
	if err == nil && !bytes.Contains(b, []byte(old)) {
		err = fmt.Errorf("%s holds no %q", path, old)
	}
	if err == nil {
		err = os.WriteFile(path, bytes.Replace(b, []byte(old), []byte(new), 1), 0o644)
	}
	lab.Must(c.TB, err)
}

// ListenAt makes a runtime that has not been started yet listen at another path.
func (c *Containerd) ListenAt(path string) {
	c.TB.Helper()
	if c.docker != nil {
		i := slices.Index(c.Argv, "unix://"+c.Socket)
		c.Argv[i] = "unix://" + path
	} else {
		c.ReplaceInConfig(c.Socket, path)
	}
	c.Socket = path
}

// LiftListLimit lets the runtime send lists that are larger than a client takes,
// before it is started. CRI-O does by itself.
func (c *Containerd) LiftListLimit() {
	c.TB.Helper()
	if c.monitor == "" {
		c.ReplaceInConfig("[grpc]\n", "[grpc]\n  max_send_message_size = 67108864\n")
	}
}

// LimitFiles sets the soft limit of containerd's open files, as prlimit does, and returns
// what undoes it. All descriptors below the limit are in use: it limits their numbers, and
// of low ones some may be free by then, or become so, so idle connections take these.
func (c *Containerd) LimitFiles(soft uint64) (undo func()) {
	c.TB.Helper()
	reset := lab.LimitFiles(c.TB, c.Pid(), soft)
	var idle []net.Conn
	for range soft {
		if conn, err := net.Dial("unix", c.Socket); err == nil {
			idle = append(idle, conn)
		}
	}
	return func() {
		reset()
		for _, conn := range idle {
			_ = conn.Close()
		}
	}
}

// Shim returns the pid of a pod's shim, with CRI-O of a conmon of its.
func (c *Containerd) Shim(p *Pod) int {
	c.TB.Helper()
	for pid, line := range lab.CommandLines() {
		if c.isMonitorOf(p, line) {
			return pid
		}
	}
	c.TB.Fatalf("lab: pod %s has no shim", p.Name)
	return 0
}
