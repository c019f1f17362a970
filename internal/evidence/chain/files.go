package chain

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// maxPath is the longest path that is read out of a process.
const maxPath = 4096

// fdCalls are the system calls on files whose first argument is a descriptor.
var fdCalls = map[int]bool{
	unix.SYS_READ: true, unix.SYS_READV: true, unix.SYS_PREAD64: true, unix.SYS_WRITE: true, unix.SYS_WRITEV: true, unix.SYS_PWRITE64: true,
	unix.SYS_FSYNC: true, unix.SYS_FDATASYNC: true, unix.SYS_SYNCFS: true, unix.SYS_FTRUNCATE: true, unix.SYS_FALLOCATE: true,
	unix.SYS_FSTAT: true, unix.SYS_FSTATFS: true, unix.SYS_GETDENTS64: true, unix.SYS_CLOSE: true, unix.SYS_FSETXATTR: true, unix.SYS_FCHMOD: true,
	unix.SYS_FCHOWN: true, unix.SYS_FCHDIR: true, unix.SYS_IOCTL: true,
}

// pathCalls are those with a path: the argument that is the path, and the one that
// is the directory it is relative to, -1 for the process's own.
var pathCalls = map[int]struct{ path, dir int }{
	unix.SYS_OPENAT: {1, 0}, unix.SYS_OPENAT2: {1, 0}, unix.SYS_MKDIRAT: {1, 0}, unix.SYS_MKNODAT: {1, 0}, unix.SYS_UNLINKAT: {1, 0}, unix.SYS_RENAMEAT: {1, 0},
	unix.SYS_RENAMEAT2: {1, 0}, unix.SYS_LINKAT: {1, 0}, unix.SYS_SYMLINKAT: {2, 1}, unix.SYS_READLINKAT: {1, 0}, unix.SYS_NEWFSTATAT: {1, 0}, unix.SYS_STATX: {1, 0},
	unix.SYS_FCHMODAT: {1, 0}, unix.SYS_FCHOWNAT: {1, 0}, unix.SYS_UTIMENSAT: {1, 0}, unix.SYS_FACCESSAT: {1, 0}, unix.SYS_FACCESSAT2: {1, 0},
	unix.SYS_STATFS: {0, -1}, unix.SYS_UMOUNT2: {0, -1}, unix.SYS_MOUNT: {1, -1}, unix.SYS_CHDIR: {0, -1}, unix.SYS_EXECVE: {0, -1}, unix.SYS_LGETXATTR: {0, -1},
	unix.SYS_LSETXATTR: {0, -1}, unix.SYS_TRUNCATE: {0, -1},
}

// isRemoteChannel reports whether a thread in that kernel function waits for the
// answer of a file system's server: such a wait may be interrupted, and is not D.
func isRemoteChannel(channel string) bool {
	for _, name := range []string{"request_wait_answer", "fuse_", "rpc_wait_", "nfs_", "nfs4_", "wait_for_response", "ceph_", "p9_"} {
		if strings.HasPrefix(channel, name) {
			return true
		}
	}
	return false
}

// isFrozenChannel reports whether a thread in that kernel function waits for a file
// system that fsfreeze has frozen.
func isFrozenChannel(channel string) bool {
	for _, name := range []string{"__sb_start_write", "sb_start_write", "percpu_rwsem_wait", "freeze_super", "sb_wait_write"} {
		if strings.HasPrefix(channel, name) {
			return true
		}
	}
	return false
}

// isExitChannel reports whether the wait says nothing about a file.
func isExitChannel(channel string) bool {
	for _, name := range []string{"do_exit", "exit_", "zap_", "coredump_", "wait_for_vfork_done", "__flush_work", "synchronize_"} {
		if strings.HasPrefix(channel, name) {
			return true
		}
	}
	return false
}

// fileWait is that of a thread that waits in the kernel for a file system: which
// file, on which mount, and who serves it.
func (w *Walker) fileWait(ctx context.Context, pid, tid int, channel string, call proc.Syscall, inCall bool) candidate {
	where := channel
	if where == "" {
		where = "a kernel function that cannot be read"
	}
	out := wait{state: health.LinkBlocked, evidence: fmt.Sprintf("thread %d waits in %s", tid, where)}
	path, mount := "", 0
	if inCall && !isExitChannel(channel) {
		path, mount = w.pathOf(pid, call)
	}
	if path == "" {
		out.links = []health.Link{{Kind: health.KindKernel, Name: where, State: health.LinkBlocked, Evidence: "the system call names no file"}}
		return candidate{"kernel " + where, out}
	}
	out.evidence += ", for " + clean(path)
	m, ok := w.mountOf(pid, path, mount)
	if !ok {
		out.links = []health.Link{{Kind: health.KindMount, Name: clean(path), State: health.LinkBlocked, Evidence: "its mount is not in the process's table of mounts"}}
		return candidate{"path " + path, out}
	}
	link := health.Link{
		Kind: health.KindMount, Name: clean(m.Point), State: health.LinkBlocked,
		Evidence:    fmt.Sprintf("%s on %s (%s)", clean(m.Type), clean(m.Source), clean(m.Device)),
		Fingerprint: mountFingerprint(m.Type, m.Source),
	}
	out.links = []health.Link{link}
	switch {
	case strings.HasPrefix(m.Type, "fuse"):
		w.fuseDaemon(ctx, &out, m)
	case strings.HasPrefix(m.Type, "nfs") || m.Type == "cifs" || m.Type == "smb3" || m.Type == "ceph":
		out.links[0].Evidence += "; its server does not answer"
	case isFrozenChannel(channel):
		out.links[0].State = health.LinkFrozen
		out.links[0].Evidence += "; writes wait for it to be thawed (fsfreeze -u)"
	default:
		if device, ok := w.device(ctx, m); ok {
			out.links = append(out.links, device)
		}
	}
	return candidate{"mount " + m.Point, out}
}

// pathOf returns the file that a system call is about, and the id of its mount
// where that is known.
func (w *Walker) pathOf(pid int, call proc.Syscall) (path string, mount int) {
	if fdCalls[call.Number] {
		path = w.fd(pid, call.Args[0])
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/pts/") {
			return "", 0
		}
		return strings.TrimSuffix(path, " (deleted)"), w.fdInfo(pid, call.Args[0]).MountID
	}
	args, ok := pathCalls[call.Number]
	if !ok {
		if args.path, ok = archPathCalls[call.Number]; !ok {
			return "", 0
		}
		args.dir = -1
	}
	b, err := w.left.Read(proc.Path(w.procfs, pid, "mem"), int64(call.Args[args.path]), maxPath, readLimit)
	if err != nil {
		return "", 0
	}
	b, _, found := bytes.Cut(b, []byte{0})
	if !found || len(b) == 0 {
		return "", 0
	}
	path = string(b)
	if filepath.IsAbs(path) {
		return filepath.Clean(path), 0
	}
	dir := w.link(strconv.Itoa(pid) + "/cwd")
	if args.dir >= 0 && int32(call.Args[args.dir]) != unix.AT_FDCWD {
		dir = w.fd(pid, call.Args[args.dir])
	}
	if !filepath.IsAbs(dir) {
		return "", 0
	}
	return filepath.Join(dir, path), 0
}

// mountOf returns the mount of a file as the process has it.
func (w *Walker) mountOf(pid int, path string, id int) (proc.Mount, bool) {
	b, err := w.left.Read(proc.Path(w.procfs, pid, "mountinfo"), 0, 1<<20, readLimit)
	if err != nil {
		return proc.Mount{}, false
	}
	mounts := proc.ParseMounts(b)
	for _, m := range mounts {
		if id != 0 && m.ID == id {
			return m, true
		}
	}
	return proc.MountOf(mounts, path)
}

// fuseDaemon adds the process that serves a FUSE mount.
func (w *Walker) fuseDaemon(ctx context.Context, out *wait, m proc.Mount) {
	_, minor, _ := strings.Cut(m.Device, ":")
	number, err := strconv.Atoi(minor)
	if err != nil {
		out.unknown = "the FUSE connection of the mount is not known"
		return
	}
	if b, err := w.reader.Read(fmt.Sprintf("%s/fs/fuse/connections/%d/waiting", w.sysfs, number)); err == nil {
		out.links[0].Evidence += "; requests that its daemon has not answered: " + clean(strings.TrimSpace(string(b)))
	}
	var exact, any []int
	complete := w.eachFD(ctx, func(pid int, fd, to string) {
		if to != "/dev/fuse" {
			return
		}
		n, _ := strconv.ParseUint(fd, 10, 64)
		switch w.fdInfo(pid, n).FuseConnection {
		case number:
			exact = append(exact, pid)
		case -1:
			any = append(any, pid)
		}
	})
	exact, any = distinct(exact), distinct(any)
	switch {
	case len(exact) == 1:
		out.next = exact[0]
	case len(exact) == 0 && len(any) == 1 && complete:
		out.next = any[0]
	case len(exact)+len(any) == 0 && complete:
		out.links[0].Evidence += "; no process serves it any more"
	default:
		out.unknown = "which process serves this FUSE mount cannot be told"
	}
}

// device returns the block device of a mount where it has requests under way and
// completes none.
func (w *Walker) device(ctx context.Context, m proc.Mount) (health.Link, bool) {
	stat := func() (done, inFlight uint64, ok bool) {
		b, err := w.reader.Read(filepath.Join(w.sysfs, "dev/block", m.Device, "stat"))
		if err != nil {
			return 0, 0, false
		}
		f := strings.Fields(string(b))
		if len(f) < 9 {
			return 0, 0, false
		}
		var n [9]uint64
		for i := range n {
			if n[i], err = strconv.ParseUint(f[i], 10, 64); err != nil {
				return 0, 0, false
			}
		}
		return n[0] + n[4], n[8], true
	}
	done, _, ok := stat()
	if !ok || !sleep(ctx, betweenLooks) {
		return health.Link{}, false
	}
	after, inFlight, ok := stat()
	if !ok || inFlight == 0 || after != done {
		return health.Link{}, false
	}
	name := m.Source
	evidence := fmt.Sprintf("%d requests under way and none completed in %s", inFlight, betweenLooks)
	if file, err := os.ReadFile(filepath.Join(w.sysfs, "dev/block", m.Device, "loop/backing_file")); err == nil {
		evidence += "; its file is " + clean(strings.TrimSpace(string(file)))
	}
	return health.Link{
		Kind: health.KindDevice, Name: clean(name), State: health.LinkBlocked, Evidence: evidence,
		Fingerprint: deviceFingerprint(m.Type, w.deviceModel(m.Device)),
	}, true
}

// deviceModel returns the model of a block device, or of the disk of a partition;
// empty if it has none.
func (w *Walker) deviceModel(device string) string {
	for _, file := range []string{"device/model", "../device/model"} {
		if b, err := w.reader.Read(w.sysfs + "/dev/block/" + device + "/" + file); err == nil {
			return string(b)
		}
	}
	return ""
}
