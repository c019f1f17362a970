package chain

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestThrottledHolder: of several processes that have the other end of a pipe, the one counts that a CPU quota keeps from
// running. One that runs or sleeps in the same cgroup does not, nor does any where the quota takes nothing away.
func TestThrottledHolder(t *testing.T) {
	for name, tt := range map[string]struct {
		states [2]byte
		taken  int
		want   int
	}{
		"one is runnable":             {states: [2]byte{'S', 'R'}, taken: 1, want: 12},
		"both are":                    {states: [2]byte{'R', 'R'}, taken: 1, want: 11},
		"both sleep":                  {states: [2]byte{'S', 'S'}, taken: 1},
		"the quota takes nothing":     {states: [2]byte{'S', 'R'}},
		"another one is stopped, too": {states: [2]byte{'T', 'R'}, taken: 1, want: 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := procTree(t, map[int]byte{10: 'S', 11: tt.states[0], 12: tt.states[1]})
			sysfs := t.TempDir()
			stat := func(periods, taken int) map[string]string {
				return map[string]string{"fs/cgroup/pods/cpu.stat": fmt.Sprintf("nr_periods %d\nnr_throttled %d\n", periods, taken)}
			}
			evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": "cpu\n", "fs/cgroup/pods/cpu.max": "1000 1000000\n"})
			evidencetest.WriteTree(t, sysfs, stat(5, 5))
			evidencetest.WriteTree(t, root, map[string]string{
				"10/task/10/syscall": fmt.Sprintf("%d 0x3 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_READ),
				"11/cgroup":          "0::/pods\n", "12/cgroup": "0::/pods\n",
			})
			for pid, flags := range map[int]string{10: "0", 11: "01", 12: "01"} {
				evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/fdinfo/3", pid): "flags:\t" + flags + "\n"})
				must.Do(t, os.Symlink("pipe:[77]", filepath.Join(root, fmt.Sprint(pid), "fd/3")))
			}
			go func() {
				time.Sleep(betweenLooks + quotaWindow/2) // within both windows
				evidencetest.WriteTree(t, sysfs, stat(6, 5+tt.taken))
				time.Sleep(quotaWindow + betweenLooks)
				evidencetest.WriteTree(t, sysfs, stat(7, 5+2*tt.taken))
			}()
			c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
			if tt.want == 0 {
				check.Equal(t, len(c.Links) == 1 && c.Unknown != "", true, "%+v", c)
				return
			}
			check.Equal(t, c.Links[1].PID, tt.want, "%+v", c)
			last := c.Links[len(c.Links)-1]
			if tt.states[0] != 'T' && (last.Kind != facts.KindCgroup || last.Name != "/pods") {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestSocketPair: the other end of a socket without a name is followed to the process that has it, of several to the one
// that stands still; several that sleep prove nothing.
func TestSocketPair(t *testing.T) {
	evidencetest.NeedUnixDiag(t, proc.EachSocket(t.Context(), 1<<proc.Listening, func(proc.Socket) {}))
	for name, tt := range map[string]struct {
		holders, stopped int
	}{
		"one":                           {holders: 1},
		"several, of which one stopped": {holders: 2, stopped: 1},
		"several that sleep":            {holders: 2},
	} {
		t.Run(name, func(t *testing.T) {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			must.Do(t, err)
			t.Cleanup(func() { _ = unix.Close(pair[0]) })
			other := os.NewFile(uintptr(pair[1]), "pair")
			want := 0
			for i := range tt.holders {
				cmd := exec.Command("sleep", "1000")
				cmd.ExtraFiles = []*os.File{other}
				must.Do(t, cmd.Start())
				t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
				if i < tt.stopped {
					must.Do(t, cmd.Process.Signal(syscall.SIGSTOP))
				}
				if i == 0 && (tt.stopped > 0 || tt.holders == 1) {
					want = cmd.Process.Pid
				}
			}
			must.Do(t, other.Close())
			f := &waiting{Explorer: New(proc.NewTable("/proc"), "/sys", nil), pid: os.Getpid()}
			f.last.sockets = f.connections(t.Context())
			f.privateAnswers(t.Context())
			got := 0
			for _, w := range f.found {
				got = w.next
			}
			check.Equal(t, got, want, "%+v", f.found)
		})
	}
}

// TestEventFD: a reader of an eventfd waits for the only other process that has it, or for the one of several that stands
// still.
func TestEventFD(t *testing.T) {
	for name, tt := range map[string]struct {
		states  [2]byte
		ids     [2]string
		next    int
		unknown string
	}{
		"one other":               {states: [2]byte{'S', 'S'}, ids: [2]string{"7", "8"}, next: 11},
		"one of two stands still": {states: [2]byte{'S', 'T'}, ids: [2]string{"7", "7"}, next: 12},
		"two that sleep":          {states: [2]byte{'S', 'S'}, ids: [2]string{"7", "7"}, unknown: "2 processes hold"},
		"no other":                {states: [2]byte{'T', 'T'}, ids: [2]string{"8", "9"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := procTree(t, map[int]byte{10: 'S', 11: tt.states[0], 12: tt.states[1]})
			evidencetest.WriteTree(t, root, map[string]string{"10/task/10/syscall": fmt.Sprintf("%d 0x3 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_READ)})
			for pid, id := range map[int]string{10: "7", 11: tt.ids[0], 12: tt.ids[1]} {
				evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/fdinfo/3", pid): "flags:\t02\neventfd-count:                0\neventfd-id: " + id + "\n"})
				must.Do(t, os.Symlink("anon_inode:[eventfd]", filepath.Join(root, fmt.Sprint(pid), "fd/3")))
			}
			c := New(proc.NewTable(root), root, nil).Process(t.Context(), 10)
			last := c.Links[len(c.Links)-1]
			check.Equal(t, last.PID, max(10, tt.next), "%+v", c)
			check.Equal(t, strings.Contains(c.Unknown, tt.unknown), true, "%+v", c)
		})
	}
}
