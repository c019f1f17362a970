//go:build e2e

package runtime

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/test/lab"
)

// FileSystem is an ext4 file system of the test's own, on a loop device, which can
// be frozen: what writes to it then waits in the kernel.
type FileSystem struct {
	t    testing.TB
	dir  string // as the lab sees it
	path string // as its runtime sees it
	ns   int    // a process of its runtime's namespaces
}

// RootOnDisk mounts a file system of its own below containerd's root directory. It is for a containerd that has not
// been started yet; a dockerd behind it is started again.
func (c *Containerd) RootOnDisk() *FileSystem {
	c.TB.Helper()
	return c.onDisk(filepath.Join(filepath.Dir(c.Socket), "root"))
}

// RuncState is the directory in which containerd's runc keeps the state of its containers.
const RuncState = "/run/containerd/runc"

// RuncStateOnDisk is RootOnDisk for RuncState.
func (c *Containerd) RuncStateOnDisk() *FileSystem {
	c.TB.Helper()
	return c.onDisk(RuncState)
}

func (c *Containerd) onDisk(root string) *FileSystem {
	c.TB.Helper()
	lab.RequirePrograms(c.TB, "mkfs.ext4", "nsenter", "mount")
	image := filepath.Join(filepath.Dir(c.Socket), filepath.Base(root)+".img")
	lab.Must(c.TB, os.WriteFile(image, nil, 0o600))
	lab.Must(c.TB, os.Truncate(image, 512<<20))
	ns := strconv.Itoa(c.Namespace.Pid())
	if c.docker != nil {
		c.docker.Kill()
		defer func() {
			c.docker.Start()
			c.docker.importImage()
		}()
	}
	for _, argv := range [][]string{
		{"mkfs.ext4", "-q", image},
		{"nsenter", "--mount", "--target", ns, "sh", "-c", `mkdir -p "$1" && exec mount -o loop "$0" "$1"`, image, root},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			lab.Unable(c.TB, fmt.Sprintf("no file system can be mounted: %v: %s", err, out))
		}
	}
	return &FileSystem{t: c.TB, path: root, dir: filepath.Join("/proc", ns, "root", root)}
}

// Freeze freezes the file system, as fsfreeze does, and returns what thaws it.
func (f *FileSystem) Freeze() (thaw func()) {
	f.t.Helper()
	fd, err := unix.Open(f.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.IoctlSetInt(fd, fiFreeze, 0)
	}
	if err != nil {
		f.t.Fatalf("lab: freeze %s: %v", f.dir, err)
	}
	thaw = sync.OnceFunc(func() {
		if err := unix.IoctlSetInt(fd, fiThaw, 0); err != nil {
			f.t.Errorf("lab: thaw %s: %v", f.dir, err)
		}
		_ = unix.Close(fd)
	})
	f.t.Cleanup(thaw)
	return thaw
}

// FIFREEZE and FITHAW of linux/fs.h.
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// DeadFUSE mounts a FUSE file system whose server answers nothing, and returns what ends the server: processes that
// wait for it then get an error. It is mounted in containerd's namespace too.
func (c *Containerd) DeadFUSE(dir string) (end func()) {
	c.TB.Helper()
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		lab.Unable(c.TB, "no FUSE: "+err.Error())
	}
	// The mount is made by a child in containerd's namespace, with the server's descriptor as its fourth.
	script := `exec mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 dead "$0"`
	cmd := exec.Command("nsenter", "--mount", "--target", strconv.Itoa(c.Namespace.Pid()), "sh", "-c", script, dir)
	cmd.ExtraFiles = []*os.File{f}
	if out, err := cmd.CombinedOutput(); err != nil {
		lab.Unable(c.TB, fmt.Sprintf("no FUSE file system can be mounted: %v: %s", err, out))
	}
	end = sync.OnceFunc(func() { lab.Close(f) })
	c.TB.Cleanup(end)
	return end
}

// HoldLock has a process of its own take the lock of a file in the runtime's namespace,
// by "flock" or "lockf" (fcntl), and returns its pid and what ends it.
func (c *Containerd) HoldLock(call, path string) (holder int, release func()) {
	c.TB.Helper()
	lab.RequirePrograms(c.TB, "nsenter", "python3")
	script := "import fcntl, sys, time\nf = open(sys.argv[1], 'r+')\nfcntl." + call + "(f, fcntl.LOCK_EX)\nprint('held', flush=True)\ntime.sleep(3600)\n"
	target := strconv.Itoa(c.Namespace.Pid())
	cmd := exec.Command("nsenter", "--mount", "--target", target, "--", "python3", "-c", script, path)
	held := make(chan error, 1)
	lab.StartRead(c.TB, cmd, func(out io.Reader) {
		_, err := bufio.NewReader(out).ReadString('\n')
		held <- err
	})
	if err := <-held; err != nil {
		c.TB.Fatalf("lab: hold the lock of %s: %v", path, err)
	}
	return cmd.Process.Pid, func() { _ = cmd.Process.Kill() }
}

// Device is the number of the file system's device, "7:0".
func (f *FileSystem) Device() string {
	f.t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(f.dir, &s); err != nil {
		f.t.Fatalf("lab: %s: %v", f.dir, err)
	}
	return fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))
}
