package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseSyscall(t *testing.T) {
	got, ok := ParseSyscall([]byte("72 0x3 0x7 0x7ffd1e2c 0x0 0x0 0xffffffffffffffff 0x7ffd 0x7f01\n"))
	if want := (Syscall{Number: 72, Args: [6]uint64{3, 7, 0x7ffd1e2c, 0, 0, 1<<64 - 1}}); !ok || got != want {
		t.Errorf("%+v, %v; want %+v", got, ok, want)
	}
	for _, line := range []string{"", "running\n", "-1 0x7ffd 0x7f01\n", "-1 0x1 0x1 0x1 0x1 0x1 0x1 0x1 0x1", "7 1 2 3 4 5 6 7 8", "7 0x1 0x2", "x 0x1 0x1 0x1 0x1 0x1 0x1 0x1 0x1"} {
		if got, ok := ParseSyscall([]byte(line)); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

func TestParseStatus(t *testing.T) {
	got := ParseStatus([]byte("Name:\tx\nTracerPid:\t42\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n"))
	if want := (Status{TracerPID: 42, Switches: 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := ParseStatus([]byte("TracerPid:\t-3\nTracerPid\n")); got != (Status{}) {
		t.Errorf("%+v", got)
	}
}

func TestParseFDInfo(t *testing.T) {
	got := ParseFDInfo([]byte("pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t5678\nlock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:5678 0 EOF\nPid:\t77\nfuse_connection:\t43\n"))
	if got.Flags != 0o100002 || got.MountID != 29 || got.PID != 77 || got.FuseConnection != 43 || len(got.Locks) != 1 || got.Locks[0].File != "fe:00:5678" {
		t.Errorf("%+v", got)
	}
	if got := ParseFDInfo([]byte("flags:\tx\nPid:\t-1\nlock:\tx\n")); got.Flags != 0 || got.PID != 0 || got.FuseConnection != -1 || got.Locks != nil {
		t.Errorf("%+v", got)
	}
}

const someMounts = `29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
43 29 0:43 / /mnt/with\040blank rw - fuse.sshfs host:/x rw
44 29 7:0 / /var/lib rw,relatime - ext4 /dev/loop0 rw
45 44 7:1 / /var/lib rw,relatime - xfs /dev/loop1 rw
no mount
`

func TestMounts(t *testing.T) {
	all := ParseMounts([]byte(someMounts))
	if len(all) != 4 || all[1].Point != "/mnt/with blank" || all[1].Type != "fuse.sshfs" || all[1].Device != "0:43" {
		t.Fatalf("%+v", all)
	}
	for path, id := range map[string]int{"/": 29, "/etc/x": 29, "/mnt/with blank/f": 43, "/mnt/with blanks": 29, "/var/lib": 45, "/var/lib/x": 45, "/var/library": 29} {
		if m, ok := MountOf(all, path); !ok || m.ID != id {
			t.Errorf("%s is on %+v, want mount %d", path, m, id)
		}
	}
	if m, ok := MountOf(nil, "/x"); ok {
		t.Errorf("%+v of no mounts", m)
	}
}

func FuzzWaitFiles(f *testing.F) {
	f.Add([]byte("72 0x3 0x7 0x7ffd1e2c 0x0 0x0 0x0 0x7ffd 0x7f01\n"))
	f.Add([]byte("flags:\t0100002\nmnt_id:\t29\nPid:\t77\nlock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:5678 0 EOF\n"))
	f.Add([]byte("TracerPid:\t42\n"))
	f.Add([]byte(someMounts))
	f.Add([]byte("1 1 1:1 / /a\\040\\9 rw - x \\"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, ok := ParseSyscall(b); ok && s.Number < 0 {
			t.Errorf("%q: %+v", b, s)
		}
		if s := ParseStatus(b); s.TracerPID < 0 {
			t.Errorf("%q: %+v", b, s)
		}
		if i := ParseFDInfo(b); i.PID < 0 || i.FuseConnection < -1 {
			t.Errorf("%q: %+v", b, i)
		}
		mounts := ParseMounts(b)
		if len(mounts) > strings.Count(string(b), "\n")+1 {
			t.Errorf("%d mounts in %q", len(mounts), b)
		}
		for _, m := range mounts {
			if len(m.Point) > len(b) || m.ID < 0 {
				t.Errorf("%q: %+v", b, m)
			}
		}
		_, _ = MountOf(mounts, "/a")
	})
}

// TestLeftBehind: a read that does not come back is given up, and so many of them
// at most.
func TestLeftBehind(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte(strings.Repeat("0123456789", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	var l LeftBehind
	if b, err := l.Read(file, 5, 7, time.Second); err != nil || string(b) != "5678901" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := l.Read(file, 0, 1<<20, time.Second); err != nil || len(b) != 10000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if _, err := l.Read(filepath.Join(dir, "none"), 0, 10, time.Second); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	for range maxLeftBehind + 3 {
		if _, err := l.Read(fifo, 0, 10, time.Millisecond); !errors.Is(err, ErrLeftBehind) {
			t.Errorf("nobody writes: %v", err)
		}
	}
	if n := l.Pending(); n != maxLeftBehind {
		t.Errorf("%d reads wait, want %d", n, maxLeftBehind)
	}
	if _, err := l.Read(file, 0, 7, time.Second); !errors.Is(err, ErrLeftBehind) {
		t.Errorf("with so many: %v", err)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	for deadline := time.Now().Add(10 * time.Second); l.Pending() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := l.Pending(); n != 0 {
		t.Errorf("%d reads still wait", n)
	}
}
