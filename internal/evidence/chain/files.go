package chain

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plegd/plegd/internal/evidence/node"
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
		if node.In(channel, r.channels...) && !node.In(channel, "fuse_dev_") {
			return r.types
		}
	}
	return nil
}

// fileWait is that of a thread that waits in the kernel for a file system: which file,
// on which mount, and the process that serves it.
func (w *Walker) fileWait(ctx context.Context, p place) wait {
	path, m, ok := w.mountOf(p)
	frozen := node.In(p.channel, "__sb_start_write", "sb_start_write", "percpu_rwsem_wait", "freeze_super",
		"sb_wait_write")
	exits := node.In(p.channel, "do_exit", "exit_", "zap_", "coredump_", "__flush_work", "synchronize_")
	if exits || !ok && path == "" {
		out := kernelWait(p)
		if frozen {
			out.link.Evidence = "as below a file system that is frozen (fsfreeze -u MOUNTPOINT thaws it)"
		}
		return out
	}
	out := wait{
		key: "mount " + m.Point, state: health.LinkBlocked,
		evidence: fmt.Sprintf("thread %d waits in %s", p.tid, p.channel),
	}
	if path != "" {
		out.evidence += ", for " + path
	}
	if !ok {
		out.key = "path " + path
		out.link = health.Link{
			Kind: health.KindMount, Name: path, State: health.LinkBlocked,
			Evidence: "its mount is not in the process's table of mounts",
		}
		return out
	}
	out.link = health.Link{
		Kind: health.KindMount, Name: m.Point, State: health.LinkBlocked, Fingerprint: mountFingerprint(m.Type, m.Source),
		Evidence: fmt.Sprintf("%s on %s (%s)", m.Type, m.Source, m.Device),
	}
	remote := slices.ContainsFunc(remotes, func(r struct{ channels, types []string }) bool {
		return node.In(m.Type, r.types...)
	})
	switch {
	case strings.HasPrefix(m.Type, "fuse"):
		if n := w.fuseWaiting(m); n != "" {
			out.link.Evidence += "; requests without an answer: " + n
		}
		out.next, out.unknown = w.fuseServer(ctx, m)
	case remote:
		out.link.Evidence += "; its server does not answer"
	case frozen:
		out.link.State = health.LinkFrozen
		out.link.Evidence += "; writes wait for it to be thawed (fsfreeze -u)"
	}
	return out
}

// mountOf returns the mount that a thread waits for: that of the descriptor of its
// system call, else the only one whose server it may wait for.
func (w *Walker) mountOf(p place) (path string, m node.Mount, ok bool) {
	id := 0
	if fd := p.call.FD(); p.call.File != "" && fd >= 0 {
		path = strings.TrimSuffix(w.fd(p.pid, fd), " (deleted)")
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/dev/pts/") {
			path = ""
		} else {
			id = w.fdInfo(p.pid, fd).MountID
		}
	}
	b, err := w.table.ReadSlow(node.Path(w.procfs, p.pid, "mountinfo"), maxMounts)
	if err != nil {
		return path, m, false
	}
	mounts := node.ParseMounts(b)
	if path != "" {
		if i := slices.IndexFunc(mounts, func(m node.Mount) bool { return id != 0 && m.ID == id }); i >= 0 {
			return path, mounts[i], true
		}
		m, ok = node.MountOf(mounts, path)
		return path, m, ok
	}
	devices := map[string]bool{}
	for _, one := range mounts {
		if node.In(one.Type, remoteTypes(p.channel)...) && w.fuseWaiting(one) != "0" {
			m, devices[one.Device] = one, true
		}
	}
	return "", m, len(devices) == 1
}

// fuseWaiting is how many requests of a FUSE mount have no answer, "" where that is not
// known or the mount is another one.
func (w *Walker) fuseWaiting(m node.Mount) string {
	_, minor, _ := strings.Cut(m.Device, ":")
	if !strings.HasPrefix(m.Type, "fuse") {
		return ""
	}
	b, _ := node.ReadFile(w.sysfs, "fs/fuse/connections", minor, "waiting")
	return strings.TrimSpace(string(b))
}

// fuseServer returns the process that serves a FUSE mount: by the connection in the fdinfo
// of its descriptor, where the kernel shows it.
func (w *Walker) fuseServer(ctx context.Context, m node.Mount) (next int, unknown string) {
	_, minor, _ := strings.Cut(m.Device, ":")
	return w.holder(ctx, 0, "this FUSE mount", func(to string, info func() node.FDInfo) bool {
		if to != "/dev/fuse" {
			return false
		}
		n := info().FuseConnection
		return n == -1 || strconv.Itoa(n) == minor
	})
}

// isAgentChannel reports whether a thread in that kernel function waits for an agent's
// answer to a fanotify permission event.
func isAgentChannel(channel string) bool {
	return node.In(channel, "fanotify_handle_event", "fanotify_get_response")
}

// agentWait adds the fanotify agent without whose answer a thread may not continue.
func (w *Walker) agentWait(ctx context.Context, f *waiting, p place) {
	const what, link = "fanotify permission events", "anon_inode:[fanotify]"
	out := wait{
		key: link, state: health.LinkPeer,
		evidence: fmt.Sprintf("thread %d waits in %s for the agent that decides about %s", p.tid, p.channel, what),
	}
	if path, _, _ := w.mountOf(p); path != "" {
		out.evidence += ", to access " + path
	}
	out.next, out.unknown = w.holder(ctx, p.pid, what, func(to string, info func() node.FDInfo) bool {
		return to == link && info().Permits
	})
	f.add(out)
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
