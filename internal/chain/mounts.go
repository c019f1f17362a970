package chain

import (
	"context"
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

// fileWait adds the wait of a thread in the kernel for a file system: which file, on which
// mount, and the process that serves it.
func (f *waiting) fileWait(ctx context.Context, t thread) {
	path, mount, known := f.mountOf(ctx, t)
	switch {
	case t.kind() == wchan.Exit:
		f.add(kernelWait(t))
	case path == "" && !known:
		f.blocked = append(f.blocked, f.unknownFileWait(t))
	case !known:
		f.add(f.unmountedWait(t, path))
	default:
		f.add(f.mountWait(ctx, t, path, mount))
	}
}

// unknownFileWait is that of a thread whose file is not known.
func (f *waiting) unknownFileWait(t thread) wait {
	out := kernelWait(t)
	if t.awaitsThaw() {
		out.link.Evidence = "as below a frozen file system" + f.thawCommands()
	}
	return out
}

const (
	// autofs is the type of a directory in which a daemon mounts file systems on demand.
	autofs = "autofs"
	// maxThaws bounds the file systems of which one may be frozen that are named.
	maxThaws = 8
)

// freezable are the types of file systems that can be frozen.
var freezable = []string{"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "nilfs2", "gfs2", "reiserfs", "bcachefs"}

// thawCommands names the commands of which one thaws the frozen file system: of the process's first file systems
// that can be frozen. The kernel does not show which of them is.
func (f *waiting) thawCommands() string {
	var commands []string
	named := map[string]bool{}
	for _, m := range f.mounts {
		if slices.Contains(freezable, m.Type) && !named[m.Device] && len(commands) < maxThaws {
			named[m.Device] = true
			commands = append(commands, "`fsfreeze -u "+m.Point+"`")
		}
	}
	if len(commands) == 0 {
		return ""
	}
	return ": " + strings.Join(commands, " or ") + " thaws it, and fails where nothing is frozen"
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
	case mount.Type == autofs:
		out.next = autofsDaemon(mount)
		out.link.Evidence += "; its daemon does not serve a lookup"
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

// fuseWait completes the wait for a FUSE mount with its server.
func (f *waiting) fuseWait(ctx context.Context, out wait, mount proc.Mount) wait {
	requests := f.fuseWaiting(mount)
	if requests != "" {
		out.link.Evidence += "; requests without an answer: " + requests
	}
	connection := fuseConnection(mount)
	// The connection is in the fdinfo of the server's descriptor, where the kernel shows it.
	return f.heldBy(ctx, out, "this FUSE mount", leadsTo("/dev/fuse"), func(info proc.FDInfo) bool {
		return info.FuseConnection == unknownConnection || info.FuseConnection == connection
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
	file = proc.WithoutDeleted(strings.TrimSpace(string(b)))
	below, ok = proc.MountOf(f.mounts, file)
	return file, below, ok
}

// readMounts reads the table of mounts of the process once.
func (f *waiting) readMounts(ctx context.Context) {
	if f.mounts == nil && f.mountsErr == nil {
		f.mounts, f.mountsErr = f.table.Mounts(ctx, f.pid)
	}
}

// mountOf returns the mount that a thread waits for: that of the descriptor of its
// system call, else the only one whose server it may wait for.
func (f *waiting) mountOf(ctx context.Context, t thread) (path string, mount proc.Mount, ok bool) {
	f.readMounts(ctx)
	fd := t.call.FD()
	if t.call.File != "" && fd >= 0 {
		path = proc.WithoutDeleted(f.fd(fd))
	}
	if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, terminals) {
		id := proc.ReadFDInfo(f.procfs, f.pid, fd).MountID
		i := slices.IndexFunc(f.mounts, func(m proc.Mount) bool { return id != 0 && m.ID == id })
		if i < 0 {
			return path, mount, false // it is detached, as by umount -l
		}
		return path, f.mounts[i], true
	}
	mount, ok = f.onlyMount(ctx, wchan.Of(t.channel))
	return "", mount, ok
}

// onlyMount returns the mount for whose server a class of threads waits, if just one device has such and
// it may owe an answer.
func (f *waiting) onlyMount(ctx context.Context, class wchan.Class) (mount proc.Mount, ok bool) {
	devices := map[string]bool{}
	for _, m := range f.mounts {
		if class.IsOf(m.Type) && f.mayOweAnswer(ctx, m) {
			mount = m
			devices[m.Device] = true
		}
	}
	return mount, len(devices) == 1
}

// mayOweAnswer reports whether the server of a mount may have requests: not that of a FUSE mount without a
// request, or whose server has ended, where that can be seen. All requests to such a mount fail at once.
// Nor systemd, which has such a mount on every node (binfmt_misc).
func (f *waiting) mayOweAnswer(ctx context.Context, m proc.Mount) bool {
	if m.Type == autofs {
		return autofsDaemon(m) != 1
	}
	requests := f.fuseWaiting(m)
	if requests != "" || !strings.HasPrefix(m.Type, "fuse") {
		return requests != "0"
	}
	if f.fuseServed == nil {
		f.fuseServed = f.servedFUSE(ctx)
	}
	return f.fuseServed[fuseConnection(m)] || f.fuseServed[unknownConnection]
}

// autofsDaemon returns the process that serves the lookups below an autofs mount, 0 where that is not known.
func autofsDaemon(m proc.Mount) int {
	_, rest, _ := strings.Cut(m.Options, ",pgrp=")
	text, _, _ := strings.Cut(rest, ",")
	pid, _ := strconv.Atoi(text) // 0 without one
	return pid
}

// unknownConnection stands for a FUSE connection whose number cannot be seen.
const unknownConnection = -1

// servedFUSE returns the FUSE connections that a process has open.
func (f *waiting) servedFUSE(ctx context.Context) map[int]bool {
	out := map[int]bool{}
	_, err := proc.Holders(ctx, f.procfs, func(pid, fd int, leads string) bool {
		if leads == "/dev/fuse" {
			out[proc.ReadFDInfo(f.procfs, pid, fd).FuseConnection] = true
		}
		return false
	})
	if err != nil {
		out[unknownConnection] = true
	}
	return out
}

// fuseConnection is the number of a FUSE mount's connection: that of its device in the kernel (MKDEV).
func fuseConnection(m proc.Mount) int {
	const minorBits = 20
	first, second, _ := strings.Cut(m.Device, ":")
	major, err := strconv.Atoi(first)
	minor, minorErr := strconv.Atoi(second)
	if err != nil || minorErr != nil {
		return unknownConnection
	}
	return major<<minorBits | minor
}

// fuseWaiting is how many requests of a FUSE mount have no answer, "" where that is not
// known or the mount is another one.
func (f *waiting) fuseWaiting(m proc.Mount) string {
	b, _ := proc.ReadFile(f.sysfs, "fs/fuse/connections", strconv.Itoa(fuseConnection(m)), "waiting")
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
