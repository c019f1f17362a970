package chain

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// fdCalls are the system calls on files whose first argument is a descriptor: of the
// file, or of the directory that a path is relative to. A path itself lies in the memory
// of the process, which is not read.
var fdCalls = map[int]bool{
	unix.SYS_READ: true, unix.SYS_READV: true, unix.SYS_PREAD64: true, unix.SYS_WRITE: true, unix.SYS_WRITEV: true,
	unix.SYS_PWRITE64: true, unix.SYS_FSYNC: true, unix.SYS_FDATASYNC: true, unix.SYS_SYNCFS: true, unix.SYS_FTRUNCATE: true,
	unix.SYS_FALLOCATE: true, unix.SYS_FSTAT: true, unix.SYS_FSTATFS: true, unix.SYS_GETDENTS64: true, unix.SYS_CLOSE: true,
	unix.SYS_FSETXATTR: true, unix.SYS_FCHMOD: true, unix.SYS_FCHOWN: true, unix.SYS_FCHDIR: true, unix.SYS_IOCTL: true,
	unix.SYS_OPENAT: true, unix.SYS_OPENAT2: true, unix.SYS_MKDIRAT: true, unix.SYS_MKNODAT: true, unix.SYS_UNLINKAT: true,
	unix.SYS_RENAMEAT: true, unix.SYS_RENAMEAT2: true, unix.SYS_LINKAT: true, unix.SYS_READLINKAT: true,
	unix.SYS_NEWFSTATAT: true, unix.SYS_STATX: true, unix.SYS_FCHMODAT: true, unix.SYS_FCHOWNAT: true, unix.SYS_UTIMENSAT: true,
	unix.SYS_FACCESSAT: true, unix.SYS_FACCESSAT2: true,
}

// remotes are the file systems with a server, by the kernel functions that wait for it.
var remotes = []struct{ channels, types []string }{
	{[]string{"request_wait_answer", "fuse_"}, []string{"fuse"}},
	{[]string{"rpc_", "nfs_", "nfs4_"}, []string{"nfs"}},
	{[]string{"wait_for_response", "cifs_", "smb2_"}, []string{"cifs", "smb3"}},
	{[]string{"ceph_"}, []string{"ceph"}},
	{[]string{"p9_", "v9fs_"}, []string{"9p"}},
}

// remoteTypes returns the types of file systems that a kernel function belongs to, nil
// for one that waits for no server. Servers of FUSE wait in fuse_dev_do_read, idle.
func remoteTypes(channel string) []string {
	for _, r := range remotes {
		if in(channel, r.channels...) && !in(channel, "fuse_dev_") {
			return r.types
		}
	}
	return nil
}

// isRemoteChannel reports whether a thread in that kernel function waits for the server
// of a file system: such a wait may be interrupted, and is not D.
func isRemoteChannel(channel string) bool { return remoteTypes(channel) != nil }

// isFanotifyChannel reports whether a thread in that kernel function waits for the
// permission of a fanotify agent, such as a virus scanner.
func isFanotifyChannel(channel string) bool {
	return in(channel, "fanotify_handle_event", "fanotify_get_response")
}

// isFrozenChannel reports whether a thread in that kernel function waits for a file
// system that fsfreeze has frozen.
func isFrozenChannel(channel string) bool {
	return in(channel, "__sb_start_write", "sb_start_write", "percpu_rwsem_wait", "freeze_super", "sb_wait_write")
}

// isExitChannel reports whether the wait is about no file.
func isExitChannel(channel string) bool {
	return in(channel, "do_exit", "exit_", "zap_", "coredump_", "wait_for_vfork_done", "__flush_work", "synchronize_")
}

// fileWait is that of a thread that waits in the kernel for a file system: which file,
// on which mount, and the process that serves it.
func (w *Walker) fileWait(ctx context.Context, p place) candidate {
	if isExitChannel(p.channel) {
		return kernelWait(p)
	}
	path, m, ok := w.mountOf(p)
	switch {
	case !ok && path == "" && isFrozenChannel(p.channel):
		c := kernelWait(p)
		c.links[0].Evidence = "as below a file system that is frozen (fsfreeze -u MOUNTPOINT thaws it)"
		return c
	case !ok && path == "":
		return kernelWait(p)
	}
	out := wait{state: health.LinkBlocked, evidence: fmt.Sprintf("thread %d waits in %s", p.tid, p.channel)}
	if path != "" {
		out.evidence += ", for " + clean(path)
	}
	link := health.Link{Kind: health.KindMount, Name: clean(m.Point), State: health.LinkBlocked}
	link.Evidence = fmt.Sprintf("%s on %s (%s)", clean(m.Type), clean(m.Source), clean(m.Device))
	if !ok {
		link.Name, link.Evidence = clean(path), "its mount is not in the process's table of mounts"
		out.links = []health.Link{link}
		return candidate{"path " + path, out}
	}
	link.Fingerprint = mountFingerprint(m.Type, m.Source)
	out.links = []health.Link{link}
	switch {
	case strings.HasPrefix(m.Type, "fuse"):
		w.fuseServer(ctx, &out, m)
	case isRemoteType(m.Type):
		out.links[0].Evidence += "; its server does not answer"
	case isFrozenChannel(p.channel):
		out.links[0].State = health.LinkFrozen
		out.links[0].Evidence += "; writes wait for it to be thawed (fsfreeze -u)"
	default:
		if device, ok := w.device(ctx, m); ok {
			out.links = append(out.links, device)
		}
	}
	return candidate{"mount " + m.Point, out}
}

func isRemoteType(fsType string) bool {
	return slices.ContainsFunc(remotes, func(r struct{ channels, types []string }) bool { return in(fsType, r.types...) })
}

// mountOf returns the mount that a thread waits for: that of the descriptor of its
// system call, else the only one whose server it may wait for.
func (w *Walker) mountOf(p place) (path string, m proc.Mount, ok bool) {
	id := 0
	if p.inCall && fdCalls[p.call.Number] && int32(p.call.Args[0]) >= 0 { // not AT_FDCWD
		path = w.fd(p.pid, p.call.Args[0])
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/pts/") {
			path = ""
		} else {
			path, id = strings.TrimSuffix(path, " (deleted)"), w.fdInfo(p.pid, p.call.Args[0]).MountID
		}
	}
	b, err := w.table.ReadSlow(proc.Path(w.procfs, p.pid, "mountinfo"), 1<<20)
	if err != nil {
		return path, m, false
	}
	mounts := proc.ParseMounts(b)
	for _, m := range mounts {
		if path != "" && id != 0 && m.ID == id {
			return path, m, true
		}
	}
	if path != "" {
		m, ok = proc.MountOf(mounts, path)
		return path, m, ok
	}
	found := map[string]proc.Mount{}
	for _, m := range mounts {
		if in(m.Type, remoteTypes(p.channel)...) && (!strings.HasPrefix(m.Type, "fuse") || w.fuseWaiting(m) != "0") {
			found[m.Device] = m
		}
	}
	for _, m := range found {
		return "", m, len(found) == 1
	}
	return "", m, false
}

// fuseWaiting is how many requests of a FUSE mount have no answer, "" where that is not
// known.
func (w *Walker) fuseWaiting(m proc.Mount) string {
	_, minor, _ := strings.Cut(m.Device, ":")
	b, err := w.reader.Read(w.sysfs + "/fs/fuse/connections/" + filepath.Base(minor) + "/waiting")
	if err != nil {
		return ""
	}
	return clean(strings.TrimSpace(string(b)))
}

// fuseServer adds the process that serves a FUSE mount.
func (w *Walker) fuseServer(ctx context.Context, out *wait, m proc.Mount) {
	_, minor, _ := strings.Cut(m.Device, ":")
	number, err := strconv.Atoi(minor)
	if err != nil {
		out.unknown = "the FUSE connection of the mount is not known"
		return
	}
	if n := w.fuseWaiting(m); n != "" {
		out.links[0].Evidence += "; requests without an answer: " + n
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
	case len(exact) > 0:
		out.next, out.unknown = w.other(0, exact, complete, "this FUSE mount")
	case len(any) == 1 && complete:
		out.next = any[0]
	case len(any) == 0 && complete:
		out.links[0].Evidence += "; no process serves it any more"
	default:
		out.unknown = "the process that serves this FUSE mount is not known"
	}
}

// fanotifyWait is that of a thread that may not open or read a file until a fanotify
// agent permits it.
func (w *Walker) fanotifyWait(ctx context.Context, p place) candidate {
	path, _, _ := w.mountOf(p)
	out := wait{
		state:    health.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in %s for the permission of a fanotify agent", p.tid, p.channel),
	}
	if path != "" {
		out.evidence += " to access " + clean(path)
	}
	pids, complete := w.holdersOf(ctx, "anon_inode:[fanotify]", func(pid int, fd string) bool {
		n, err := strconv.ParseUint(fd, 10, 64)
		return err == nil && permits(w.rawFDInfo(pid, n))
	})
	out.next, out.unknown = w.other(p.pid, pids, complete, "fanotify permission events")
	return candidate{"fanotify", out}
}

// permits reports whether a fanotify group decides about accesses, by its fdinfo
// (FAN_CLASS_CONTENT, FAN_CLASS_PRE_CONTENT); true where that is not known.
func permits(fdinfo []byte) bool {
	_, rest, found := strings.Cut(string(fdinfo), "fanotify flags:")
	if !found {
		return true
	}
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	flags, err := strconv.ParseUint(value, 16, 64)
	return err != nil || flags&(unix.FAN_CLASS_CONTENT|unix.FAN_CLASS_PRE_CONTENT) != 0
}

// device returns the block device of a mount where it has requests in flight and
// completes none.
func (w *Walker) device(ctx context.Context, m proc.Mount) (health.Link, bool) {
	dir := filepath.Join(w.sysfs, "dev/block", m.Device)
	stat := func() (done, inFlight uint64, ok bool) {
		b, err := w.reader.Read(dir + "/stat")
		f := strings.Fields(string(b))
		if err != nil || len(f) < 9 {
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
	evidence := fmt.Sprintf("%d requests in flight and none completed in %s", inFlight, betweenLooks)
	if file, err := w.reader.Read(dir + "/loop/backing_file"); err == nil {
		evidence += "; its file is " + clean(strings.TrimSpace(string(file)))
	}
	return health.Link{
		Kind: health.KindDevice, Name: clean(m.Source), State: health.LinkBlocked, Evidence: evidence,
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
