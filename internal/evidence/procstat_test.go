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
	"time"
)

// statLine makes a line of /proc/PID/stat.
func statLine(pid int, comm string, state byte, ppid int, start uint64) string {
	return fmt.Sprintf("%d (%s) %c %d 1 1 0 -1 4194304 104 0 0 0 0 0 0 0 20 0 1 0 %d 3133440 418 18446744073709551615 0 0\n", pid, comm, state, ppid, start)
}

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"", "containerd", "tmux: server", "a) S 1 (b", ")", "((", "new\nline) R 7", "(sd-pam)"} {
		got, err := parseStat([]byte(statLine(4242, comm, 'D', 7, 1234)))
		if want := (procStat{pid: 4242, ppid: 7, comm: comm, state: 'D', start: 1234}); err != nil || got != want {
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
	for _, comm := range []string{"containerd", "tmux: server", "a) S 1 (b", "new\nline"} {
		f.Add([]byte(statLine(4242, comm, 'S', 1, 99)))
	}
	f.Add([]byte("1 (x) S"))
	f.Add([]byte(")("))
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

func TestBootTime(t *testing.T) {
	if got, err := bootTime("testdata/proc"); err != nil || got.Unix() != 1700000000 {
		t.Errorf("%v, %v", got, err)
	}
	dir := t.TempDir()
	if _, err := bootTime(dir); err == nil {
		t.Error("no error without a file")
	}
	for _, content := range []string{"", "cpu 1 2 3\n", "btime x\n", "btime \n"} {
		writeTree(t, dir, map[string]string{"stat": content})
		if got, err := bootTime(dir); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%q: %v, %v; want an error that names the file", content, got, err)
		}
	}
	// Live: this process was started after the boot and before now.
	boot, err := bootTime("/proc")
	if err != nil {
		t.Fatal(err)
	}
	s, err := readStat("/proc/self")
	if err != nil || s.pid != os.Getpid() || s.ppid != os.Getppid() {
		t.Fatalf("%+v, %v", s, err)
	}
	started := boot.Add(time.Duration(s.start) * time.Second / clockTicks)
	if age := time.Since(started); age < -2*time.Second || age > 24*time.Hour {
		t.Errorf("this process was started %s ago", age)
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
