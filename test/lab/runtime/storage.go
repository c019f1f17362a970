//go:build e2e

package runtime

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
)

// fewInodes is how many inodes the small file systems have: pods run with a few
// hundred, and the rest is soon used up.
const fewInodes = 4096

// SmallRoot mounts a file system of its own below containerd's root directory, of 64 MiB and few inodes: "tmpfs", or
// "ext4" on a loop device, which is read-only after an error. It is for a containerd that has not been started yet.
func (c *Containerd) SmallRoot(kind string) *FileSystem {
	c.TB.Helper()
	return c.small(kind, filepath.Join(filepath.Dir(c.Socket), "root"))
}

// SmallState is SmallRoot for the directory of containerd's state, on tmpfs.
func (c *Containerd) SmallState() *FileSystem {
	c.TB.Helper()
	return c.SmallDir(filepath.Join(filepath.Dir(c.Socket), "state"))
}

// SmallDir is SmallState for another directory, as the runtime sees it, which it makes.
func (c *Containerd) SmallDir(dir string) *FileSystem {
	c.TB.Helper()
	return c.small("tmpfs", dir)
}

func (c *Containerd) small(kind, dir string) *FileSystem {
	c.TB.Helper()
	lab.RequirePrograms(c.TB, "mkfs.ext4", "nsenter", "mount")
	f := &FileSystem{t: c.TB, path: dir, ns: c.Namespace.Pid(), dir: fmt.Sprintf("/proc/%d/root%s", c.Namespace.Pid(), dir)}
	f.inside("mkdir", "-p", dir)
	if kind == "tmpfs" {
		f.inside("mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes="+strconv.Itoa(fewInodes), "tmpfs", dir)
	} else {
		f.mountNew()
	}
	return f
}

// mountNew makes an ext4 file system and mounts it.
func (f *FileSystem) mountNew() {
	f.t.Helper()
	image := filepath.Join(lab.Dir(f.t), "disk.img")
	lab.Must(f.t, os.WriteFile(image, nil, 0o600))
	lab.Must(f.t, os.Truncate(image, 64<<20))
	if out, err := exec.Command("mkfs.ext4", "-q", "-N", strconv.Itoa(fewInodes), image).CombinedOutput(); err != nil {
		lab.Unable(f.t, fmt.Sprintf("no file system can be made: %v: %s", err, out))
	}
	f.inside("mount", "-o", "loop,errors=remount-ro", image, f.path)
}

// Replace mounts a new file system in place of an ext4 one.
func (f *FileSystem) Replace() {
	f.t.Helper()
	f.Unmount()
	f.mountNew()
}

// Unmount takes the file system away: what lies below it is seen again.
func (f *FileSystem) Unmount() {
	f.t.Helper()
	f.inside("umount", "-l", f.path)
}

// inside runs a command in the namespaces of the file system's runtime.
func (f *FileSystem) inside(argv ...string) {
	f.t.Helper()
	argv = append([]string{"nsenter", "--mount", "--pid", "--target", strconv.Itoa(f.ns)}, argv...)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		lab.Unable(f.t, fmt.Sprintf("%s: %v: %s", strings.Join(argv, " "), err, out))
	}
}

// Path is where the file system is mounted, as its runtime sees it.
func (f *FileSystem) Path() string { return f.path }

// Fill writes until there is no space left, and returns what makes it again.
func (f *FileSystem) Fill() (free func()) {
	f.t.Helper()
	filler := filepath.Join(f.dir, "filler")
	file, err := os.Create(filler)
	lab.Must(f.t, err)
	block := make([]byte, 1<<20)
	for err == nil || len(block) > 4096 {
		if err != nil {
			block = block[:len(block)/2]
		}
		_, err = file.Write(block)
	}
	_ = file.Close()
	if !errors.Is(err, unix.ENOSPC) {
		f.t.Fatalf("lab: fill %s: %v", f.path, err)
	}
	return f.undo(func() error { return os.Remove(filler) })
}

// FillInodes makes files until there is no inode left, and returns what makes them again.
func (f *FileSystem) FillInodes() (free func()) {
	f.t.Helper()
	dir := filepath.Join(f.dir, "fillers")
	err := os.Mkdir(dir, 0o755)
	for n := 0; err == nil; n++ {
		err = os.WriteFile(filepath.Join(dir, strconv.Itoa(n)), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) {
		f.t.Fatalf("lab: use the inodes of %s: %v", f.path, err)
	}
	return f.undo(func() error { return os.RemoveAll(dir) })
}

// ReadOnly mounts the file system once more over itself, read-only, and returns what takes that away. What the
// runtime has open stays writable, as it would keep the kernel from making the first mount read-only.
func (f *FileSystem) ReadOnly() (writable func()) {
	f.t.Helper()
	f.inside("mount", "--bind", f.path, f.path)
	f.inside("mount", "-o", "remount,bind,ro", f.path)
	return f.undo(func() error {
		f.inside("umount", "-l", f.path)
		return nil
	})
}

// Fail makes the kernel find an error in the file system, after which it allows no further writes.
func (f *FileSystem) Fail() {
	f.t.Helper()
	out, err := exec.Command("findmnt", "-N", strconv.Itoa(f.ns), "-n", "-o", "SOURCE", f.path).Output()
	if err != nil {
		lab.Unable(f.t, fmt.Sprintf("findmnt %s: %v", f.path, err))
	}
	device := filepath.Base(strings.TrimSpace(string(out)))
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", device, "trigger_fs_error"), []byte("tried by a test"), 0); err != nil {
		lab.Unable(f.t, err.Error())
	}
}

func (f *FileSystem) undo(do func() error) func() {
	once := sync.OnceFunc(func() {
		if err := do(); err != nil {
			f.t.Errorf("lab: repair %s: %v", f.path, err)
		}
	})
	f.t.Cleanup(once)
	return once
}
