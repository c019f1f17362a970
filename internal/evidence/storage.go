package evidence

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	storageTimeout = 2 * time.Second
	// storageLook is the time between two looks at the descriptors and the mounts of
	// a process: on a full node reading its mounts takes milliseconds.
	storageLook = 30 * time.Second
	// storageFDs is how many descriptors are looked at. containerd and dockerd open
	// their databases first.
	storageFDs = 1024
	// storageMounts is how much of the mount table is read, in bytes.
	storageMounts = 4 << 20
)

// What a runtime keeps in a directory.
const (
	storageRoot  = "root"
	storageState = "state"
)

// storageMarks are files and mounts of a runtime below its directories. They show which
// directories it uses, independent of its configuration.
var storageMarks = []struct {
	comm, mark, use string
}{
	{"containerd", "/io.containerd.metadata.v1.bolt/", storageRoot},
	{"containerd", "/io.containerd.runtime.v2.task/", storageState},
	{"dockerd", "/volumes/metadata.db", storageRoot},
	{"crio", "/overlay-containers/", storageState},
	{"crio", "/overlay/", storageRoot}, // the directory itself is a mount, too
}

// storage is the source about the file systems of the runtime's directories.
type storage struct {
	procfs, sysfs string
	pids          func() []int
	slot          bounded.Slot[[]byte] // of reads of mountinfo
	looked        time.Time
	of            []int
	dirs          []storageDir
}

// storageDir is one directory of a runtime.
type storageDir struct {
	pid       int
	path, use string
	mount     proc.Mount
	// errors is ext4's count of errors when the mount was last looked at.
	errors string
}

// NewStorage returns the source about the file systems on which the processes
// keep containers' data. It looks every 4 s, and every second while one is full
// or read-only. statfs(2) can hang on a dead mount: it is then left behind.
//
// The directories are those in which a process has its databases open or its
// containers mounted. Reading that, and statfs through /proc/PID/root, takes
// CAP_SYS_PTRACE: without it the source has nothing to say.
func NewStorage(procfs, sysfs string, pids func() []int) *Watch[health.Storage] {
	s := &storage{procfs: procfs, sysfs: sysfs, pids: pids}
	return NewWatch(Spec[health.Storage]{
		Name: "storage", Every: 4, Timeout: storageTimeout, Again: (*health.Storage).Unwritable,
		Gather: s.gather, Store: func(e *health.Evidence, v *health.Storage) { e.Storage = v },
	})
}

func (s *storage) gather(context.Context) (*health.Storage, error) {
	pids := slices.DeleteFunc(s.pids(), func(pid int) bool { return pid <= 0 })
	if time.Since(s.looked) >= storageLook || !slices.Equal(pids, s.of) {
		s.looked, s.of, s.dirs = time.Now(), pids, nil
		for _, pid := range pids {
			s.look(pid)
		}
	}
	out := &health.Storage{At: time.Now()}
	for i := range s.dirs {
		f, err := s.stat(&s.dirs[i])
		switch {
		case err == nil:
			out.FileSystems = append(out.FileSystems, *f)
		case proc.Gone(err):
			s.looked = time.Time{} // the process has ended
		case !errors.Is(err, fs.ErrPermission):
			return nil, err
		}
	}
	if len(out.FileSystems) == 0 {
		return nil, ErrNoData
	}
	return out, nil
}

// look finds the directories of a process.
func (s *storage) look(pid int) {
	st, err := proc.ReadStat(s.procfs, pid)
	if err != nil {
		return
	}
	mounts := s.mounts(pid)
	for _, m := range mounts {
		s.note(pid, st.Comm, m.Point+"/", mounts)
	}
	dir := proc.Path(s.procfs, pid, "fd")
	fds, err := proc.Numbers(dir, storageFDs)
	if err != nil {
		return
	}
	for _, fd := range fds {
		if link, err := os.Readlink(dir + "/" + strconv.Itoa(fd)); err == nil {
			s.note(pid, st.Comm, link, mounts)
		}
	}
}

// note takes down the directory that a path shows to be the process's.
func (s *storage) note(pid int, comm, path string, mounts []proc.Mount) {
	for _, m := range storageMarks {
		dir, _, found := strings.Cut(path, m.mark)
		known := slices.ContainsFunc(s.dirs, func(d storageDir) bool { return d.path == dir })
		if m.comm != comm || !found || known || !strings.HasPrefix(dir, "/") {
			continue
		}
		d := storageDir{pid: pid, path: dir, use: m.use}
		d.mount, _ = proc.MountOf(mounts, dir)
		d.errors = s.errors(d.mount)
		s.dirs = append(s.dirs, d)
	}
}

func (s *storage) mounts(pid int) []proc.Mount {
	b, err := s.slot.Do(context.Background(), time.Second, func(context.Context) ([]byte, error) {
		return proc.ReadLimited(proc.Path(s.procfs, pid, "mountinfo"), storageMounts)
	})
	if err != nil {
		return nil
	}
	return proc.ParseMounts(b)
}

// stat asks about the file system of a directory, as the process sees it.
func (s *storage) stat(d *storageDir) (*health.FileSystem, error) {
	var st unix.Statfs_t
	path := proc.Path(s.procfs, d.pid, "root") + d.path
	if err := unix.Statfs(path, &st); err != nil {
		return nil, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	readOnly := st.Flags&unix.ST_RDONLY != 0
	// An ext4 file system is read-only after an error, and statfs does not say so.
	if count := s.errors(d.mount); count != d.errors || readOnly != (readOnlyOption(d.mount) == "ro") {
		if m, ok := proc.MountOf(s.mounts(d.pid), d.path); ok {
			d.mount, d.errors = m, s.errors(m)
		}
	}
	f := &health.FileSystem{
		Directory: d.path, Use: d.use, Device: d.mount.Source, Type: d.mount.Type, Option: readOnlyOption(d.mount),
		Bytes: int64(st.Blocks) * st.Bsize, FreeBytes: int64(st.Bfree) * st.Bsize, //nolint:gosec // far below 2^63
		Inodes: int64(st.Files), FreeInodes: int64(st.Ffree), //nolint:gosec // likewise
	}
	f.FreeBytes = max(0, f.FreeBytes-s.reserved(d.mount)*st.Bsize)
	f.ReadOnly = readOnly || f.Option != ""
	return f, nil
}

// readOnlyOption returns the mount option by which nothing can be written, "" for
// none.
func readOnlyOption(m proc.Mount) string {
	options := strings.Split(m.Options, ",")
	for _, o := range []string{"emergency_ro", "ro"} {
		if slices.Contains(options, o) {
			return o
		}
	}
	return ""
}

// errors is how many errors ext4 has found in a file system, "" for another one.
func (s *storage) errors(m proc.Mount) string { return s.ext4(m, "errors_count") }

// reserved is how many blocks ext4 keeps for itself: statfs calls them free, and
// not even root can have them.
func (s *storage) reserved(m proc.Mount) int64 {
	n, err := strconv.ParseInt(s.ext4(m, "reserved_clusters"), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// ext4 reads what ext4 says of a file system, "" for another one.
func (s *storage) ext4(m proc.Mount, name string) string {
	if m.Type != "ext4" {
		return ""
	}
	device, err := os.Readlink(filepath.Join(s.sysfs, "dev/block", m.Device))
	if err != nil {
		return ""
	}
	b, err := proc.ReadFile(filepath.Join(s.sysfs, "fs/ext4", filepath.Base(device), name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
