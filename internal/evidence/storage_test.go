package evidence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// storageTree is a /proc and /sys with one process: its name, its open files and its
// mounts.
func storageTree(t *testing.T, comm, mounts string, open ...string) (procfs, sysfs string) {
	t.Helper()
	procfs, sysfs = t.TempDir(), t.TempDir()
	evidencetest.WriteTree(t, procfs, map[string]string{
		"1000/stat": evidencetest.StatLine(1000, comm, 'S', 1, 100), "1000/mountinfo": mounts,
		"1000/fd/0": "", "1000/root/data/file": "", "1000/root/state/file": "",
	})
	for i, file := range open {
		must.Do(t, os.Symlink(file, filepath.Join(procfs, "1000/fd", string(rune('3'+i)))))
	}
	evidencetest.WriteTree(t, sysfs, map[string]string{"devices/virtual/block/loop0/x": "", "dev/block/x": "", "fs/ext4/loop0/errors_count": "0\n", "fs/ext4/loop0/reserved_clusters": "0\n"})
	must.Do(t, os.Symlink("../../devices/virtual/block/loop0", filepath.Join(sysfs, "dev/block/7:0")))
	return procfs, sysfs
}

const storageMountTable = `500 1 254:0 / / rw,relatime - ext4 /dev/vda rw
501 500 7:0 / /data rw,relatime - ext4 /dev/loop0 rw,errors=remount-ro
502 500 0:40 / /state rw,nosuid - tmpfs tmpfs rw,size=64k
`

func gatherStorage(t *testing.T, s *storage) []facts.FileSystem {
	t.Helper()
	v, err := s.gather(t.Context())
	must.Do(t, err)
	return v.FileSystems
}

// TestStorage finds containerd's directories by its open files, and the effect of an
// error of the file system on one.
func TestStorage(t *testing.T) {
	procfs, sysfs := storageTree(t, "containerd", storageMountTable,
		"/data/io.containerd.metadata.v1.bolt/meta.db", "/state/io.containerd.runtime.v2.task/k8s.io/1f0a/log", "/state/io.containerd.runtime.v2.task/k8s.io/2b0c/log", "socket:[12]")
	pids := []int{1000, 0}
	s := &storage{procfs: procfs, sysfs: sysfs, table: proc.NewTable(procfs), pids: func() []int { return pids }, isCalm: never}
	all := gatherStorage(t, s)
	must.Equal(t, len(all), 2, "%+v; want root and state", all)
	var st unix.Statfs_t
	must.Do(t, unix.Statfs(procfs, &st))
	root, state := all[0], all[1]
	if root.Directory != "/data" || root.Use != "root" || root.Device != "/dev/loop0" || root.Type != "ext4" || root.ReadOnly || root.FreeBytes == 0 || root.Bytes != int64(st.Blocks)*st.Bsize {
		t.Errorf("%+v", root)
	}
	if state.Directory != "/state" || state.Use != "state" || state.Type != "tmpfs" || state.FreeBytes <= 0 {
		t.Errorf("%+v", state)
	}

	// The mounts are read again when the file system has counted an error.
	broken := strings.Replace(storageMountTable, "errors=remount-ro", "errors=remount-ro,emergency_ro", 1)
	evidencetest.WriteTree(t, procfs, map[string]string{"1000/mountinfo": broken})
	if all := gatherStorage(t, s); all[0].ReadOnly {
		t.Errorf("the mounts were read again without need: %+v", all[0])
	}
	evidencetest.WriteTree(t, sysfs, map[string]string{"fs/ext4/loop0/errors_count": "1\n"})
	if all := gatherStorage(t, s); !all[0].ReadOnly || all[0].Option != "emergency_ro" || all[1].ReadOnly {
		t.Errorf("%+v", all)
	}

	// What ext4 keeps for itself is not free.
	evidencetest.WriteTree(t, sysfs, map[string]string{"fs/ext4/loop0/reserved_clusters": fmt.Sprintln(st.Blocks)})
	if all := gatherStorage(t, s); all[0].FreeBytes != 0 || all[1].FreeBytes == 0 {
		t.Errorf("%+v", all)
	}

	must.Do(t, os.RemoveAll(filepath.Join(procfs, "1000")))
	if _, err := s.gather(t.Context()); !errors.Is(err, ErrNoData) {
		t.Errorf("the process has ended: %v", err)
	}
	pids = nil
	if _, err := s.gather(t.Context()); !errors.Is(err, ErrNoData) {
		t.Errorf("no process: %v", err)
	}
}

// TestStorageDirectories finds CRI-O's directories by its mounts, and cri-dockerd's by its arguments. The
// mounts of a process with another name are not its own.
func TestStorageDirectories(t *testing.T) {
	mounts := `501 500 0:40 /overlay /data/overlay rw - tmpfs tmpfs rw
502 500 0:41 / /data/overlay/be02/merged rw - overlay overlay rw,lowerdir=/data/overlay/l/A
503 500 0:42 / /state/overlay-containers/7491/userdata/shm rw - tmpfs shm rw
`
	for _, tt := range []struct{ comm, args, want string }{
		{"crio", "", "/data root, /state state, "},
		{"containerd", "", ""},
		{"cri-dockerd", "--cri-dockerd-root-directory=/data", "/data root, "},
		{"cri-dockerd", "", "/var/lib/cri-dockerd root, "},
	} {
		procfs, sysfs := storageTree(t, tt.comm, mounts)
		evidencetest.WriteTree(t, procfs, map[string]string{
			"1000/cmdline": tt.comm + "\x00" + tt.args + "\x00", "1000/root/var/lib/cri-dockerd/sandbox/x": "",
		})
		s := &storage{procfs: procfs, sysfs: sysfs, table: proc.NewTable(procfs), pids: func() []int { return []int{1000} }, isCalm: never}
		v, err := s.gather(t.Context())
		got := ""
		if err == nil {
			for _, f := range v.FileSystems {
				got += f.Directory + " " + f.Use + ", "
			}
		}
		check.Equal(t, got, tt.want, "%s %s: %v", tt.comm, tt.args, err)
		check.Equal(t, errors.Is(err, ErrNoData), tt.want == "", "%s: no directory: %v", tt.comm, err)
	}
}

// TestStorageOfTheDead: a full or read-only directory may be why the runtime ended, so its directories are kept,
// as its shims see them where it had mounts of its own.
func TestStorageOfTheDead(t *testing.T) {
	shutDown := strings.Replace(storageMountTable, "rw,errors=remount-ro", "rw,shutdown", 1)
	for name, witness := range map[string]int{"the node's mounts": 1, "mounts of its own": 1001} {
		t.Run(name, func(t *testing.T) {
			procfs, sysfs := storageTree(t, "containerd", storageMountTable, "/data/io.containerd.metadata.v1.bolt/meta.db")
			namespace(t, procfs, 1000, "mnt:[7]")
			pids := []int{1000, 0}
			s := &storage{procfs: procfs, sysfs: sysfs, table: proc.NewTable(procfs), pids: func() []int { return pids }, isCalm: never}
			alive := gatherStorage(t, s)
			evidencetest.WriteTree(t, procfs, map[string]string{
				"1/mountinfo": "500 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n", "1/root/data/file": "",
				"sys/fs/mount-max": "100000\n",
				"1/stat":           evidencetest.StatLine(1, "systemd", 'S', 0, 1),
				"1001/stat":        evidencetest.StatLine(1001, "containerd-shim", 'S', 1, 1),
			})
			if witness != 1 {
				namespace(t, procfs, witness, "mnt:[7]")
			}
			evidencetest.WriteTree(t, procfs, map[string]string{
				fmt.Sprintf("%d/mountinfo", witness): shutDown, fmt.Sprintf("%d/root/data/file", witness): "",
			})
			must.Do(t, os.RemoveAll(filepath.Join(procfs, "1000")))
			pids = []int{0, 0}
			dead := gatherStorage(t, s)
			if len(alive) != 1 || len(dead) != 1 || dead[0].Directory != "/data" || !dead[0].ReadOnly || dead[0].Option != "shutdown" {
				t.Errorf("alive %+v, dead %+v", alive, dead)
			}
			if again := gatherStorage(t, s); len(again) != 1 {
				t.Errorf("the second sample has %+v", again)
			}
		})
	}
}

// namespace puts a process into a mount namespace.
func namespace(t *testing.T, procfs string, pid int, name string) {
	t.Helper()
	dir := filepath.Join(procfs, fmt.Sprint(pid), "ns")
	must.Do(t, os.MkdirAll(dir, 0o755))
	must.Do(t, os.Symlink(name, filepath.Join(dir, "mnt")))
}
