package evidence

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/evidence/evidencetest"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// TestLockWaitsMany: two locks at once, and one that the process has itself.
func TestLockWaitsMany(t *testing.T) {
	const locks = `1: FLOCK  ADVISORY  WRITE 7 a:1:1 0 EOF
1: -> FLOCK  ADVISORY  WRITE 6 a:1:1 0 EOF
2: FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF
2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF
3: FLOCK  ADVISORY  WRITE 8 a:1:3 0 EOF
3: -> FLOCK  ADVISORY  WRITE 6 a:1:3 0 EOF
`
	want := []proc.Lock{{PID: 7, File: "a:1:1"}, {PID: 8, File: "a:1:3"}}
	if got := proc.LockWaits([]byte(locks), 6); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// The one that is waited for longest is told, in whatever order they stand.
	root := evidencetest.CopyTree(t, "testdata/proc")
	as1000 := strings.ReplaceAll(locks, "WRITE 6", "WRITE 1000")
	third := as1000[strings.Index(as1000, "3:"):]
	evidencetest.WriteTree(t, root, map[string]string{"locks": third})
	p := processIn(root, 1000)
	first := gatherProcess(t, p)
	evidencetest.WriteTree(t, root, map[string]string{"locks": as1000})
	if v := gatherProcess(t, p); v.Lock == nil || v.Lock.File != "a:1:3" || v.Lock.HolderPID != 8 || !v.Lock.Since.Equal(first.At) {
		t.Errorf("%+v, want a:1:3 still", v.Lock)
	}
}

func TestLockWait(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{"locks": evidencetest.Locks})
	p := processIn(root, 1000)
	v := gatherProcess(t, p)
	want := health.LockWait{HolderPID: 2000, HolderComm: "a (strange) name", File: "fe:00:5678", Since: v.At}
	if v.Lock == nil || *v.Lock != want {
		t.Fatalf("%+v, want %+v", v.Lock, want)
	}
	// Since stays while it is the same file, whoever holds it.
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
	for _, files := range []map[string]string{{"locks": ""}, nil} {
		if files == nil {
			if err := os.Remove(filepath.Join(root, "locks")); err != nil {
				t.Fatal(err)
			}
		}
		evidencetest.WriteTree(t, root, files)
		if none := gatherProcess(t, p); none.Lock != nil {
			t.Errorf("%+v, want none", none.Lock)
		}
	}
}

// TestLockWaitLive has one process hold a lock and another wait for it.
func TestLockWaitLive(t *testing.T) {
	for _, kind := range []string{"flock", "posix"} {
		t.Run(kind, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "meta.db")
			evidencetest.WriteTree(t, "", map[string]string{file: ""})
			exe := testExe(t, "lockholder")
			holder, waiter := startChild(t, exe, kind, file), startChild(t, "", "wait", kind, file)
			p := processIn("/proc", waiter.pid)
			var v *health.Process
			eventually(t, func() bool { v = gatherProcess(t, p); return v.Lock != nil })
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			l := *v.Lock
			if l.HolderPID != holder.pid || l.HolderComm != "lockholder" || l.File != file && !strings.HasSuffix(l.File, ":"+strconv.FormatUint(inodeOfInfo(info), 10)) || !l.Since.Equal(v.At) {
				t.Errorf("%+v, want it held by %d", l, holder.pid)
			}
			for range 3 {
				if again := gatherProcess(t, p); again.Lock == nil || *again.Lock != l {
					t.Errorf("%+v, want %+v still", again.Lock, l)
				}
			}
			if held := gatherProcess(t, processIn("/proc", holder.pid)); held.Lock != nil {
				t.Errorf("the holder waits for %+v", held.Lock)
			}
			holder.end()
			eventually(t, func() bool { return gatherProcess(t, p).Lock == nil })
		})
	}
}

// TestPolledLock: a database that is locked by another process, and not one of the same
// inode on another file system.
func TestPolledLock(t *testing.T) {
	root := evidencetest.CopyTree(t, "testdata/proc")
	evidencetest.WriteTree(t, root, map[string]string{
		"1000/mountinfo": "30 1 254:0 / /root rw - ext4 /dev/vda rw\n", "1000/fdinfo/9": "pos:\t0\nflags:\t02\nmnt_id:\t30\nino:\t5678\n",
	})
	if err := errors.Join(os.MkdirAll(root+"/1000/fd", 0o755), os.Symlink("/root/meta.db", root+"/1000/fd/9")); err != nil {
		t.Fatal(err)
	}
	for device, want := range map[string]string{"fe:00": "/root/meta.db", "00:1b": ""} {
		evidencetest.WriteTree(t, root, map[string]string{"locks": "1: FLOCK  ADVISORY  WRITE 2000 " + device + ":5678 0 EOF\n"})
		got := ""
		if l := gatherProcess(t, processIn(root, 1000)).Lock; l != nil {
			got = l.File
		}
		if got != want {
			t.Errorf("locked on device %s: %q, want %q", device, got, want)
		}
	}
}
