package evidence

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/fuzzcorpus"
	"github.com/plegd/plegd/internal/health"
)

const someLocks = `1: POSIX  ADVISORY  WRITE 900 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 2000 fe:00:5678 0 EOF
2: -> FLOCK  ADVISORY  WRITE 1000 fe:00:5678 0 EOF
2:  -> FLOCK  ADVISORY  WRITE 1500 fe:00:5678 0 EOF
3: OFDLCK ADVISORY  READ -1 fe:00:99 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 fe:00:99 0 EOF
3: -> POSIX  ADVISORY  WRITE 1600 fe:00:99 0 EOF
4: LEASE  ACTIVE    READ 1700 fe:00:12 0 EOF
`

func TestLockWaits(t *testing.T) {
	tests := []struct {
		name, locks string
		pid, holder int
		file        string
	}{
		{"waits", someLocks, 1000, 2000, "fe:00:5678"},
		{"waits behind another", someLocks, 1500, 2000, "fe:00:5678"},
		{"holds", someLocks, 2000, 0, ""},
		{"has nothing to do with any", someLocks, 1, 0, ""},
		{"an open file description holds it, which has no process", someLocks, 1600, 0, "fe:00:99"},
		{"the holder's line is unreadable", "1: FLOCK  ADVISORY  WRITE 5 a:1:1 0 EOF\n2: FLOCK\n2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF\n", 6, 0, "a:1:2"},
		{"no holder's line", "2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF", 6, 0, "a:1:2"},
		{"empty", "", 6, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			holder, file, ok := firstWait(lockWaits([]byte(tt.locks), tt.pid))
			if holder != tt.holder || file != tt.file || ok != (tt.file != "") {
				t.Errorf("%d, %q, %v; want %d, %q", holder, file, ok, tt.holder, tt.file)
			}
		})
	}
}

// firstWait is the first of the locks that are waited for.
func firstWait(waits []fileLock) (holder int, file string, ok bool) {
	if len(waits) == 0 {
		return 0, "", false
	}
	return waits[0].pid, waits[0].file, true
}

// TestLockWaitsMany: two locks at once, and one that the process has itself.
func TestLockWaitsMany(t *testing.T) {
	const locks = `1: FLOCK  ADVISORY  WRITE 7 a:1:1 0 EOF
1: -> FLOCK  ADVISORY  WRITE 6 a:1:1 0 EOF
2: FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF
2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF
3: FLOCK  ADVISORY  WRITE 8 a:1:3 0 EOF
3: -> FLOCK  ADVISORY  WRITE 6 a:1:3 0 EOF
`
	want := []fileLock{{pid: 7, file: "a:1:1"}, {pid: 8, file: "a:1:3"}}
	if got := lockWaits([]byte(locks), 6); !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// The one that is waited for longest is told, in whatever order they stand.
	root := copyTree(t, "testdata/proc")
	as1000 := strings.ReplaceAll(locks, "WRITE 6", "WRITE 1000")
	third := as1000[strings.Index(as1000, "3:"):]
	writeTree(t, root, map[string]string{"locks": third})
	p := processIn(root, 1000)
	first := gatherProcess(t, p)
	writeTree(t, root, map[string]string{"locks": as1000})
	if v := gatherProcess(t, p); v.Lock == nil || v.Lock.File != "a:1:3" || v.Lock.HolderPID != 8 || !v.Lock.Since.Equal(first.At) {
		t.Errorf("%+v, want a:1:3 still", v.Lock)
	}
}

func FuzzLockWaits(f *testing.F) {
	for _, pid := range []int{1000, 1600, 0, -1} {
		f.Add([]byte(someLocks), pid)
	}
	f.Add([]byte("1: ->"), 1)
	f.Add([]byte("->\n-> -> ->"), 1)
	f.Fuzz(func(t *testing.T, locks []byte, pid int) {
		holder, file, ok := firstWait(lockWaits(locks, pid))
		if !ok {
			if holder != 0 || file != "" {
				t.Errorf("%d, %q, false", holder, file)
			}
			return
		}
		if holder < 0 || file == "" || !bytes.Contains(locks, []byte("->")) || !bytes.Contains(locks, []byte(file)) {
			t.Errorf("%d, %q of %q", holder, file, locks)
		}
		if holder != 0 { // it holds this very file
			found := false
			for line := range bytes.Lines(locks) {
				if l, ok := parseLock(line); ok && !l.waiting && l.pid == holder && l.file == file {
					found = true
				}
			}
			if !found {
				t.Errorf("pid %d does not hold %q in %q", holder, file, locks)
			}
		}
	})
}

func FuzzParseLock(f *testing.F) {
	fuzzcorpus.Add(f)
	for line := range strings.Lines(someLocks) {
		f.Add([]byte(line))
	}
	f.Add([]byte("1: ->"))
	f.Fuzz(func(t *testing.T, line []byte) {
		l, ok := parseLock(line)
		if !ok {
			if l != (fileLock{}) {
				t.Errorf("%+v, false", l)
			}
			return
		}
		if l.file == "" || !bytes.Contains(line, []byte(l.file)) {
			t.Errorf("%+v of %q", l, line)
		}
	})
}

func TestLockWait(t *testing.T) {
	root := copyTree(t, "testdata/proc")
	writeTree(t, root, map[string]string{"locks": someLocks})
	p := processIn(root, 1000)
	v := gatherProcess(t, p)
	want := health.LockWait{HolderPID: 2000, HolderComm: "a (strange) name", File: "fe:00:5678", Since: v.At}
	if v.Lock == nil || *v.Lock != want {
		t.Fatalf("%+v, want %+v", v.Lock, want)
	}
	// Since stays while it is the same file, whoever holds it.
	writeTree(t, root, map[string]string{"locks": strings.Replace(someLocks, "WRITE 2000", "WRITE 9999", 1)})
	again := gatherProcess(t, p)
	want.HolderPID, want.HolderComm = 9999, ""
	if again.Lock == nil || *again.Lock != want {
		t.Errorf("%+v, want %+v", again.Lock, want)
	}
	writeTree(t, root, map[string]string{"locks": strings.ReplaceAll(someLocks, "5678", "8765")})
	if other := gatherProcess(t, p); other.Lock == nil || !other.Lock.Since.Equal(other.At) || other.Lock.File != "fe:00:8765" {
		t.Errorf("another file: %+v at %s", other.Lock, other.At)
	}
	for _, files := range []map[string]string{{"locks": ""}, nil} {
		if files == nil {
			if err := os.Remove(filepath.Join(root, "locks")); err != nil {
				t.Fatal(err)
			}
		}
		writeTree(t, root, files)
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
			writeTree(t, "", map[string]string{file: ""})
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

func BenchmarkLockWaits(b *testing.B) {
	var locks []byte
	for i := range 500 {
		locks = fmt.Appendf(locks, "%d: FLOCK  ADVISORY  WRITE %d fe:00:%d 0 EOF\n", i, 1000+i, i)
	}
	for b.Loop() {
		_ = lockWaits(locks, 1)
	}
}
