package chain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// fileWait adds the wait of a thread in the kernel for a file system: which file, on which
// mount, and the process that serves it.
func (f *waiting) fileWait(ctx context.Context, t thread) {
	path, mount, known := f.mountOf(t)
	switch {
	case t.kind() == wchan.Exit:
		f.add(kernelWait(t))
	case path == "" && !known:
		f.blocked = append(f.blocked, unknownFileWait(t))
	case !known:
		f.add(f.unmountedWait(t, path))
	default:
		f.add(f.mountWait(ctx, t, path, mount))
	}
}

// unknownFileWait is that of a thread whose file is not known.
func unknownFileWait(t thread) wait {
	out := kernelWait(t)
	if t.awaitsThaw() {
		out.link.Evidence = "as below a file system that is frozen (fsfreeze -u MOUNTPOINT thaws it)"
	}
	return out
}

// unmountedWait is that of a thread for a file whose mount is not in the table of mounts.
func (f *waiting) unmountedWait(t thread, path string) wait {
	evidence := "its mount is not in the process's table of mounts"
	if f.mountsErr != nil {
		evidence = fmt.Sprintf("the process's table of mounts cannot be read: %v", f.mountsErr)
	}
	return wait{
		key: "path " + path, state: facts.LinkBlocked, evidence: threadText(t, path),
		link: facts.Link{Kind: facts.KindMount, Name: path, State: facts.LinkBlocked, Evidence: evidence},
	}
}

// threadText describes where a thread waits, and for which path; "" where that is not known.
func threadText(t thread, path string) string {
	text := fmt.Sprintf("thread %d waits in %s", t.PID, t.channel)
	if path != "" {
		text += ", for " + path
	}
	return text
}

// mountWait is that of a thread for a file on a mount.
func (f *waiting) mountWait(ctx context.Context, t thread, path string, mount proc.Mount) wait {
	text := fmt.Sprintf("%s on %s (%s)", mount.Type, mount.Source, mount.Device)
	frozen := t.awaitsThaw() // that file system itself, and none below it
	file, below, ok := f.backingOf(mount)
	if ok && !frozen {
		text = fmt.Sprintf("%s, whose file %s is on %s on %s (%s)", text, file, below.Type, below.Source, below.Device)
		mount = below
	}
	out := wait{
		key: "mount " + mount.Point, state: facts.LinkBlocked, evidence: threadText(t, path),
		link: facts.Link{
			Kind: facts.KindMount, Name: mount.Point, State: facts.LinkBlocked,
			Fingerprint: mountFingerprint(mount.Type, mount.Source), Evidence: text,
		},
	}
	switch {
	case strings.HasPrefix(mount.Type, "fuse"):
		return f.fuseWait(ctx, out, mount)
	case wchan.HasServer(mount.Type):
		out.link.Evidence += "; its server does not answer"
	case frozen:
		out.link.State = facts.LinkFrozen
		out.link.Evidence += "; writes wait for it to be thawed (fsfreeze -u)"
	default:
		out.link.Evidence += f.ioLimit(mount)
	}
	return out
}

// ioLimit describes the I/O limit of the process's cgroup, or of one above it, for the device of a
// mount; "" for none. Whether the limit is what holds the process up the kernel does not show.
func (f *waiting) ioLimit(mount proc.Mount) string {
	unread := ""
	tree, groups := f.cgroups(&unread)
	disk := f.diskOf(mount.Device)
	for _, controller := range []string{"blkio", "io"} {
		for dir, path := range tree.Up(groups, controller) {
			limit := limitOf(tree.Files, dir, disk)
			if limit != "" {
				return fmt.Sprintf("; the cgroup %s limits its I/O there: %s", path, limit)
			}
		}
	}
	if unread != "" {
		return "; whether a cgroup limits its I/O there could not be read (" + unread + ")"
	}
	return ""
}

// limitOf returns the I/O limit that a cgroup's directory has for a disk, with its file; "" for none.
func limitOf(files proc.Files, dir, disk string) string {
	for _, file := range ioLimits {
		for line := range strings.Lines(files.Text(dir, file)) {
			limit, ok := strings.CutPrefix(strings.TrimSpace(line), disk+" ")
			if ok {
				return file + " " + limit
			}
		}
	}
	return ""
}

// ioLimits are the files of a cgroup with a line for each device that is limited.
var ioLimits = []string{
	"io.max", "blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device", "blkio.throttle.read_iops_device",
	"blkio.throttle.write_iops_device",
}

// maxDevice bounds a file with the numbers of a device, in bytes.
const maxDevice = 64

// diskOf returns the disk of a device that may be a partition, both as major:minor.
func (f *waiting) diskOf(device string) string {
	block := filepath.Join(f.sysfs, "dev/block", device)
	if _, err := proc.ReadFile(block, "partition"); err != nil {
		return device
	}
	b, err := proc.Read(block+"/../dev", maxDevice) // not cleaned: the device is a symbolic link
	if err != nil {
		return device
	}
	return strings.TrimSpace(string(b))
}

// fuseWait completes the wait for a FUSE mount with its server.
func (f *waiting) fuseWait(ctx context.Context, out wait, mount proc.Mount) wait {
	requests := f.fuseWaiting(mount)
	if requests != "" {
		out.link.Evidence += "; requests without an answer: " + requests
	}
	_, minor, _ := strings.Cut(mount.Device, ":")
	// The connection is in the fdinfo of the server's descriptor, where the kernel shows it.
	return f.heldBy(ctx, out, "this FUSE mount", leadsTo("/dev/fuse"), func(info proc.FDInfo) bool {
		return info.FuseConnection == -1 || strconv.Itoa(info.FuseConnection) == minor
	})
}

// backingOf returns the file of a mount's loop device, and the mount that the file is on.
func (f *waiting) backingOf(mount proc.Mount) (file string, below proc.Mount, ok bool) {
	device, isLoop := strings.CutPrefix(mount.Source, "/dev/loop")
	if !isLoop {
		return "", below, false
	}
	b, err := proc.ReadFile(f.sysfs, "block", "loop"+filepath.Base(device), "loop/backing_file")
	if err != nil {
		return "", below, false
	}
	file = strings.TrimSuffix(strings.TrimSpace(string(b)), " (deleted)")
	below, ok = proc.MountOf(f.mounts, file)
	return file, below, ok
}

// mountOf returns the mount that a thread waits for: that of the descriptor of its
// system call, else the only one whose server it may wait for.
func (f *waiting) mountOf(t thread) (path string, mount proc.Mount, ok bool) {
	if f.mounts == nil && f.mountsErr == nil {
		f.mounts, f.mountsErr = f.table.Mounts(context.Background(), f.pid)
	}
	fd := t.call.FD()
	if t.call.File != "" && fd >= 0 {
		path = strings.TrimSuffix(f.fd(fd), " (deleted)")
	}
	if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, terminals) {
		id := proc.ReadFDInfo(f.procfs, f.pid, fd).MountID
		i := slices.IndexFunc(f.mounts, func(m proc.Mount) bool { return id != 0 && m.ID == id })
		if i < 0 {
			return path, mount, false // it is detached, as by umount -l
		}
		return path, f.mounts[i], true
	}
	mount, ok = f.onlyMount(wchan.Of(t.channel))
	return "", mount, ok
}

// onlyMount returns the mount for whose server a class of threads waits, if just one device has such and
// it may owe an answer.
func (f *waiting) onlyMount(class wchan.Class) (mount proc.Mount, ok bool) {
	devices := map[string]bool{}
	for _, m := range f.mounts {
		if class.IsOf(m.Type) && f.fuseWaiting(m) != "0" {
			mount = m
			devices[m.Device] = true
		}
	}
	return mount, len(devices) == 1
}

// fuseWaiting is how many requests of a FUSE mount have no answer, "" where that is not
// known or the mount is another one: the minor number of a mount without a device is its own.
func (f *waiting) fuseWaiting(m proc.Mount) string {
	_, minor, _ := strings.Cut(m.Device, ":")
	b, _ := proc.ReadFile(f.sysfs, "fs/fuse/connections", minor, "waiting")
	return strings.TrimSpace(string(b))
}

// mountFingerprint returns the file system's type, and for a network file system a
// hash of its server. source is that of mountinfo: "server:/path" or "//server/path".
func mountFingerprint(fsType, source string) string {
	word := facts.FingerprintWord(fsType)
	if server := serverOf.FindString(source); server != "" {
		sum := sha256.Sum256([]byte(server))
		word += fmt.Sprintf(":%x", sum[:4])
	}
	return word
}

var serverOf = regexp.MustCompile(`^(//[^/]+|.*?:/)`)

// agentWait adds the fanotify agent without whose answer a thread may not continue.
func (f *waiting) agentWait(ctx context.Context, t thread) {
	const what, link = "fanotify permission events", "anon_inode:[fanotify]"
	out := wait{
		key: link, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in %s for the agent that decides about %s", t.PID, t.channel, what),
	}
	path, _, _ := f.mountOf(t)
	if path != "" {
		out.evidence += ", to access " + path
	}
	f.add(f.heldBy(ctx, out, what, leadsTo(link), func(info proc.FDInfo) bool { return info.Permits }))
}

// seccompWait adds the supervisor without whose answer a system call does not begin. The
// kernel does not show whose filter it is: it is known where only one process supervises.
func (f *waiting) seccompWait(ctx context.Context, t thread) {
	const link = "anon_inode:seccomp notify"
	out := wait{
		key: link, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in %s for the supervisor of its seccomp filter", t.PID, t.channel),
	}
	f.add(f.heldBy(ctx, out, "a seccomp notify descriptor", leadsTo(link, "anon_inode:[seccomp notify]"), nil))
}

// openWait adds the wait of a thread in openat(2) for the other end of a FIFO. The path is in
// the process's memory, which plegd does not read.
func (f *waiting) openWait(t thread) {
	if t.kind() != wchan.FIFO {
		f.otherCall(t)
		return
	}
	if f.pid == f.runtime() && t.call.OpensToRead() {
		f.calls["open of a FIFO"]++ // the output of a container that is created and not started
		return
	}
	direction := "read"
	partner := "write to"
	if t.call.Args[2]&unix.O_ACCMODE == unix.O_WRONLY {
		direction = "write"
		partner = "read from"
	}
	f.add(wait{
		key: "fifo " + direction, state: facts.LinkPeer,
		evidence: fmt.Sprintf("thread %d opens a FIFO to %s, which no process has opened to %s it", t.PID, direction, partner),
	})
}

// leaseWait adds the holders of the leases that are to be given up, as of a file that is opened
// or executed: those of the lock's file are not shown of a waiting thread.
func (f *waiting) leaseWait(t thread) {
	locks, err := proc.ReadLocks(f.procfs)
	f.unseenIf("/proc/locks", err)
	out := wait{state: facts.LinkLocked, evidence: fmt.Sprintf("thread %d waits for the lease of a file", t.PID)}
	holders := map[int]bool{}
	for _, lease := range locks {
		if lease.Breaking && lease.PID > 0 {
			holders[lease.PID] = true
			out.next = lease.PID
			out.evidence = fmt.Sprintf("thread %d waits for the lease of file %s, which pid %d has", t.PID, lease.File, lease.PID)
		}
	}
	if len(holders) != 1 {
		out.next = 0
		out.key = "lease"
		out.unknown = fmt.Sprintf("%d processes have leases that are to be given up", len(holders))
	}
	f.add(out)
}

// leaseLooks is how often a thread that runs in each tick is looked at: it may run just then.
const leaseLooks = 5

// polledLease adds the lease for which a process of one thread waits that has run meanwhile: until
// a lease is given up for reading the kernel looks at it in each tick (__break_lease in
// fs/locks.c). A child that cannot begin its program has one thread.
func (f *waiting) polledLease() {
	t := f.last.threads[f.pid]
	if len(f.last.threads) != 1 || f.first.threads[f.pid].Schedstat == t.Schedstat {
		return
	}
	for range leaseLooks {
		f.place(&t)
		if t.kind() == wchan.Lease {
			f.leaseWait(t)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// fileLocks adds the holders of the locks for which the process waits by /proc/locks. The
// wait for a lock of an open file stands there without a process: threads show the file.
func (f *waiting) fileLocks(ctx context.Context) {
	locks, err := proc.ReadLocks(f.procfs)
	f.unseenIf("/proc/locks", err)
	waits := slices.DeleteFunc(locks, func(l proc.Lock) bool {
		return !l.WaitsFor(f.pid) && (!l.Waiting || l.PID >= 0 || f.lockPath(l) == "")
	})
	p := cmp.Or(f.symptom.Locked, &facts.Process{})
	polled := p.PID == f.pid && p.Lock != nil && p.Lock.HolderPID > 0
	if polled && len(f.found)+len(waits) == 0 {
		waits = append(waits, proc.Lock{File: p.Lock.File, Holder: p.Lock.HolderPID})
	}
	for _, l := range waits {
		f.add(f.lockWait(ctx, l))
	}
}

// lockPath returns the path of a lock's file where a thread shows it, else "".
func (f *waiting) lockPath(l proc.Lock) string {
	return f.lockPaths[l.File[strings.LastIndexByte(l.File, ':')+1:]]
}

// lockWait is the wait for a lock.
func (f *waiting) lockWait(ctx context.Context, l proc.Lock) wait {
	out := wait{
		key: "lock " + l.File, state: facts.LinkLocked, next: l.Holder,
		evidence: "waits for the lock of " + cmp.Or(f.lockPath(l), "file "+l.File),
	}
	if l.Holder == 0 {
		// The descriptor shows a lock of an open file, which has no process.
		isFile := func(leads string) bool { return strings.HasPrefix(leads, "/") }
		out = f.heldBy(ctx, out, "the lock", isFile, func(info proc.FDInfo) bool {
			return slices.ContainsFunc(info.Locks, func(h proc.Lock) bool { return h.File == l.File && !h.Waiting })
		})
	}
	if out.next != 0 {
		out.evidence += fmt.Sprintf(", which pid %d has", out.next)
	}
	return out
}
