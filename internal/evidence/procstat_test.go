package evidence

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/fuzzcorpus"
)

// statLine makes a line of /proc/PID/stat.
func statLine(pid int, comm string, state byte, ppid int, start uint64) string {
	return fmt.Sprintf("%d (%s) %c %d 1 1 0 -1 4194304 104 0 0 0 0 0 0 0 20 0 1 0 %d 3133440 418 18446744073709551615 0 0\n", pid, comm, state, ppid, start)
}

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"", "containerd", "tmux: server", "a) S 1 (b", ")", "((", "new\nline) R 7", "(sd-pam)"} {
		got, err := parseStat([]byte(statLine(4242, comm, 'D', 7, 1234)))
		if want := (procStat{pid: 4242, ppid: 7, comm: comm, state: 'D', threads: 1, start: 1234}); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", comm, got, err, want)
		}
	}
	whole := strings.TrimSuffix(statLine(1, "x", 'S', 1, 1), "\n")
	for _, line := range []string{
		"", "()", "(x) S", "1 (x", "1 x) S", ") 1 (x", "1 (x) SS" + strings.Repeat(" 1", 30), "x (x) S" + strings.Repeat(" 1", 30),
		"1 (x) S" + strings.Repeat(" 1", 18), "1 (x) S x" + strings.Repeat(" 1", 30), "1 (x) S" + strings.Repeat(" -1", 30),
		"-1" + whole[1:], "0" + whole[1:],
	} {
		if got, err := parseStat([]byte(line)); err == nil {
			t.Errorf("%q: %+v, want an error", line, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	fuzzcorpus.Add(f)
	for _, comm := range []string{"containerd", "tmux: server", "a) S 1 (b", "new\nline"} {
		f.Add([]byte(statLine(4242, comm, 'S', 1, 99)))
	}
	f.Add([]byte("1 (x) S"))
	f.Add([]byte(")("))
	f.Add([]byte("1 () \x00 0                0  0"))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := parseStat(line)
		if err != nil {
			if s != (procStat{}) {
				t.Errorf("%+v with an error", s)
			}
			return
		}
		if s.pid <= 0 || s.ppid < 0 || s.state == 0 || !bytes.Contains(line, []byte("("+s.comm+")")) {
			t.Errorf("%+v of %q", s, line)
		}
	})
}

// TestStartedAt: the age of a process is what counts, whatever the wall clock
// said when it was started.
func TestStartedAt(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		up    time.Duration
		ticks uint64
		age   time.Duration
	}{
		{up: time.Hour, ticks: 0, age: time.Hour},
		{up: time.Hour, ticks: 360000 - 250, age: 2500 * time.Millisecond},
		{up: time.Hour, ticks: 360001, age: 0},
		{up: time.Hour, ticks: math.MaxUint64, age: 0},
	} {
		if got := now.Sub(startedAt(now, tt.up, tt.ticks)); got != tt.age {
			t.Errorf("%s after boot, started at tick %d: %s old, want %s", tt.up, tt.ticks, got, tt.age)
		}
	}
	// Live: this process is younger than the system, and not by nothing.
	s, err := readStat("/proc", strconv.Itoa(os.Getpid()))
	if err != nil || s.pid != os.Getpid() || s.ppid != os.Getppid() || s.threads < 2 || s.dead() {
		t.Fatalf("%+v, %v", s, err)
	}
	if age := time.Since(startedAt(time.Now(), uptime(), s.start)); age <= 0 || age > time.Hour {
		t.Errorf("this process is %s old", age)
	}
}

// readStat reads the stat of a process.
func readStat(procfs, pid string) (procStat, error) {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return procStat{}, err
	}
	var r procReader
	return r.stat(procfs, n)
}

// TestProcReader: files longer than the buffer are read whole, and those beyond
// all measure not at all.
func TestProcReader(t *testing.T) {
	dir := t.TempDir()
	var r procReader
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000, maxProcFile - 1} {
		want := strings.Repeat("x", size)
		writeTree(t, dir, map[string]string{"f": want})
		if got, err := r.read(dir + "/f"); err != nil || string(got) != want {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
	}
	writeTree(t, dir, map[string]string{"f": strings.Repeat("x", maxProcFile+1)})
	if got, err := r.read(dir + "/f"); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("%d bytes, %v; want an error that names the file", len(got), err)
	}
	if _, err := r.read(dir + "/none"); !gone(err) || !strings.Contains(err.Error(), dir) {
		t.Errorf("no such file: %v", err)
	}
	if _, err := r.read(dir); err == nil || gone(err) {
		t.Errorf("a directory: %v", err)
	}
}

// TestDead: the first thread may end before the others.
func TestDead(t *testing.T) {
	for _, tt := range []struct {
		state   byte
		threads int
		want    bool
	}{{'S', 1, false}, {'Z', 1, true}, {'Z', 0, true}, {'Z', 2, false}, {'X', 1, true}, {'D', 1, false}} {
		if s := (procStat{state: tt.state, threads: tt.threads}); s.dead() != tt.want {
			t.Errorf("%c with %d threads: dead %v", tt.state, tt.threads, s.dead())
		}
	}
}

func TestNumbers(t *testing.T) {
	dir := t.TempDir()
	for i := 1; i <= 600; i++ {
		writeTree(t, dir, map[string]string{strconv.Itoa(i): ""})
	}
	writeTree(t, dir, map[string]string{"self": "", "0": "", "-3": "", "1x": "", "99999999999999999999": ""})
	got, err := numbers(dir, 10_000)
	slices.Sort(got)
	if err != nil || len(got) != 600 || got[0] != 1 || got[599] != 600 {
		t.Errorf("%d numbers, %v", len(got), err)
	}
	for _, limit := range []int{0, 1, 255, 599} {
		if got, err := numbers(dir, limit); err != nil || len(got) != limit {
			t.Errorf("%d numbers at a limit of %d, %v", len(got), limit, err)
		}
	}
	if _, err := numbers(filepath.Join(dir, "none"), 1); err == nil {
		t.Error("no error for no directory")
	}
}

// writeTree writes files below dir, by their paths.
func writeTree(tb testing.TB, dir string, files map[string]string) {
	tb.Helper()
	for name, content := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
}

// copyTree returns a copy of a fixture tree that a test may change.
func copyTree(tb testing.TB, dir string) string {
	tb.Helper()
	out := tb.TempDir()
	if err := os.CopyFS(out, os.DirFS(dir)); err != nil {
		tb.Fatal(err)
	}
	return out
}
