package chain

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// semaphoreSet makes a set of two semaphores of which this process has taken the second one and waits for it.
func semaphoreSet(t *testing.T) (set int) {
	t.Helper()
	id, _, errno := unix.Syscall(unix.SYS_SEMGET, unix.IPC_PRIVATE, 2, 0o600)
	if errno != 0 {
		t.Skipf("semget: %v", errno)
	}
	t.Cleanup(func() { _, _, _ = unix.Syscall(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID) })
	change := func(by int16) {
		operation := [3]int16{1, by}
		_, _, _ = unix.Syscall(unix.SYS_SEMOP, id, uintptr(unsafe.Pointer(&operation)), 1)
	}
	change(1)
	change(-1)
	go func() {
		runtime.LockOSThread()
		change(-1) // until the set is removed
	}()
	const waiters = 14 // GETNCNT
	for range 1000 {
		n, _, _ := unix.Syscall(unix.SYS_SEMCTL, id, 1, waiters)
		if n == 1 {
			return int(id)
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("nothing waits for the semaphore")
	return 0
}

// TestSystemV: a wait in System V IPC is followed to the process that last used the object in the other way, if that lives and
// is held up. The id of another IPC namespace is that of another object.
func TestSystemV(t *testing.T) {
	set := semaphoreSet(t)
	self := os.Getpid()
	now := time.Now().Unix()
	tables := func(lastUse int64) map[string]string {
		return map[string]string{
			"sysvipc/sem": "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n" +
				fmt.Sprintf("         0          %d   600          2     0     0     0     0 %d %[2]d\n", set, lastUse),
			"sysvipc/msg": "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n" +
				fmt.Sprintf("        -5          8   600         9   1    12    12     0     0     0     0 %d %[1]d %[1]d\n", lastUse) +
				fmt.Sprintf("        -7          7   600         9   1    11    %d     0     0     0     0 %d %[2]d %[2]d\n", self, lastUse),
		}
	}
	for name, tt := range map[string]struct {
		call, id, next    int
		states            map[int]byte
		lastUse           int64
		namespace         string // of the process that waits
		evidence, unknown string
	}{
		"a semaphore of a stopped process": {call: unix.SYS_SEMOP, id: set, states: map[int]byte{self: 'T'}, next: self, evidence: "(thing) last changed semaphore 1 of it"},
		"a process in D":                   {call: unix.SYS_SEMTIMEDOP, id: set, states: map[int]byte{self: 'D'}, next: self},
		"one that is idle":                 {call: unix.SYS_SEMTIMEDOP, id: set, evidence: fmt.Sprintf(": pid %d (thing) last", self), unknown: "may wait for pid"},
		"one that has ended":               {call: unix.SYS_SEMOP, id: set, states: map[int]byte{self: 'Z'}, unknown: "no other process"},
		"another process has the pid":      {call: unix.SYS_SEMOP, id: set, states: map[int]byte{self: 'T'}, lastUse: 1000, unknown: "no other process"},
		"another namespace":                {call: unix.SYS_SEMOP, id: set, states: map[int]byte{self: 'T'}, namespace: "ipc:[2]", unknown: "another IPC namespace"},
		"a set that is not there":          {call: unix.SYS_SEMOP, id: 1 << 30, unknown: "is not known"},
		"a queue whose sender is stopped":  {call: unix.SYS_MSGRCV, id: 7, states: map[int]byte{11: 'T'}, next: 11, evidence: "message queue 7: pid 11 (thing) last sent to it"},
		"a queue whose sender is idle":     {call: unix.SYS_MSGRCV, id: 7, states: map[int]byte{self: 'T'}, unknown: "may wait for pid 11"},
		"one whose receiver is stopped":    {call: unix.SYS_MSGSND, id: 7, states: map[int]byte{self: 'T'}, next: self},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states := map[int]byte{10: 'S', 11: 'S', 12: 'T', self: 'S'}
			for pid, state := range tt.states {
				states[pid] = state
			}
			root := procTree(t, states)
			sysfs := t.TempDir()
			evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
			if tt.lastUse == 0 {
				tt.lastUse = now
			}
			evidencetest.WriteTree(t, root, tables(tt.lastUse))
			evidencetest.WriteTree(t, root, map[string]string{
				"10/task/10/syscall": fmt.Sprintf("%d 0x%x 0x10 0x1 0x0 0x0 0x0 0x1 0x1\n", tt.call, tt.id), "10/task/10/wchan": "__do_semtimedop",
			})
			if tt.namespace == "" {
				tt.namespace = "ipc:[1]"
			}
			for path, namespace := range map[string]string{"self": "ipc:[1]", "10": tt.namespace} {
				must.Do(t, os.MkdirAll(filepath.Join(root, path, "ns"), 0o755))
				must.Do(t, os.Symlink(namespace, filepath.Join(root, path, "ns/ipc")))
			}
			c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
			check.Equal(t, c.Links[min(1, len(c.Links)-1)].PID, max(tt.next, 10), "%+v", c)
			check.Equal(t, strings.Contains(c.Unknown, tt.unknown) && (tt.unknown == "") == (c.Unknown == ""), true, "%+v", c)
			check.Equal(t, strings.Contains(c.Links[0].Evidence, tt.evidence), true, "%+v", c)
		})
	}
}
