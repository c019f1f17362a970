package proc

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
)

func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	evidencetest.WriteTree(t, dir, map[string]string{"f": strings.Repeat("x", maxProcFile)})
	if got, err := ReadFile(dir, "f"); err != nil || len(got) != maxProcFile {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	evidencetest.WriteTree(t, dir, map[string]string{"f": strings.Repeat("x", maxProcFile+1)})
	if _, err := ReadFile(dir, "f"); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("%v; want an error that names the file", err)
	}
	if _, err := ReadFile(dir, "none"); !Gone(err) {
		t.Errorf("no such file: %v", err)
	}
	if _, err := ReadFile(dir); err == nil || Gone(err) {
		t.Errorf("a directory: %v", err)
	}
}

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"", "containerd", "tmux: server", "a) S 1 (b", ")", "((", "new\nline) R 7", "(sd-pam)"} {
		got, err := ParseStat([]byte(evidencetest.StatLine(4242, comm, 'D', 7, 1234)))
		if want := (Process{PID: 4242, PPID: 7, Comm: comm, State: 'D', Threads: 1, Start: 1234}); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", comm, got, err, want)
		}
	}
	whole := strings.TrimSuffix(evidencetest.StatLine(1, "x", 'S', 1, 1), "\n")
	for _, line := range []string{
		"", "()", "(x) S", "1 (x", "1 x) S", ") 1 (x", "1 (x) SS" + strings.Repeat(" 1", 30), "x (x) S" + strings.Repeat(" 1", 30),
		"1 (x) S" + strings.Repeat(" 1", 18), "1 (x) S x" + strings.Repeat(" 1", 30), "1 (x) S" + strings.Repeat(" -1", 30),
		"-1" + whole[1:],
	} {
		if got, err := ParseStat([]byte(line)); err == nil {
			t.Errorf("%q: %+v, want an error", line, got)
		}
	}
}

// TestStartedAt: the age of a process counts, not the wall clock of its
// start.
func TestStartedAt(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		ticks uint64
		age   time.Duration
	}{{0, time.Hour}, {360000 - 250, 2500 * time.Millisecond}, {360001, 0}, {math.MaxUint64, 0}} {
		check.Equal(t, now.Sub(StartedAt(now, time.Hour, tt.ticks)), tt.age, "started at tick %d, an hour after boot: old", tt.ticks)
	}
	s, err := ReadStat("/proc", os.Getpid())
	if err != nil || s.PID != os.Getpid() || s.PPID != os.Getppid() || s.Threads < 2 || s.Dead() {
		t.Fatalf("%+v, %v", s, err)
	}
	if age := time.Since(StartedAt(time.Now(), Uptime(), s.Start)); age <= 0 || age > time.Hour {
		t.Errorf("this process is %s old", age)
	}
}

// TestDead: the first thread may end before the others.
func TestDead(t *testing.T) {
	for _, tt := range []struct {
		state   byte
		threads int
		want    bool
	}{{'S', 1, false}, {'Z', 1, true}, {'Z', 0, true}, {'Z', 2, false}, {'X', 1, true}, {'D', 1, false}} {
		check.Equal(t, (Process{State: tt.state, Threads: tt.threads}).Dead(), tt.want, "%c with %d threads: dead", tt.state, tt.threads)
	}
}

func TestParseSyscall(t *testing.T) {
	got := ParseSyscall([]byte("1 0x3 0xffffffffffffffff 0x7ffd1e2c 0x0 0x0 0xffffffffffffffff 0x7ffd 0x7f01\n"))
	if got.Number != 1 || got.FD() != 3 || got.Args[1] != math.MaxUint64 {
		t.Errorf("%+v", got)
	}
	for _, line := range []string{"", "running\n", "-1 0x7ffd 0x7f01\n", "-1 0x1 0x1 0x1 0x1 0x1 0x1 0x1 0x1", "7 1 2 3 4 5 6 7 8", "7 0x1"} {
		check.Equal(t, ParseSyscall([]byte(line)), Syscall{Number: -1}, "%q", line)
	}
}

// TestIsIdle: the system call decides, and the kernel function only where that cannot.
func TestIsIdle(t *testing.T) {
	for _, tt := range []struct {
		call    int
		channel string
		want    bool
	}{
		{unix.SYS_FUTEX, "futex_wait_queue", true}, {unix.SYS_WAIT4, "do_wait", true},
		{unix.SYS_READ, "wait_woken", true}, {unix.SYS_READ, "folio_wait_bit_common", false},
		{unix.SYS_WRITE, "wait_woken", false}, {unix.SYS_OPENAT, "wait_for_partner", false},
		{unix.SYS_EXECVE, "schedule_timeout", false}, {unix.SYS_FLOCK, "", false}, {unix.SYS_CONNECT, "wait_woken", false},
		{unix.SYS_MOUNT, "", false}, {unix.SYS_BPF, "schedule_timeout", true}, {-1, "", true}, {-1, "anon_pipe_write", false},
	} {
		line := fmt.Sprintf("%d 0x1 0x1 0x1 0x0 0x0 0x0 0x1 0x1\n", tt.call)
		check.Equal(t, ParseSyscall([]byte(line)).IsIdle(tt.channel), tt.want, "call %d in %q: idle", tt.call, tt.channel)
	}
}

const someFDInfo = "pos:\t0\nflags:\t0100002\nmnt_id:\t29\nino:\t5678\n" +
	"lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:00:5678 0 EOF\nPid:\t77\nfuse_connection:\t43\n"

func TestFDInfo(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]FDInfo{
		someFDInfo: {
			Flags: 0o100002, MountID: 29, PID: 77, FuseConnection: 43, Terminal: -1, Inode: "5678", Permits: true,
			Locks: []Lock{{PID: -1, File: "fe:00:5678"}},
		},
		"flags:\tx\nPid:\t-1\nlock:\tx\n":                {FuseConnection: -1, Terminal: -1, Permits: true},
		"fanotify flags:4 event-flags:0\n":               {FuseConnection: -1, Terminal: -1, Permits: true},
		"fanotify flags:10 event-flags:0\nlock:\t1: x\n": {FuseConnection: -1, Terminal: -1},
	} {
		evidencetest.WriteTree(t, dir, map[string]string{"1/fdinfo/3": content})
		if got := ReadFDInfo(dir, 1, 3); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v", content, got)
		}
	}
	for content, want := range map[string]int{"Name:\tx\nTracerPid:\t42\n": 42, "TracerPid:\t-3\nTracerPid\n": 0} {
		evidencetest.WriteTree(t, dir, map[string]string{"1/status": content})
		tracer, err := TracerPID(dir, 1)
		check.Equal(t, tracer, want, "%q: %v", content, err)
	}
}

// TestLocks: the holder of the lock that a process waits for, 0 where it is not known.
func TestLocks(t *testing.T) {
	const unreadable = "1: FLOCK  ADVISORY  WRITE 5 a:1:1 0 EOF\n2: FLOCK\n2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF\n"
	for _, tt := range []struct {
		name, locks string
		pid, holder int
		file        string
	}{
		{"waits", evidencetest.Locks, 1000, 2000, "fe:00:5678"},
		{"waits behind another", evidencetest.Locks, 1500, 2000, "fe:00:5678"},
		{"holds", evidencetest.Locks, 2000, 0, ""},
		{"has nothing to do with any", evidencetest.Locks, 1, 0, ""},
		{"an open file description holds it, which has no process", evidencetest.Locks, 1600, 0, "fe:00:99"},
		{"the holder's line is unreadable", unreadable, 6, 0, "a:1:2"},
		{"no holder's line", "2: -> FLOCK  ADVISORY  WRITE 6 a:1:2 0 EOF", 6, 0, "a:1:2"},
		{"one thread waits for another", "1: FLOCK A W 10 a:1:1 0 EOF\n1: -> FLOCK A W 10 a:1:1 0 EOF\n", 10, 0, ""},
		{"a lease", "1: LEASE  BREAKING  READ 7 a:1:1 0 EOF\n1: -> LEASE  BREAKER   READ 6 <none>:0 0 EOF\n", 6, 7, "a:1:1"},
		{"no lease's line", "1: -> LEASE  BREAKER   READ 6 <none>:0 0 EOF\n", 6, 0, ""},
		{"empty", "", 6, 0, ""},
	} {
		var got Lock
		for _, l := range ParseLocks([]byte(tt.locks)) {
			if l.WaitsFor(tt.pid) {
				got = l
			}
		}
		if got.Holder != tt.holder || got.File != tt.file {
			t.Errorf("%s: %+v; want %d, %q", tt.name, got, tt.holder, tt.file)
		}
	}
}

const someMounts = `29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
43 29 0:43 / /mnt/with\040"blank" rw - fuse.sshfs host:/x rw
44 29 7:0 / /var/lib rw,relatime - ext4 /dev/loop0 rw
45 44 7:1 / /var/lib rw,relatime - xfs /dev/loop1 rw
no mount
`

func TestMounts(t *testing.T) {
	all, _ := appendMounts(nil, []byte(someMounts), true)
	if len(all) != 4 || all[1].Point != `/mnt/with\040"blank"` || all[1].Type != "fuse.sshfs" || all[1].Device != "0:43" {
		t.Fatalf("%+v", all)
	}
	for path, id := range map[string]int{
		"/": 29, "/etc/x": 29, `/mnt/with\040"blank"/f`: 43, `/mnt/with\040"blank"s`: 29, "/var/lib": 45, "/var/lib/x": 45, "/var/library": 29,
	} {
		if m, ok := MountOf(all, path); !ok || m.ID != id {
			t.Errorf("%s is on %+v, want mount %d", path, m, id)
		}
	}
	if m, ok := MountOf(nil, "/x"); ok {
		t.Errorf("%+v of no mounts", m)
	}
}

// FuzzParse gives any content to each parser: none panics or returns a number that
// cannot be.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		evidencetest.Locks, "1: ->", "->\n-> -> ->", evidencetest.StatLine(4242, "a) S 1 (b", 'S', 1, 99), ")(", "1 () \x00 0                0  0", "1000 2000 3\n",
		"72 0x3 0x7 0x7ffd1e2c 0x0 0x0 0x0 0x7ffd 0x7f01\n", someFDInfo, someMounts, "1 1 1:1 / /a\\040\\9 rw - x \\",
		"a\x00--id=x\x00-id", "Max open files            1024                 524288               files     \n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStat(b)
		if err != nil && s != (Process{}) || err == nil && (s.PID < 0 || s.PPID < 0 || !bytes.Contains(b, []byte("("+s.Comm+")"))) {
			t.Errorf("%q: %+v, %v", b, s, err)
		}
		if s := ParseSyscall(b); s.Number < -1 || s.FD() < -1 {
			t.Errorf("%q: %+v", b, s)
		}
		for _, l := range ParseLocks(b) {
			if l.PID < -1 || l.Holder < 0 || l.File == "" || !bytes.Contains(b, []byte(l.File)) {
				t.Errorf("%q: %+v", b, l)
			}
		}
		mounts, _ := appendMounts(nil, b, true)
		for _, m := range mounts {
			if len(m.Point) > 3*len(b) || m.ID < 0 {
				t.Errorf("%q: %+v", b, m)
			}
		}
		_, _ = MountOf(mounts, "/a")
		if v := ArgValue(SplitArgs(b), "id"); v != "" && !bytes.Contains(b, []byte(v)) {
			t.Errorf("%q has the id %q", b, v)
		}
		_ = number(b, "TracerPid", 10, 0)
	})
}
