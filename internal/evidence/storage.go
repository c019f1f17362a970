package evidence

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	// storageInterval is the time between two searches for the directories of a process:
	// on a full node reading its mounts takes milliseconds.
	storageInterval = 30 * time.Second
	// maxMountinfo bounds the mount table, in bytes.
	maxMountinfo = 4 << 20
)

// storageMarks are parts of the paths of a runtime's open files and mounts. What stands
// before one is a directory of the runtime, independent of its configuration.
var storageMarks = []struct{ comm, mark, use string }{
	{"containerd", "/io.containerd.metadata.v1.bolt/", "root"},
	{"containerd", "/io.containerd.runtime.v2.task/", "state"},
	{"dockerd", "/volumes/metadata.db", "root"},
	{"crio", "/overlay-containers/", "state"},
	{"crio", "/overlay/", "root"}, // the directory itself is a mount, too
}

// storage is the source about the file systems of the runtime's directories.
type storage struct {
	procfs, sysfs string
	table         *node.Table
	pids          func() []int

	searched time.Time
	of       []int // the processes that were searched
	dirs     []storageDir
}

// storageDir is one directory of a runtime, with its mount and ext4's count of errors when
// the mount table was read.
type storageDir struct {
	pid       int
	path, use string
	mount     node.Mount
	errors    int64
}

// newStorage returns the source about the file systems on which the processes keep
// containers' data, each second while one is full or read-only. statfs(2) can hang on a
// dead mount: it is abandoned then.
//
// The directories are those in which a process has its databases open or its
// containers mounted. Reading that, and statfs through /proc/PID/root, takes
// CAP_SYS_PTRACE: without it the source has nothing to report.
func newStorage(s *storage) *Watch[health.Storage] {
	return NewWatch(Spec[health.Storage]{
		Name: "storage", Every: 4, Timeout: 2 * time.Second, Again: (*health.Storage).Unwritable,
		Gather: s.gather, Store: func(e *health.Evidence, v *health.Storage) { e.Storage = v },
	})
}

func (s *storage) gather(context.Context) (*health.Storage, error) {
	out := &health.Storage{At: time.Now()}
	// An ext4 file system is read-only after an error, and statfs does not say so: its mount does.
	broken := func(d storageDir) bool { return s.ext4(d.mount, "errors_count") != d.errors }
	pids := s.pids()
	if out.At.Sub(s.searched) >= storageInterval || !slices.Equal(pids, s.of) || slices.ContainsFunc(s.dirs, broken) {
		s.searched, s.of, s.dirs = out.At, pids, nil
		for _, pid := range pids {
			s.search(pid)
		}
	}
	for _, d := range s.dirs {
		f, err := s.stat(d)
		switch {
		case err == nil:
			out.FileSystems = append(out.FileSystems, *f)
		case node.Gone(err):
			s.searched = time.Time{} // the process has ended
		case !errors.Is(err, fs.ErrPermission):
			return nil, err
		}
	}
	if len(out.FileSystems) == 0 {
		return nil, ErrNoData
	}
	return out, nil
}

// search finds the directories of a process by its mounts and open files.
func (s *storage) search(pid int) {
	p, err := s.table.Alive(pid)
	if err != nil {
		return
	}
	b, _ := s.table.ReadSlow(node.Path(s.procfs, pid, "mountinfo"), maxMountinfo) // of nothing there is none
	mounts := node.ParseMounts(b)
	note := func(path string) {
		for _, m := range storageMarks {
			dir, _, found := strings.Cut(path, m.mark)
			known := slices.ContainsFunc(s.dirs, func(d storageDir) bool { return d.path == dir })
			if m.comm == p.Comm && found && !known && strings.HasPrefix(dir, "/") {
				mount, _ := node.MountOf(mounts, dir)
				s.dirs = append(s.dirs, storageDir{pid, dir, m.use, mount, s.ext4(mount, "errors_count")})
			}
		}
	}
	for _, m := range mounts {
		note(m.Point + "/")
	}
	_ = node.EachFD(s.procfs, pid, func(_ int, to string) bool { // what cannot be read shows nothing
		note(to)
		return true
	})
}

// stat asks about the file system of a directory, as the process sees it.
func (s *storage) stat(d storageDir) (*health.FileSystem, error) {
	var st unix.Statfs_t
	path := node.Path(s.procfs, d.pid, "root") + d.path
	if err := unix.Statfs(path, &st); err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	f := &health.FileSystem{
		Directory: d.path, Use: d.use, Device: d.mount.Source, Type: d.mount.Type,
		Bytes: int64(st.Blocks) * st.Bsize, FreeBytes: int64(st.Bfree) * st.Bsize, //nolint:gosec // far below 2^63
		Inodes: int64(st.Files), FreeInodes: int64(st.Ffree), //nolint:gosec // likewise
	}
	// The blocks that ext4 keeps for itself: statfs calls them free, and not even root can
	// have them.
	f.FreeBytes = max(0, f.FreeBytes-s.ext4(d.mount, "reserved_clusters")*st.Bsize)
	options := strings.Split(d.mount.Options, ",")
	for _, o := range []string{"ro", "emergency_ro"} { // the options by which nothing can be written
		if (st.Flags&unix.ST_RDONLY != 0 || o == "emergency_ro") && slices.Contains(options, o) {
			f.Option = o
		}
	}
	f.ReadOnly = st.Flags&unix.ST_RDONLY != 0 || f.Option != ""
	return f, nil
}

// ext4 returns a number that ext4 gives about a file system, 0 for another one.
func (s *storage) ext4(m node.Mount, name string) int64 {
	if m.Type != "ext4" {
		return 0
	}
	device, err := os.Readlink(filepath.Join(s.sysfs, "dev/block", m.Device))
	if err != nil {
		return 0
	}
	return max(0, node.Number(filepath.Join(s.sysfs, "fs/ext4", filepath.Base(device), name)))
}
