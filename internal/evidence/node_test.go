package evidence

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

var withoutAt = cmpopts.IgnoreFields(facts.Node{}, "At")

func TestNode(t *testing.T) {
	want := facts.Node{
		CPUSome: 12.5, MemoryFull: 1.5, IOFull: 33.33, CPUIdle: -1,
		Files: 2560, FilesMax: 9223372036854775807, Threads: 345, ThreadsMax: 31000,
	}
	got, _, err := readNode("testdata/proc", proc.Files{})
	must.Do(t, err)
	if diff := cmp.Diff(want, *got, withoutAt); diff != "" || got.At.IsZero() {
		t.Errorf("at %s: %s", got.At, diff)
	}

	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{"sys/kernel/pid_max": "4194304\n"})
	if got, _, err := readNode(root, proc.Files{}); err != nil || got.ThreadsMax != 62000 {
		t.Errorf("%+v, %v; want the limit of threads-max", got, err)
	}
	// A pressure file without numbers is not a pressure of 0.
	evidencetest.WriteTree(t, root, map[string]string{"pressure/memory": "some avg10=3.25 avg60=0.00 avg300=0.00 total=1\n", "pressure/cpu": ""})
	if got, _, err := readNode(root, proc.Files{}); err != nil || got.CPUSome != -1 || got.MemoryFull != -1 {
		t.Errorf("%+v, %v; want -1 for a missing number", got, err)
	}
	must.Do(t, os.RemoveAll(filepath.Join(root, "pressure")))
	got, _, err = readNode(root, proc.Files{})
	must.Do(t, err)
	if got.CPUSome != -1 || got.MemoryFull != -1 || got.IOFull != -1 || got.Threads != 345 {
		t.Errorf("without pressure files: %+v", got)
	}
}

// TestNodeIdle compares the CPUs' times of two samples.
func TestNodeIdle(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	w := newNode(root)
	look := func() float64 {
		t.Helper()
		v, err := w.spec.Gather(t.Context())
		must.Do(t, err)
		return v.CPUIdle
	}
	for _, step := range []struct {
		name, line string
		want       float64
	}{
		{"the first", "cpu  100 20 100 9000 5 0 1 0 7 7", -1},
		{"idle and waiting for a disk", "cpu  120 20 100 9050 35 0 1 0 9 9", .8},
		{"nothing has passed", "cpu  120 20 100 9050 35 0 1 0 9 9", -1},
		{"none idle", "cpu  200 20 110 9050 35 5 6 0 9 9", 0},
		{"iowait goes back", "cpu  300 20 110 9050 30 5 6 0 9 9", -1},
		{"made again", "cpu  1 1 1 1 1 1 1 1 1 1", -1},
	} {
		evidencetest.WriteTree(t, root, map[string]string{"stat": step.line + "\ncpu0 1 1 1 1\nbtime 1700000000\n"})
		if got := look(); math.Abs(got-step.want) > 1e-6 {
			t.Errorf("%s: idle %f, want %f", step.name, got, step.want)
		}
	}
}

func TestNodeFails(t *testing.T) {
	for name, content := range map[string]string{
		"sys/fs/file-nr":         "1\t2\n",
		"sys/kernel/pid_max":     "many\n",
		"sys/kernel/threads-max": "",
		"loadavg":                "0.00 0.01 0.05 1of345 1\n",
	} {
		root := evidencetest.CopyTree(t, "testdata/proc")
		evidencetest.WriteTree(t, root, map[string]string{name: content})
		if got, _, err := readNode(root, proc.Files{}); err == nil || got != nil {
			t.Errorf("%s: %+v, %v; want an error", name, got, err)
		}
	}
	if got, _, err := readNode(t.TempDir()+"/none", proc.Files{}); err == nil {
		t.Errorf("%+v, want an error", got)
	}
}

func TestLockWait(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{"locks": evidencetest.Locks})
	must.Do(t, os.MkdirAll(root+"/2000/fd", 0o755))
	p := processIn(root, 1000)
	v := gatherProcess(t, p)
	want := facts.LockWait{HolderPID: 2000, File: "fe:00:5678", Since: v.At} // it has passed the lock on
	if v.Lock == nil || *v.Lock != want {
		t.Fatalf("%+v, want %+v", v.Lock, want)
	}
	evidencetest.WriteTree(t, root, map[string]string{"2000/fdinfo/9": "lock:\t1: FLOCK  ADVISORY  WRITE 2000 fe:00:5678 0 EOF\n"})
	must.Do(t, os.Symlink("/db/meta.db", root+"/2000/fd/9"))
	v = gatherProcess(t, p)
	want.HolderComm = "a (strange) name"
	want.File = "/db/meta.db"
	if v.Lock == nil || *v.Lock != want {
		t.Fatalf("%+v, want %+v", v.Lock, want)
	}
	// Since stays while it is the same file, with any holder.
	evidencetest.WriteTree(t, root, map[string]string{"locks": strings.Replace(evidencetest.Locks, "WRITE 2000", "WRITE 9999", 1)})
	again := gatherProcess(t, p)
	want.File = "fe:00:5678"
	want.HolderPID, want.HolderComm = 9999, ""
	if again.Lock == nil || *again.Lock != want {
		t.Errorf("%+v, want %+v", again.Lock, want)
	}
	evidencetest.WriteTree(t, root, map[string]string{"locks": strings.ReplaceAll(evidencetest.Locks, "5678", "8765")})
	if other := gatherProcess(t, p); other.Lock == nil || !other.Lock.Since.Equal(other.At) || other.Lock.File != "fe:00:8765" {
		t.Errorf("another file: %+v at %s", other.Lock, other.At)
	}
	// Of two locks the one with the longest wait is reported, in any order of the lines.
	both := "1: FLOCK  ADVISORY  WRITE 7 a:1:1 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 1000 a:1:1 0 EOF\n" + strings.ReplaceAll(evidencetest.Locks, "5678", "8765")
	evidencetest.WriteTree(t, root, map[string]string{"locks": both})
	if v := gatherProcess(t, p); v.Lock == nil || v.Lock.File != "fe:00:8765" {
		t.Errorf("%+v, want the first one still", v.Lock)
	}
	for _, files := range []map[string]string{{"locks": ""}, nil} {
		if files == nil {
			must.Do(t, os.Remove(filepath.Join(root, "locks")))
		}
		evidencetest.WriteTree(t, root, files)
		if none := gatherProcess(t, p); none.Lock != nil {
			t.Errorf("%+v, want none", none.Lock)
		}
	}
}

// TestPolledLock: a database that is locked by another process, and not one of the same
// inode on another file system.
func TestPolledLock(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{
		"1000/mountinfo": "30 1 254:0 / /root rw - ext4 /dev/vda rw\n", "1000/fdinfo/9": "pos:\t0\nflags:\t02\nmnt_id:\t30\nino:\t5678\n",
	})
	must.Do(t, errors.Join(os.MkdirAll(root+"/1000/fd", 0o755), os.Symlink("/root/meta.db", root+"/1000/fd/9")))
	for device, want := range map[string]string{"fe:00": "/root/meta.db", "00:1b": ""} {
		evidencetest.WriteTree(t, root, map[string]string{"locks": "1: FLOCK  ADVISORY  WRITE 2000 " + device + ":5678 0 EOF\n"})
		got := ""
		if l := gatherProcess(t, processIn(root, 1000)).Lock; l != nil {
			got = l.File
		}
		check.Equal(t, got, want, "locked on device %s", device)
	}
	// Which databases are open is read again after a time.
	p := processIn(root, 1000)
	p.up = func() time.Duration { return time.Hour }
	evidencetest.WriteTree(t, root, map[string]string{"locks": "1: FLOCK  ADVISORY  WRITE 2000 fe:00:5678 0 EOF\n"})
	gatherProcess(t, p)
	must.Do(t, os.Remove(root+"/1000/fd/9"))
	check.Equal(t, gatherProcess(t, p).Lock != nil, true, "locked, as it was open just before")
	p.databasesRead = p.databasesRead.Add(-databaseInterval)
	check.Equal(t, gatherProcess(t, p).Lock != nil, false, "locked once it has been closed")
}

// TestInotifyUsedUp: that no further instance can be made is found in a user namespace with that limit.
func TestInotifyUsedUp(t *testing.T) {
	const limit = "PLEGD_TEST_INOTIFY"
	if text := os.Getenv(limit); text != "" {
		err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte(text), 0)
		if err != nil {
			t.Skip("SKIPPED:", err)
		}
		check.Equal(t, inotifyUsedUp(), text == "0", "used up with a limit of %s", text)
		return
	}
	if inotifyUsedUp() {
		t.Skip("SKIPPED: they are used up here")
	}
	for _, text := range []string{"0", "1"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestInotifyUsedUp$", "-test.v")
		cmd.Env = append(os.Environ(), limit+"="+text)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		switch {
		case errors.Is(err, syscall.EPERM), strings.Contains(string(out), "SKIPPED"):
			t.Skipf("SKIPPED: no user namespace with a limit: %v %s", err, out)
		case err != nil:
			t.Errorf("%v: %s", err, out)
		}
	}
}
