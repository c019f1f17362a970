package chain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestTerminal: a process that reads from a pseudo terminal waits for the one that has its master side, of the same devpts.
func TestTerminal(t *testing.T) {
	const (
		node      = "24 1 0:6 / /dev rw - devtmpfs devtmpfs rw\n25 24 0:20 / /dev/pts rw - devpts devpts rw\n26 25 0:21 / /dev/pts rw - devpts devpts rw\n"
		copied    = "44 1 0:6 / /dev rw - devtmpfs devtmpfs rw\n46 44 0:21 / /dev/pts rw - devpts devpts rw\n"
		container = "56 1 0:30 / /dev/pts rw - devpts devpts rw\n"
	)
	type master struct {
		mounts, leads string
		mount, number int
		frozen        bool
	}
	for name, tt := range map[string]struct {
		reader      string // its mounts
		mount       int    // of its terminal
		masters     map[int]master
		states      map[int]byte
		next        int
		state       facts.LinkState // of the last link
		readerOfTwo bool
		unknown     string
	}{
		"the master of the node is stopped": {reader: copied, mount: 46, masters: map[int]master{11: {mounts: node, leads: "/dev/ptmx", mount: 24}}, states: map[int]byte{11: 'T'}, next: 11, state: facts.LinkStopped},
		"it is frozen":                      {reader: node, mount: 26, masters: map[int]master{11: {mounts: node, leads: "/dev/pts/ptmx", mount: 26, frozen: true}}, next: 11, state: facts.LinkFrozen},
		"it is idle":                        {reader: node, mount: 26, masters: map[int]master{11: {mounts: node, leads: "/dev/ptmx", mount: 24}}, next: 11, state: facts.LinkAsleep},
		"the terminal of a container":       {reader: container, mount: 56, masters: map[int]master{11: {mounts: node, leads: "/dev/pts/ptmx", mount: 56}, 12: {mounts: node, leads: "/dev/ptmx", mount: 24}}, next: 11, state: facts.LinkAsleep},
		"a terminal from before an unshare": {reader: copied, mount: 26, masters: map[int]master{11: {mounts: node, leads: "/dev/ptmx", mount: 24}}, next: 11, state: facts.LinkAsleep},
		"another devpts":                    {reader: container, mount: 56, masters: map[int]master{12: {mounts: node, leads: "/dev/ptmx", mount: 24}}, states: map[int]byte{12: 'T'}, unknown: "no process that plegd can see"},
		"another number":                    {reader: node, mount: 26, masters: map[int]master{12: {mounts: node, leads: "/dev/ptmx", mount: 24, number: 4}}, unknown: "no process that plegd can see"},
		"one of two threads reads":          {reader: node, mount: 26, masters: map[int]master{11: {mounts: node, leads: "/dev/ptmx", mount: 24}}, readerOfTwo: true, unknown: "idle wait"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := map[int]byte{10: 'S', 11: 'S', 12: 'S'}
			for pid, state := range tt.states {
				states[pid] = state
			}
			root := procTree(t, states)
			sysfs := t.TempDir()
			evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": "", "fs/cgroup/ice/cgroup.events": "frozen 1\n", "fs/cgroup/ice/cgroup.freeze": "1\n"})
			evidencetest.WriteTree(t, root, map[string]string{
				"10/task/10/syscall": fmt.Sprintf("%d 0x3 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_READ), "10/task/10/wchan": "wait_woken",
				"10/fdinfo/3": fmt.Sprintf("flags:\t02\nmnt_id:\t%d\n", tt.mount), "10/mountinfo": tt.reader,
			})
			must.Do(t, os.Symlink("/dev/pts/3", filepath.Join(root, "10/fd/3")))
			if tt.readerOfTwo {
				evidencetest.WriteTree(t, root, map[string]string{"10/task/13/stat": evidencetest.StatLine(13, "thing", 'S', 1, 100), "10/task/13/schedstat": "1 1 1\n"})
			}
			for pid, m := range tt.masters {
				evidencetest.WriteTree(t, root, map[string]string{
					fmt.Sprintf("%d/fdinfo/7", pid): fmt.Sprintf("flags:\t02\nmnt_id:\t%d\ntty-index:\t%d\n", m.mount, m.number+3), fmt.Sprintf("%d/mountinfo", pid): m.mounts,
				})
				must.Do(t, os.Symlink(m.leads, filepath.Join(root, fmt.Sprint(pid), "fd/7")))
				if m.frozen {
					evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/cgroup", pid): "0::/ice\n"})
				}
			}
			c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
			check.Equal(t, strings.Contains(c.Links[0].Evidence, "thread 10 reads from /dev/pts/3"), true, "%+v", c)
			if tt.unknown != "" {
				check.Equal(t, len(c.Links) == 1 && strings.Contains(c.Unknown, tt.unknown), true, "%+v", c)
				return
			}
			must.Equal(t, len(c.Links) > 1, true, "%+v", c)
			check.Equal(t, c.Links[1].PID, tt.next, "%+v", c)
			check.Equal(t, c.Links[1].State, tt.state, "%+v", c)
		})
	}
}
