package proc

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// TestReadRecord: a record is read whole, also one that is longer than the buffer.
func TestReadRecord(t *testing.T) {
	var r Reader
	path := filepath.Join(t.TempDir(), "stat")
	for _, n := range []int{0, 300, 4 << 10, 20_000} {
		want := bytes.Repeat([]byte("x"), n)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := r.ReadRecord(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: read %d, %v", n, len(got), err)
		}
	}
	s, err := r.ReadRecord("/proc/self/stat")
	if err != nil || !bytes.HasSuffix(s, []byte("\n")) {
		t.Errorf("%q, %v", s, err)
	}
}

// TestKept: what is kept open says what is there now, also of another process by the
// same pid; and at most Keep files stay open.
func TestKept(t *testing.T) {
	r := Reader{Keep: 2}
	defer r.Close()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(name, want string) {
		t.Helper()
		if got, err := r.Read(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for _, text := range []string{"one", "another, longer", "3"} {
		for _, name := range []string{"a", "b", "c"} {
			write(name, text)
			expect(name, text)
			expect(name, text)
		}
		if len(r.kept) == 0 || len(r.kept) > r.Keep {
			t.Errorf("%d files are kept open, want at most %d", len(r.kept), r.Keep)
		}
	}
	// More files than are kept do not take each other's place. One that is no longer
	// read makes room in the end.
	for range 3 * unusedReads {
		for _, name := range []string{"a", "b", "c"} {
			before := maps.Clone(r.kept)
			expect(name, "3")
			if len(before) == r.Keep && !maps.Equal(before, r.kept) {
				t.Fatalf("%v are kept open after %s, before it %v", r.kept, name, before)
			}
		}
	}
	for range 3 * unusedReads {
		expect("c", "3")
		expect("b", "3")
	}
	if r.kept[filepath.Join(dir, "a")] != nil || len(r.kept) != r.Keep {
		t.Errorf("%v are kept open, want b and c", r.kept)
	}
	r.Close()
	// The directory of a process that has ended leads elsewhere, or nowhere.
	c := exec.Command("sleep", "100")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "process")
	if err := os.Symlink(filepath.Join("/proc", strconv.Itoa(c.Process.Pid)), link); err != nil {
		t.Fatal(err)
	}
	stat := filepath.Join(link, "stat")
	if _, err := r.ReadRecord(stat); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.kept[stat]; !ok {
		t.Fatal("the file of a process is not kept open")
	}
	_ = c.Process.Kill()
	_ = c.Wait()
	if b, err := r.ReadRecord(stat); !Gone(err) {
		t.Errorf("of a process that has ended: %q, %v", b, err)
	}
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self", link); err != nil {
		t.Fatal(err)
	}
	if b, err := r.ReadRecord(stat); err != nil || !bytes.HasPrefix(b, []byte(strconv.Itoa(os.Getpid())+" ")) {
		t.Errorf("of the next process: %q, %v", b, err)
	}
}
