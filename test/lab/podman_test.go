//go:build e2e

package lab

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestPodman: a conmon of podman's has the parent that the runtime has, so that
// only its arguments tell whose it is.
func TestPodman(t *testing.T) {
	c := NewContainerd(t, ContainerdOptions{})
	conmon := NewPodman(t, c).Run("neighbour")
	if a, b := parentOf(t, conmon), parentOf(t, c.Pid()); a != b {
		t.Errorf("the parent of podman's conmon is %s, that of the runtime %s", a, b)
	}
}

func parentOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "PPid:\t")
	line, _, _ := strings.Cut(rest, "\n")
	return line
}
