package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/must"
)

// TestOpen: a directory that another user can write to is refused.
func TestOpen(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode fs.FileMode
		uid  int
		gid  int
		want error
	}{
		{"own", 0o700, os.Geteuid(), os.Getegid(), nil},
		{"readable", 0o755, os.Geteuid(), os.Getegid(), nil},
		{"writable by its group", 0o775, os.Geteuid(), os.Getegid(), nil},
		{"writable by another group", 0o770, os.Geteuid(), 4711, ErrForeign},
		{"writable by others", 0o757, os.Geteuid(), os.Getegid(), ErrForeign},
		{"of another user", 0o700, 4711, os.Getegid(), ErrForeign},
		{"sticky", 0o777 | fs.ModeSticky, os.Geteuid(), os.Getegid(), ErrForeign},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		must.Do(t, os.Mkdir(dir, 0o700))
		if err := os.Chown(dir, tt.uid, tt.gid); err != nil {
			t.Skip("only root can make a directory of another user")
		}
		must.Do(t, os.Chmod(dir, tt.mode))
		root, err := Make(dir)
		if !errors.Is(err, tt.want) || (root == nil) != (tt.want != nil) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if root != nil {
			_ = root.Close()
		}
	}
}

// TestBelow: a directory below is no link, even to a directory of root.
func TestBelow(t *testing.T) {
	parent, err := Open(t.TempDir())
	must.Do(t, err)
	defer parent.Close()
	must.Do(t, os.Symlink("/etc", filepath.Join(parent.Name(), "link")))
	must.Do(t, os.WriteFile(filepath.Join(parent.Name(), "file"), nil, 0o600))
	for _, tt := range []struct {
		name       string
		create, ok bool
	}{{"none", false, false}, {"none", true, true}, {"none", false, true}, {"link", true, false}, {"file", true, false}} {
		root, err := Below(parent, tt.name, tt.create)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		if root != nil {
			_ = root.Close()
		}
	}
}

// TestPlanted: links are not followed, and a FIFO or a device is not waited for.
func TestPlanted(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "shadow")
	must.Do(t, os.WriteFile(outside, []byte("precious"), 0o600))
	dir := t.TempDir()
	root, err := Open(dir)
	must.Do(t, err)
	defer root.Close()
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Do(t, os.Symlink(outside, at("link")))
	must.Do(t, os.Symlink("regular", at("inside")))
	must.Do(t, unix.Mkfifo(at("fifo"), 0o600))
	must.Do(t, os.Mkdir(at("dir"), 0o700))
	must.Do(t, os.Symlink(outside, at(Draft)))
	must.Do(t, Write(root, "regular", []byte("12345"), true))
	for name, want := range map[string]error{
		"link": ErrIrregular, "inside": ErrIrregular, "fifo": ErrIrregular, "dir": ErrIrregular,
		"none": fs.ErrNotExist, "regular": nil,
	} {
		b, err := Read(root, name, 5)
		if !errors.Is(err, want) || (string(b) == "12345") != (want == nil) {
			t.Errorf("%s: %q, %v, want %v", name, b, err, want)
		}
	}
	if _, err := Read(root, "regular", 4); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a file beyond the limit: %v", err)
	}
	must.Do(t, Write(root, "link", []byte("new"), false))
	if b, err := os.ReadFile(outside); err != nil || string(b) != "precious" {
		t.Errorf("a planted link was followed: %q, %v", b, err)
	}
}
