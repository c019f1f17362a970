package evidence

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	check.Equal(t, s.dirs[0].database, "/data/io.containerd.metadata.v1.bolt/meta.db", "of descriptor %d", s.dirs[0].fd)
	check.Equal(t, s.dirs[1].database, "", "a log comes and goes")
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

// TestStorageDirectories finds the directories of a runtime by its mounts, open files and arguments, and CRI-O's by
// those of its conmons, a file system once. The mounts of a process with another name are not its own, nor are the
// directories of podman's conmon, and a server that may hang is not asked.
func TestStorageDirectories(t *testing.T) {
	const mounts = `500 1 254:0 / / rw - ext4 /dev/vda rw
501 500 0:40 /overlay /data/overlay rw - tmpfs tmpfs rw
502 500 0:41 / /data/overlay/be02/merged rw - overlay overlay rw,lowerdir=/data/overlay/l/A
503 500 0:42 / /state/overlay-containers/7491/userdata/shm rw - tmpfs shm rw
504 500 0:43 / /run rw - tmpfs tmpfs rw
505 500 0:44 / /other rw - ext4 /dev/vdb rw
506 500 0:45 / /remote rw - nfs4 server:/ rw
507 505 0:44 /ro /other/ro ro - ext4 /dev/vdb rw
`
	const pinned = mounts + `508 500 0:46 / /pins rw - tmpfs tmpfs rw
509 508 0:4 net:[4026532] /pins/netns/1 rw - nsfs nsfs rw
`
	conmon := func(name string, args ...string) []string {
		return append([]string{"/usr/bin/conmon", "-c", "f00d", "-n", name}, args...)
	}
	const crio = "/data root, /state state, "
	for _, tt := range []struct {
		comm, args, mounts string
		conmon             []string
		open, flags        string
		want               string
	}{
		{comm: "crio", want: crio},
		{comm: "crio", mounts: pinned, want: crio + "/pins/netns namespaces, "},
		{
			comm: "crio", conmon: conmon("k8s_a", "--exit-dir", "/var/run/crio/exits", "--socket-dir-path", "/run/crio"),
			want: crio + "/run/crio/exits exits, ",
		},
		{comm: "crio", conmon: conmon("k8s_a", "-l", "/other/pods/a/b/0.log"), want: crio + "/other logs, "},
		{comm: "crio", conmon: conmon("k8s_a", "-l", "/other/ro/0.log", "-p", "/other/pid"), want: crio + "/other state, /other/ro logs, "},
		{comm: "crio", conmon: conmon("k8s_a", "-l", "0.log", "--exit-dir", "/run/gone"), want: crio},
		{comm: "crio", conmon: conmon("k8s_a", "-l", "/remote/0.log"), want: crio},
		{comm: "crio", conmon: conmon("web", "--exit-dir", "/other", "--exit-command", "/usr/bin/podman"), want: crio},
		{comm: "containerd", conmon: conmon("k8s_a", "--exit-dir", "/run/crio/exits")},
		{comm: "containerd", open: "/other/pods/0.log", flags: "0102001", want: "/other open files, "},
		{comm: "containerd", open: "/other/pods/0.log", flags: "0100000"},
		{comm: "containerd", mounts: mounts + "508 504 0:46 / /run/netns rw - tmpfs tmpfs rw\n", want: "/run/netns namespaces, /run/containerd state, "},
		{comm: "dockerd", mounts: mounts + "508 504 0:43 / /run/docker/plugins ro - tmpfs tmpfs rw\n", want: "/run/docker state, /run/docker/plugins directory, "},
		{comm: "dockerd", args: "--exec-root=/run/crio", want: "/run/crio state, "},
		{comm: "cri-dockerd", args: "--cri-dockerd-root-directory=/data", want: "/data root, "},
		{comm: "cri-dockerd", want: "/var/lib/cri-dockerd root, "},
	} {
		var open []string
		if tt.open != "" {
			open = []string{tt.open}
		}
		procfs, sysfs := storageTree(t, tt.comm, cmp.Or(tt.mounts, mounts), open...)
		evidencetest.WriteTree(t, procfs, map[string]string{
			"1000/cmdline": tt.comm + "\x00" + tt.args + "\x00", "1000/root/var/lib/cri-dockerd/sandbox/x": "",
			"1000/root/run/crio/exits/x": "", "1000/root/run/docker/plugins/x": "", "1000/root/other/ro/x": "", "1000/root/remote/x": "", "1000/root/pins/netns/x": "",
			"1000/fdinfo/3": "flags:\t" + tt.flags + "\n",
		})
		if strings.Contains(tt.mounts, "/run/netns ") {
			evidencetest.WriteTree(t, procfs, map[string]string{"1000/root/run/netns/x": "", "1000/root/run/containerd/x": ""})
		}
		if tt.conmon != nil {
			process(t, procfs, 1001, 1, "conmon", 'S', tt.conmon...)
		}
		s := &storage{
			procfs: procfs, sysfs: sysfs, table: proc.NewTable(procfs), pids: func() []int { return []int{1000} },
			isCalm: never, sockets: namesOf("/run/crio/crio.sock"),
		}
		newStorage(s)
		v, err := s.gather(t.Context())
		got := ""
		if err == nil {
			for _, f := range v.FileSystems {
				got += f.Directory + " " + f.Use + ", "
			}
		}
		check.Equal(t, got, tt.want, "%s %s %s: %v", tt.comm, tt.args, tt.conmon, err)
		for _, d := range s.dirs {
			check.Equal(t, d.Bytes, 0, "%s has numbers of the search: a state that was read then would stay", d.Directory)
		}
		check.Equal(t, errors.Is(err, ErrNoData), tt.want == "", "%s: no directory: %v", tt.comm, err)
	}
}

// TestLostDirectory: a directory is lost when the path of the database that the process has open leads elsewhere, and it
// stays known by that path.
func TestLostDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(dir string, database *os.File) error
		want   bool
	}{
		"as it was":    {func(string, *os.File) error { return nil }, false},
		"another file": {func(dir string, _ *os.File) error { return os.WriteFile(dir+"/other.db", nil, 0o600) }, false},
		"moved":        {func(dir string, _ *os.File) error { return os.Rename(dir, dir+".moved") }, true},
		"removed":      {func(dir string, _ *os.File) error { return os.RemoveAll(dir) }, true},
		"in another's place": {func(dir string, _ *os.File) error {
			return errors.Join(os.Remove(dir+"/meta.db"), os.WriteFile(dir+"/meta.db", nil, 0o600))
		}, true},
		"closed, its descriptor is another file's": {func(_ string, database *os.File) error {
			other, err := os.Open(os.DevNull)
			must.Do(t, err)
			return errors.Join(unix.Dup3(int(other.Fd()), int(database.Fd()), unix.O_CLOEXEC), other.Close())
		}, false},
	} {
		dir := filepath.Join(t.TempDir(), "root")
		must.Do(t, os.Mkdir(dir, 0o755))
		f, err := os.Create(filepath.Join(dir, "meta.db"))
		must.Do(t, err)
		t.Cleanup(func() { _ = f.Close() })
		d := storageDir{FileSystem: facts.FileSystem{Directory: dir}, pid: os.Getpid(), database: f.Name(), fd: int(f.Fd())}
		must.Do(t, tt.change(dir, f))
		s := &storage{procfs: "/proc", sysfs: "/sys", table: proc.NewTable("/proc"), pids: func() []int { return []int{d.pid} }, isCalm: never}
		newStorage(s)
		s.dirs = []storageDir{d}
		v, err := s.gather(t.Context())
		isLost := err == nil && slices.ContainsFunc(v.FileSystems, func(f facts.FileSystem) bool { return f.Directory == dir && f.Lost })
		check.Equal(t, isLost, tt.want, "%s: %+v, %v", name, v, err)
	}
}

// TestHiddenState: the directory of the state is lost while a container's mount below it is still there and its path is not;
// not where the container has ended.
func TestHiddenState(t *testing.T) {
	const mount = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/abc/rootfs"
	for name, tt := range map[string]struct {
		isThere, isMounted, want bool
	}{
		"as it was":               {isThere: true, isMounted: true},
		"a mount on top":          {isMounted: true, want: true},
		"the container has ended": {},
	} {
		procfs := t.TempDir()
		table := "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
		if tt.isMounted {
			table += "9 8 0:3 / " + mount + " rw - overlay overlay rw\n"
		}
		files := map[string]string{"7/mountinfo": table}
		if tt.isThere {
			files["7/root"+filepath.Dir(mount)+"/config.json"] = ""
		}
		evidencetest.WriteTree(t, procfs, files)
		s := &storage{procfs: procfs, table: proc.NewTable(procfs), unread: proc.Unread{}}
		isHidden := s.isHidden(t.Context(), storageDir{pid: 7, mounted: mount})
		check.Equal(t, isHidden, tt.want, "%s", name)
	}
}

// TestStorageOfTheDead: a full or read-only directory may be why the runtime ended, so its directories are kept,
// as its shims see them where it had mounts of its own, and it is said where those cannot be told.
func TestStorageOfTheDead(t *testing.T) {
	const unreadable = "mounts that cannot be read"
	shutDown := strings.Replace(storageMountTable, "rw,errors=remount-ro", "rw,shutdown", 1)
	for name, viewer := range map[string]int{"the node's mounts": 1, "mounts of its own": 1001, unreadable: 1} {
		t.Run(name, func(t *testing.T) {
			procfs, sysfs := storageTree(t, "containerd", storageMountTable, "/data/io.containerd.metadata.v1.bolt/meta.db")
			namespace(t, procfs, 1000, "mnt:[7]")
			pids := []int{1000, 0}
			s := &storage{procfs: procfs, sysfs: sysfs, table: proc.NewTable(procfs), pids: func() []int { return pids }, isCalm: never}
			newStorage(s)
			alive := gatherStorage(t, s)
			if name == unreadable {
				evidencetest.WriteTree(t, procfs, map[string]string{"1001/ns/mnt/directory": ""})
			}
			evidencetest.WriteTree(t, procfs, map[string]string{
				"1/mountinfo": "500 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n", "1/root/data/file": "",
				"sys/fs/mount-max": "100000\n",
				"1/stat":           evidencetest.StatLine(1, "systemd", 'S', 0, 1),
				"1001/stat":        evidencetest.StatLine(1001, "containerd-shim", 'S', 1, 1),
			})
			if viewer != 1 {
				namespace(t, procfs, viewer, "mnt:[7]")
			}
			evidencetest.WriteTree(t, procfs, map[string]string{
				fmt.Sprintf("%d/mountinfo", viewer): shutDown, fmt.Sprintf("%d/root/data/file", viewer): "",
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
			_, said := s.unread["mount namespaces"]
			check.Equal(t, said, name == unreadable, "could not be read: %v", s.unread)
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

// TestDisksOf: its disk carries a partition too, and a mapped device has others below it.
func TestDisksOf(t *testing.T) {
	sysfs := t.TempDir()
	link := func(path, target string) {
		t.Helper()
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(sysfs, path)), 0o755))
		must.Do(t, os.Symlink(target, filepath.Join(sysfs, path)))
	}
	link("dev/block/254:0", "../../devices/virtual/block/dm-0")
	link("class/block/dm-0", "../../devices/virtual/block/dm-0")
	link("devices/virtual/block/dm-0/slaves/sda2", "../../../../pci/block/sda/sda2")
	link("class/block/sda2", "../../devices/pci/block/sda/sda2")
	link("class/block/sda", "../../devices/pci/block/sda")
	for _, tt := range []struct {
		mount proc.Mount
		want  []string
	}{
		{proc.Mount{Device: "254:0", Source: "/dev/mapper/vg-root"}, []string{"dm-0", "sda2", "sda"}},
		{proc.Mount{Device: "0:40", Source: "/dev/sda2"}, []string{"sda2", "sda"}}, // btrfs
		{proc.Mount{Device: "0:40", Source: "tmpfs"}, nil},
		{proc.Mount{Device: "0:41", Source: "/dev/mapper/vg-root"}, nil},
	} {
		if got := disksOf(sysfs, blockDevice(sysfs, tt.mount.Device), tt.mount.Source); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: %q, want %q", tt.mount, got, tt.want)
		}
	}
}
