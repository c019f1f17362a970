//go:build e2e

package systemd

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/plegd/plegd/test/lab"
)

const (
	// systemdInitEnv holds a systemdConfig in the environment of the process
	// that becomes systemd, and is unset everywhere else.
	systemdInitEnv = "PLEGD_LAB_SYSTEMD"
	systemdPath    = "/lib/systemd/systemd"
	// systemdTarget is what systemd boots to: none of the machine's own services starts.
	systemdTarget = "plegd-e2e.target"
)

var _ = lab.AddRole(systemdInitEnv, systemdInitMain)

// systemdConfig says what the process that becomes systemd is to prepare.
type systemdConfig struct {
	Dir   string
	Files []File
}

// systemdInitMain builds systemd's file system and becomes systemd. It returns only when that fails.
func systemdInitMain() int {
	// A namespace belongs to a thread until the program is replaced.
	runtime.LockOSThread()
	// The end of the input says that this process is in its cgroups.
	_, _ = io.Copy(io.Discard, os.Stdin)
	err := becomeSystemd()
	fmt.Fprintln(os.Stderr, "become systemd:", err)
	return 1
}

func becomeSystemd() error {
	var config systemdConfig
	if err := json.Unmarshal([]byte(os.Getenv(systemdInitEnv)), &config); err != nil {
		return err
	}
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("make a cgroup namespace: %w", err)
	}
	root := filepath.Join(config.Dir, "root")
	for _, step := range []func() error{
		func() error { return mountRoot(config.Dir, root) },
		func() error { return mountDev(root + "/dev") },
		func() error { return mountCgroups(root + "/sys/fs/cgroup") },
		func() error { return forgetMachine(root) },
		func() error { return writeFiles(root, config.Files) },
		func() error { return pivot(root) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return syscall.Exec(systemdPath, []string{"systemd", "--system", "--unit=" + systemdTarget}, []string{
		"container=plegd-e2e", "TERM=dumb", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	})
}

const quiet = syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC

// mount is mount(2) with an error that names the arguments.
func mount(source, target, kind string, flags uintptr, data string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", source, target, err)
	}
	return nil
}

// mountRoot mounts a writable overlay of the machine's root, and on it what a container's systemd finds.
func mountRoot(dir, root string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := mount("tmpfs", dir, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	upper, work := filepath.Join(dir, "upper"), filepath.Join(dir, "work")
	for _, d := range []string{upper, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"overlay", root, "overlay", 0, "lowerdir=/,upperdir=" + upper + ",workdir=" + work},
		{"proc", root + "/proc", "proc", quiet, ""},
		// The machine's settings are not this systemd's to change.
		{root + "/proc/sys", root + "/proc/sys", "", syscall.MS_BIND, ""},
		{"", root + "/proc/sys", "", syscall.MS_BIND | syscall.MS_REMOUNT | syscall.MS_RDONLY | quiet, ""},
		// Read-only, it tells systemd that it is in a container: no udev.
		{"sysfs", root + "/sys", "sysfs", quiet | syscall.MS_RDONLY, ""},
		{"tmpfs", root + "/run", "tmpfs", syscall.MS_NOSUID | syscall.MS_NODEV, "mode=755"},
		{"tmpfs", root + "/tmp", "tmpfs", syscall.MS_NOSUID | syscall.MS_NODEV, "mode=1777"},
	} {
		if err := mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
			return err
		}
	}
	return nil
}

// forgetMachine removes the machine's own configuration of runtimes from the overlay.
func forgetMachine(root string) error {
	for _, path := range []string{"/etc/cni/net.d", "/etc/crictl.yaml", "/etc/containerd", "/var/lib/kubelet"} {
		if err := os.RemoveAll(root + path); err != nil {
			return err
		}
	}
	return nil
}

func mountDev(dev string) error {
	if err := mount("tmpfs", dev, "tmpfs", syscall.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for _, d := range []struct {
		name         string
		major, minor int
	}{
		{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
	} {
		path := filepath.Join(dev, d.name)
		if err := syscall.Mknod(path, syscall.S_IFCHR|0o666, d.major<<8|d.minor); err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
		if err := os.Chmod(path, 0o666); err != nil { // independent of the umask
			return err
		}
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := mount("devpts", dev+"/pts", "devpts", syscall.MS_NOSUID|syscall.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return err
	}
	return mount("tmpfs", dev+"/shm", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=1777")
}

// mountCgroups gives systemd the machine's layout: v2, or v1 with its
// hierarchies. The roots are this process's own cgroups.
func mountCgroups(dir string) error {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(lines) == 1 && strings.HasPrefix(lines[0], "0::") {
		return mount("cgroup2", dir, "cgroup2", quiet, "")
	}
	if err := mount("tmpfs", dir, "tmpfs", quiet, "mode=755"); err != nil {
		return err
	}
	for _, line := range lines {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) != 3 {
			return fmt.Errorf("a line of /proc/self/cgroup is %q", line)
		}
		controllers := fields[1]
		name, isNamed := strings.CutPrefix(controllers, "name=")
		switch {
		case controllers == "":
			err = mount("cgroup2", filepath.Join(dir, "unified"), "cgroup2", quiet, "")
		case isNamed:
			err = mount("cgroup", filepath.Join(dir, name), "cgroup", quiet, "none,"+controllers+",xattr")
		default:
			err = mount("cgroup", filepath.Join(dir, controllers), "cgroup", quiet, controllers)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeFiles writes the test's files and those that keep the machine's own services out.
func writeFiles(root string, files []File) error {
	id := strings.Repeat("e2", 16)
	files = append([]File{
		{Path: "/etc/fstab"},
		{Path: "/etc/machine-id", Text: id + "\n"},
		{Path: "/etc/systemd/system/" + systemdTarget, Text: "[Unit]\nRequires=sysinit.target\nAfter=sysinit.target\nAllowIsolate=yes\n"},
	}, files...)
	for _, f := range files {
		b := []byte(f.Text)
		if f.From != "" {
			var err error
			if b, err = os.ReadFile(f.From); err != nil {
				return err
			}
		}
		if f.Mode == 0 {
			f.Mode = 0o644
		}
		path := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		// A link there may lead out of the overlay.
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.WriteFile(path, b, f.Mode); err != nil {
			return err
		}
	}
	return nil
}

// pivot makes root the root, and forgets the old one.
func pivot(root string) error {
	old := filepath.Join(root, ".old")
	if err := os.Mkdir(old, 0o700); err != nil {
		return err
	}
	if err := syscall.PivotRoot(root, old); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := syscall.Unmount("/.old", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the old root: %w", err)
	}
	if err := os.Remove("/.old"); err != nil {
		return err
	}
	// systemd does this by itself only outside of containers.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	return nil
}
