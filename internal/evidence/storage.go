package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// storageInterval is the time between two searches for the directories of a process,
	// storageCalm in the steady state: on a full node reading its mounts takes milliseconds.
	storageInterval = 30 * time.Second
	storageCalm     = 2 * time.Minute
)

// storage is the source about the file systems of the runtime's directories.
type storage struct {
	procfs, sysfs string
	table         *proc.Table
	pids          func() []int
	isCalm        func() bool
	sockets       func() []string // of the runtime
	members       *family.Members

	searched     time.Time
	processes    []int // that were searched
	dirs         []storageDir
	mounts       int         // the most that a process's mount namespace has
	mountsMax    int         // how many it may have, when they were counted
	unread       proc.Unread // by this sample
	searchUnread proc.Unread // by the last search
	files        proc.Files
}

// storageDir is one directory of a runtime: its file system, without numbers, and ext4's
// directory of that in /sys, with the count of errors, when the mount table was read.
type storageDir struct {
	facts.FileSystem

	pid       int
	namespace string // the mount namespace of the process, "" where it is not known
	mount     string // as mountKey has it
	database  string // the file by which the process showed the directory, "" for none, and its descriptor
	fd        int
	mounted   string // a mount of a container below it, which showed the directory and was seen there; "" for none
	ext4      string // "" for another file system
	errors    int64
}

// mountKey names a file system, as it may be written or not.
func mountKey(m proc.Mount) string {
	return fmt.Sprintf("%s %t", m.Device, strings.HasPrefix(m.Options, "ro"))
}

// newStorage returns the source about the file systems to which the processes, and CRI-O's conmons,
// must write: of the directories in which they have databases and other files open or containers
// mounted, and of those that they name. Reading that, and statfs through /proc/PID/root, takes
// CAP_SYS_PTRACE: without it the source reports each denied part.
func newStorage(s *storage) *Watch[facts.Storage] {
	s.unread = proc.Unread{}
	s.searchUnread = proc.Unread{}
	s.members = family.NewMembers(s.table)
	s.files = proc.NewFiles(s.unread.Add)
	return NewWatch(Spec[facts.Storage]{
		Name:     "storage",
		Every:    4,
		Timeout:  2 * time.Second,
		Resample: (*facts.Storage).Unwritable,
		Gather:   s.gather,
		Unread:   s.unread.Drain,
		Store:    func(e *facts.Evidence, v *facts.Storage) { e.Storage = v },
	})
}

func (s *storage) gather(ctx context.Context) (*facts.Storage, error) {
	out := &facts.Storage{At: time.Now()}
	pids := s.pids()
	if s.isStale(out.At, pids) {
		s.searched = out.At
		s.processes = pids
		s.mounts = 0
		known := s.dirs
		s.dirs = nil
		clear(s.searchUnread)
		files := proc.NewFiles(s.searchUnread.Add)
		s.mountsMax = int(max(0, files.Number(s.procfs, "sys/fs/mount-max")))
		for _, pid := range pids {
			s.search(ctx, pid, known)
		}
		if slices.Contains(pids, 0) || len(pids) == 0 {
			s.keep(ctx, known, pids)
		}
	}
	maps.Copy(s.unread, s.searchUnread)
	for _, d := range s.dirs {
		f, err := s.state(ctx, d)
		switch {
		case err == nil:
			out.FileSystems = append(out.FileSystems, f)
		case proc.Gone(err):
			s.searched = time.Time{} // the process has ended
		case errors.Is(err, fs.ErrPermission):
			s.unread.Add("file systems", err)
		default:
			return nil, err
		}
	}
	if len(out.FileSystems) == 0 {
		return nil, ErrNoData
	}
	out.Mounts = s.mounts
	out.MountsMax = s.mountsMax
	return out, nil
}

// isStale reports whether the directories are to be searched again: after storageInterval, or after
// storageCalm in the steady state once some are known; for other processes; and after an error of
// ext4, which statfs does not show and the mount does.
func (s *storage) isStale(moment time.Time, pids []int) bool {
	counts := map[string]int64{} // of each file system once
	broken := func(d storageDir) bool {
		if d.ext4 == "" {
			return false
		}
		count, known := counts[d.ext4]
		if !known {
			count = s.files.Number(d.ext4, "errors_count")
			counts[d.ext4] = count
		}
		return count != d.errors
	}
	interval := storageInterval
	if s.isCalm() && len(s.dirs) > 0 {
		interval = storageCalm
	}
	return moment.Sub(s.searched) >= interval ||
		!slices.Equal(pids, s.processes) ||
		slices.ContainsFunc(s.dirs, broken)
}

// keep keeps the directories of processes that have ended, as a process in their mount namespace sees
// them: a full or read-only one may be why they ended.
func (s *storage) keep(ctx context.Context, known []storageDir, pids []int) {
	views := map[string]view{}
	for _, d := range known {
		listed := slices.ContainsFunc(s.dirs, func(present storageDir) bool { return present.Directory == d.Directory })
		if listed || slices.Contains(pids, d.pid) {
			continue
		}
		seen, found := views[d.namespace]
		if !found {
			var err error
			seen, err = s.viewOf(ctx, d.namespace)
			s.searchUnread.Add("mount table", err)
			if err != nil {
				return
			}
			views[d.namespace] = seen
		}
		kept := s.dirOn(seen.mounts, d.Directory, d.Use, seen.pid)
		kept.namespace = d.namespace
		s.dirs = append(s.dirs, kept)
	}
}

// view is a mount table, and the process that has it.
type view struct {
	pid    int
	mounts []proc.Mount
}

// viewOf returns the mounts of a namespace.
func (s *storage) viewOf(ctx context.Context, namespace string) (view, error) {
	pid := s.viewer(ctx, namespace)
	mounts, err := s.table.Mounts(ctx, pid)
	return view{pid: pid, mounts: mounts}, err
}

// viewer returns a process that sees the mounts of an ended process: one in the same mount namespace,
// such as a shim, else the node's first process. An unread namespace may hide one.
func (s *storage) viewer(ctx context.Context, namespace string) int {
	all, err := s.table.Processes(ctx, storageInterval)
	s.searchUnread.Add("processes", err)
	if err != nil || namespace == "" {
		return 1
	}
	unread := proc.Unread{}
	for pid := range all.ByPID {
		seen, err := proc.MountNamespace(s.procfs, pid)
		if err == nil && seen == namespace {
			return pid
		}
		unread.Add("mount namespaces", err)
	}
	maps.Copy(s.searchUnread, unread)
	return 1
}

// dirOn returns a directory, with the mount that it is on.
func (s *storage) dirOn(mounts []proc.Mount, dir, use string, pid int) storageDir {
	m, _ := proc.MountOf(mounts, dir)
	namespace, err := proc.MountNamespace(s.procfs, pid)
	s.searchUnread.Add("mount namespaces", err)
	device := blockDevice(s.sysfs, m.Device)
	disks := disksOf(s.sysfs, device, m.Source)
	d := storageDir{
		FileSystem: facts.FileSystem{Directory: dir, Use: use, Device: m.Source, Type: m.Type, Disks: disks},
		pid:        pid,
		namespace:  namespace,
		mount:      mountKey(m),
	}
	for option := range strings.SplitSeq(m.Options, ",") {
		if option == "emergency_ro" || option == "shutdown" {
			d.Option = option
			d.ReadOnly = true
		}
	}
	if strings.HasPrefix(m.Type, "ext") { // the driver of ext4 serves ext2 and ext3 too
		d.ext4 = filepath.Join(s.sysfs, "fs/ext4", device)
		d.errors = s.files.Number(d.ext4, "errors_count")
	}
	return d
}

// blockDevice returns the kernel's name of the block device with a number, "" for a file system without one.
func blockDevice(sysfs, number string) string {
	link, err := proc.Link(filepath.Join(sysfs, "dev/block", number))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

// state returns the file system of a directory, and whether the directory is lost: then nothing is asked.
func (s *storage) state(ctx context.Context, d storageDir) (facts.FileSystem, error) {
	if s.isLost(ctx, d) {
		d.Lost = true
		return d.FileSystem, nil
	}
	return d.stat(s.procfs, s.files)
}

// isLost reports whether what showed the directory is not at its path any more.
func (s *storage) isLost(ctx context.Context, d storageDir) bool {
	return d.isMoved(s.procfs) || s.isHidden(ctx, d)
}

// stat asks about the file system, as the process sees it.
func (d *storageDir) stat(procfs string, files proc.Files) (facts.FileSystem, error) {
	f := d.FileSystem
	var st unix.Statfs_t
	path := proc.Path(procfs, d.pid, "root") + d.Directory
	if err := unix.Statfs(path, &st); err != nil {
		return f, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	f.Bytes = int64(st.Blocks) * st.Bsize //nolint:gosec // < 2^63
	f.Inodes = int64(st.Files)            //nolint:gosec // likewise
	f.FreeInodes = int64(st.Ffree)        //nolint:gosec // likewise
	// Without the blocks that ext4 keeps for itself: statfs calls them free, and not even root
	// can have them.
	free := int64(st.Bfree) - d.reserved(files) //nolint:gosec // likewise
	f.FreeBytes = max(0, free) * st.Bsize
	f.ReadOnly = f.ReadOnly || st.Flags&unix.ST_RDONLY != 0
	return f, nil
}

// reserved is how many blocks ext4 keeps for itself.
func (d *storageDir) reserved(files proc.Files) int64 {
	if d.ext4 == "" {
		return 0
	}
	return max(0, files.Number(d.ext4, "reserved_clusters"))
}

// isHidden reports whether the mount that showed the directory is still there, and its path is not: another mount lies on top.
func (s *storage) isHidden(ctx context.Context, d storageDir) bool {
	if d.mounted == "" || d.sees(s.procfs, d.mounted) {
		return false
	}
	mounts, err := s.table.Mounts(ctx, d.pid)
	s.unread.Add("mount table", err)
	return slices.ContainsFunc(mounts, func(m proc.Mount) bool { return m.Point == d.mounted })
}

// sees reports whether the place of a mount is there for the process; true where that is not known.
func (d *storageDir) sees(procfs, mounted string) bool {
	var st unix.Stat_t
	// Its directory is asked for: a mounted file system may hang.
	err := unix.Stat(proc.Path(procfs, d.pid, "root")+filepath.Dir(mounted), &st)
	return !proc.Gone(err)
}

// isMoved reports whether the database that the process has open is not at its path any more.
func (d *storageDir) isMoved(procfs string) bool {
	if d.database == "" {
		return false
	}
	leads, err := proc.Link(proc.Path(procfs, d.pid, fmt.Sprintf("fd/%d", d.fd)))
	isOpen := err == nil && filepath.Base(proc.WithoutDeleted(leads)) == filepath.Base(d.database)
	if !isOpen { // the process has ended or closed it; the descriptor may be that of another file
		return false
	}
	open, err := proc.StatFD(procfs, d.pid, d.fd)
	if err != nil {
		return false
	}
	var placed unix.Stat_t
	err = unix.Stat(proc.Path(procfs, d.pid, "root")+d.database, &placed)
	if err != nil {
		return proc.Gone(err)
	}
	return placed.Dev != open.Dev || placed.Ino != open.Ino
}
