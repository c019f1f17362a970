package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

func TestLockWait(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{"locks": evidencetest.Locks})
	p := processIn(root, 1000)
	v := gatherProcess(t, p)
	want := facts.LockWait{HolderPID: 2000, HolderComm: "a (strange) name", File: "fe:00:5678", Since: v.At}
	if v.Lock == nil || *v.Lock != want {
		t.Fatalf("%+v, want %+v", v.Lock, want)
	}
	// Since stays while it is the same file, with any holder.
	evidencetest.WriteTree(t, root, map[string]string{"locks": strings.Replace(evidencetest.Locks, "WRITE 2000", "WRITE 9999", 1)})
	again := gatherProcess(t, p)
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
}
