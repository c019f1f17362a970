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

// TestSharedMemory: a wait in shared memory, as for a POSIX semaphore, is followed to the process that maps the same file
// and does not wait there itself. Of several the one counts that stands still; else the file is named.
func TestSharedMemory(t *testing.T) {
	const semaphore = "7f0000001000-7f0000002000 rw-s 00000000 00:1a 12  /dev/shm/sem.gpu\n"
	const library = "7f0000001000-7f0000002000 rw-p 00000000 08:01 12  /lib/libc.so\n"
	const elsewhere = "55d000000000-55d000001000 rw-s 00000000 00:1a 12  /dev/shm/sem.gpu\n"
	const wait = "202 0x7f0000001010 0x109 0x0 0x0 0x0 0x0 0x1 0x1\n"
	for name, tt := range map[string]struct {
		call, maps string
		others     map[int]string // their memory
		states     map[int]byte
		calls      map[int]string
		want       int
		unknown    string
		idle       bool
	}{
		"one other process":         {call: wait, maps: semaphore, others: map[int]string{11: elsewhere, 12: library}, want: 11},
		"memory of its own":         {call: wait, maps: library, others: map[int]string{11: elsewhere}, idle: true},
		"a private futex":           {call: strings.Replace(wait, "0x109", "0x189", 1), maps: semaphore, others: map[int]string{11: elsewhere}, idle: true},
		"one of two is stopped":     {call: wait, maps: semaphore, others: map[int]string{11: elsewhere, 12: elsewhere}, states: map[int]byte{12: 'T'}, want: 12},
		"two sleep":                 {call: wait, maps: semaphore, others: map[int]string{11: elsewhere, 12: elsewhere}, unknown: "2 other processes"},
		"another one waits, too":    {call: wait, maps: semaphore, others: map[int]string{11: elsewhere, 12: semaphore}, calls: map[int]string{12: wait}, want: 11},
		"the one that had it ended": {call: wait, maps: semaphore, unknown: "may have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			states := map[int]byte{10: 'S', 11: 'S', 12: 'S'}
			for pid, state := range tt.states {
				states[pid] = state
			}
			root := procTree(t, states)
			sysfs := t.TempDir()
			evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
			evidencetest.WriteTree(t, root, map[string]string{"10/task/10/syscall": tt.call, "10/maps": tt.maps})
			for pid, maps := range tt.others {
				evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/maps", pid): maps})
			}
			for pid, call := range tt.calls {
				evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/task/%[1]d/syscall", pid): call})
			}
			c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
			switch {
			case tt.idle:
				check.Equal(t, len(c.Links) == 1 && c.Links[0].State == facts.LinkAsleep, true, "%+v", c)
			case tt.unknown != "":
				check.Equal(t, strings.Contains(c.Unknown, tt.unknown), true, "%+v", c)
				check.Equal(t, strings.Contains(c.Links[0].Evidence, "/dev/shm/sem.gpu"), true, "%+v", c)
			default:
				check.Equal(t, c.Links[1].PID, tt.want, "%+v", c)
			}
		})
	}
}

// TestMessageQueue: a wait at a full message queue is followed to the process that has it open to receive.
func TestMessageQueue(t *testing.T) {
	root := procTree(t, map[int]byte{10: 'S', 11: 'S', 12: 'S', 13: 'S'})
	evidencetest.WriteTree(t, root, map[string]string{
		"10/task/10/syscall": fmt.Sprintf("%d 0x3 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_MQ_TIMEDSEND),
	})
	for pid, info := range map[int]string{
		10: "flags:\t01\nmnt_id:\t14\nino:\t7\n",
		11: "flags:\t01\nmnt_id:\t14\nino:\t7\n", // sends, too
		12: "flags:\t00\nmnt_id:\t14\nino:\t7\n",
		13: "flags:\t00\nmnt_id:\t14\nino:\t8\n", // a file of the same name
	} {
		evidencetest.WriteTree(t, root, map[string]string{fmt.Sprintf("%d/fdinfo/3", pid): info})
		must.Do(t, os.Symlink("/jobs", filepath.Join(root, fmt.Sprint(pid), "fd/3")))
	}
	c := New(proc.NewTable(root), t.TempDir(), nil).Process(t.Context(), 10)
	check.Equal(t, len(c.Links), 2, "%+v", c)
	check.Equal(t, c.Links[1].PID, 12, "%+v", c)
}
