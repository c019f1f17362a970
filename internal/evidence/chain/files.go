package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// maxMounts bounds the table of mounts of a process, in bytes.
const maxMounts = 1 << 20

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
		if proc.In(channel, r.channels...) && !proc.In(channel, "fuse_dev_") {
			return r.types
		}
	}
	return nil
}

func isRemoteType(fsType string) bool {
	for _, r := range remotes {
		if proc.In(fsType, r.types...) {
			return true
		}
	}
	return false
}

// isFreezeChannel reports whether a thread in that kernel function waits for a file
// system that fsfreeze has frozen.
func isFreezeChannel(channel string) bool {
	return proc.In(channel, "__sb_start_write", "sb_start_write", "percpu_rwsem_wait", "freeze_super", "sb_wait_write")
}

// isExitChannel reports whether the wait is about no file.
func isExitChannel(channel string) bool {
	return proc.In(channel, "do_exit", "exit_", "zap_", "coredump_", "__flush_work", "synchronize_")
}

// fileWait is that of a thread that waits in the kernel for a file system: which file,
// on which mount, and the process that serves it.
func (w *Walker) fileWait(ctx context.Context, p place) wait {
	path, m, ok := w.mountOf(p)
	if isExitChannel(p.channel) || !ok && path == "" {
		out := kernelWait(p)
		if isFreezeChannel(p.channel) {
			out.links[0].Evidence = "as below a file system that is frozen (fsfreeze -u MOUNTPOINT thaws it)"
		}
		return out
	}
	out := wait{
		key: "mount " + m.Point, state: health.LinkBlocked,
		evidence: fmt.Sprintf("thread %d waits in %s", p.tid, p.channel),
	}
	if path != "" {
		out.evidence += ", for " + clean(path)
	}
	link := health.Link{Kind: health.KindMount, Name: clean(m.Point), State: health.LinkBlocked}
	if !ok {
		out.key = "path " + path
		link.Name, link.Evidence = clean(path), "its mount is not in the process's table of mounts"
		out.links = []health.Link{link}
		return out
	}
	link.Evidence = fmt.Sprintf("%s on %s (%s)", clean(m.Type), clean(m.Source), clean(m.Device))
	link.Fingerprint = mountFingerprint(m.Type, m.Source)
	device, found := health.Link{}, false
	switch {
	case strings.HasPrefix(m.Type, "fuse"):
		if n := w.fuseWaiting(m); n != "" {
			link.Evidence += "; requests without an answer: " + n
		}
		out.next, out.unknown = w.fuseServer(ctx, m)
	case isRemoteType(m.Type):
		link.Evidence += "; its server does not answer"
	case isFreezeChannel(p.channel):
		link.State = health.LinkFrozen
		link.Evidence += "; writes wait for it to be thawed (fsfreeze -u)"
	default:
		device, found = w.device(ctx, m)
	}
	if out.links = []health.Link{link}; found {
		out.links = append(out.links, device)
	}
	return out
}

// mountOf returns the mount that a thread waits for: that of the descriptor of its
// system call, else the only one whose server it may wait for.
func (w *Walker) mountOf(p place) (path string, m proc.Mount, ok bool) {
	id := 0
	if fd, has := p.call.FD(); p.inCall && has {
		path = strings.TrimSuffix(w.fd(p.pid, fd), " (deleted)")
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/pts/") {
			path = ""
		} else {
			id = w.fdInfo(p.pid, fd).MountID
		}
	}
	b, err := w.table.ReadSlow(proc.Path(w.procfs, p.pid, "mountinfo"), maxMounts)
	if err != nil {
		return path, m, false
	}
	mounts := proc.ParseMounts(b)
	if path != "" {
		for _, m := range mounts {
			if id != 0 && m.ID == id {
				return path, m, true
			}
		}
		m, ok = proc.MountOf(mounts, path)
		return path, m, ok
	}
	devices := map[string]bool{}
	for _, one := range mounts {
		if proc.In(one.Type, remoteTypes(p.channel)...) && w.fuseWaiting(one) != "0" {
			m, devices[one.Device] = one, true
		}
	}
	return "", m, len(devices) == 1
}

// fuseWaiting is how many requests of a FUSE mount have no answer, "" where that is not
// known or the mount is another one.
func (w *Walker) fuseWaiting(m proc.Mount) string {
	_, minor, _ := strings.Cut(m.Device, ":")
	if _, err := strconv.Atoi(minor); err != nil || !strings.HasPrefix(m.Type, "fuse") {
		return ""
	}
	return clean(w.read("fs/fuse/connections/" + minor + "/waiting"))
}

// fuseServer returns the process that serves a FUSE mount: by the connection in the fdinfo
// of its descriptor, where the kernel shows it.
func (w *Walker) fuseServer(ctx context.Context, m proc.Mount) (next int, unknown string) {
	_, minor, _ := strings.Cut(m.Device, ":")
	next, unknown, _ = w.holder(ctx, 0, "this FUSE mount", func(to string, info func() []byte) bool {
		if to != "/dev/fuse" {
			return false
		}
		n := proc.ParseFDInfo(info()).FuseConnection
		return n == -1 || strconv.Itoa(n) == minor
	})
	return next, unknown
}

// agents are the processes that decide about other processes' system calls, by the kernel
// functions in which these wait and by the descriptor that an agent has.
var agents = []struct {
	channels   []string
	link, what string
	decides    func(fdinfo string) bool
}{
	{
		channels: []string{"fanotify_handle_event", "fanotify_get_response"},
		link:     "anon_inode:[fanotify]", what: "fanotify permission events", decides: permits,
	},
	{channels: []string{"seccomp_do_user_notification"}, link: "anon_inode:seccomp notify", what: "seccomp notifications"},
	{channels: []string{"handle_userfault"}, link: "anon_inode:[userfaultfd]", what: "page faults (userfaultfd)"},
}

// agentWait adds the agent without whose answer a thread may not continue; false where it
// waits for none.
func (w *Walker) agentWait(ctx context.Context, f *waiting, p place) bool {
	for _, a := range agents {
		if !proc.In(p.channel, a.channels...) {
			continue
		}
		out := wait{
			key: a.link, state: health.LinkPeer,
			evidence: fmt.Sprintf("thread %d waits in %s for the agent that decides about %s", p.tid, p.channel, a.what),
		}
		if path, _, _ := w.mountOf(p); path != "" {
			out.evidence += ", to access " + clean(path)
		}
		out.next, out.unknown, _ = w.holder(ctx, p.pid, a.what, func(to string, info func() []byte) bool {
			return to == a.link && (a.decides == nil || a.decides(string(info())))
		})
		f.add(out)
		return true
	}
	return false
}

// permits reports whether a fanotify group decides about accesses, by its fdinfo
// (FAN_CLASS_CONTENT, FAN_CLASS_PRE_CONTENT); true where that is not known.
func permits(fdinfo string) bool {
	_, rest, _ := strings.Cut(fdinfo, "fanotify flags:")
	value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	flags, err := strconv.ParseUint(value, 16, 64)
	return err != nil || flags&(unix.FAN_CLASS_CONTENT|unix.FAN_CLASS_PRE_CONTENT) != 0
}

// device returns the block device of a mount where it has requests in flight and
// completes none.
func (w *Walker) device(ctx context.Context, m proc.Mount) (health.Link, bool) {
	dir := "dev/block/" + m.Device
	before := strings.Fields(w.read(dir + "/stat"))
	if len(before) < 9 || !sleep(ctx, betweenLooks) {
		return health.Link{}, false
	}
	// Documentation/block/stat.rst: reads and writes that completed, and those in flight.
	now := strings.Fields(w.read(dir + "/stat"))
	if len(now) < 9 || now[8] == "0" || now[0] != before[0] || now[4] != before[4] {
		return health.Link{}, false
	}
	model := w.read(dir + "/device/model")
	if model == "" { // of a partition, its disk's
		model = w.read(dir + "/../device/model")
	}
	return health.Link{
		Kind: health.KindDevice, Name: clean(m.Source), State: health.LinkBlocked,
		Evidence:    fmt.Sprintf("%s requests in flight and none completed in %s", clean(now[8]), betweenLooks),
		Fingerprint: deviceFingerprint(m.Type, model),
	}, true
}

// mountFingerprint returns the file system's type, and for a network file system a
// hash of its server. source is that of mountinfo: "server:/path" or "//server/path".
func mountFingerprint(fsType, source string) string {
	server, _, remote := strings.Cut(source, ":/")
	if s, ok := strings.CutPrefix(source, "//"); ok {
		server, _, _ = strings.Cut(s, "/")
		remote = true
	}
	if !remote {
		return health.FingerprintWord(fsType)
	}
	sum := sha256.Sum256([]byte(server))
	return health.FingerprintWord(fsType) + ":" + hex.EncodeToString(sum[:4])
}

// deviceFingerprint returns a block device's model, or the type of the file system
// on it if the model is not known.
func deviceFingerprint(fsType, model string) string {
	if model = health.FingerprintWord(strings.TrimSpace(model)); model != "" {
		return model
	}
	return health.FingerprintWord(fsType)
}
