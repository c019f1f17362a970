package proc

import (
	"fmt"
	"testing"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

// TestPIDIn: a runtime in a pid namespace of its own names its children by their numbers there.
func TestPIDIn(t *testing.T) {
	procfs := t.TempDir()
	for pid, numbers := range map[int]string{1: "1", 10: "10\t2", 20: "20\t3", 30: "30\t4\t1", 40: "40"} {
		evidencetest.WriteTree(t, procfs, map[string]string{fmt.Sprintf("%d/status", pid): "NSpid:\t" + numbers + "\n"})
	}
	for _, tt := range []struct{ pid, peer, want int }{
		{20, 10, 3}, {30, 10, 4}, {30, 30, 1}, {20, 1, 20}, {40, 10, 0}, {50, 10, 0}, {20, 50, 0},
	} {
		check.Equal(t, PIDIn(procfs, tt.pid, tt.peer), tt.want, "pid %d in the namespace of %d", tt.pid, tt.peer)
	}
}
