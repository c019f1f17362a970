package chain

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// maxMounts bounds the table of mounts of a process, in bytes.
	maxMounts = 1 << 20
	// oldChild is how much older than the fault a child may be that a process with
	// several threads waits for: the kubelet's deadline for a pod, and some.
	oldChild = 5 * time.Minute
)

// heldBy completes a wait with the process that holds a descriptor which leads to a place,
// "/" for any file, and for which keep is true by its fdinfo. Of several, the process itself
// and pid 1, which keeps the sockets that systemd made, do not count; else the only one that
// does not run counts. It is the process itself where no other holds one.
func (f *waiting) heldBy(ctx context.Context, out wait, what, to string, keep func(proc.FDInfo) bool) wait {
	pids, err := proc.Holders(ctx, f.procfs, func(pid, fd int, at string) bool {
		there := at == to || to == "/" && strings.HasPrefix(at, to)
		return there && (keep == nil || keep(proc.ReadFDInfo(f.procfs, pid, fd)))
	})
	rest := slices.DeleteFunc(slices.Clone(pids), func(p int) bool { return p == f.pid || p == 1 && len(pids) > 1 })
	held := slices.DeleteFunc(slices.Clone(rest), func(pid int) bool {
		p, err := proc.ReadStat(f.procfs, pid)
		return err != nil || strings.IndexByte("TtD", p.State) < 0
	})
	if len(rest) > 1 && len(held) == 1 {
		rest = held
	}
	switch {
	case len(rest) == 1:
		out.next = rest[0]
	case len(rest) > 1:
		out.unknown = fmt.Sprintf("%d processes hold the other end of %s", len(rest), what)
	case err != nil:
		out.unknown = "the holder of the other end of " + what + " cannot be read (CAP_SYS_PTRACE)"
	case len(pids) > 0:
		out.next = f.pid
	default:
		out.unknown = "no process that plegd can see holds the other end of " + what
	}
	return out
}

// fileWait adds the wait of a thread in the kernel for a file system: which file, on which
// mount, and the process that serves it.
func (f *waiting) fileWait(ctx context.Context, t thread) {
	state := t.kind().state
	path, m, ok := f.mountOf(t)
	if state == facts.LinkEnded || !ok && path == "" {
		out := kernelWait(t)
		if state == facts.LinkFrozen {
			out.link.Evidence = "as below a file system that is frozen (fsfreeze -u MOUNTPOINT thaws it)"
		}
		f.add(out)
		return
	}
	out := wait{
		key: "mount " + m.Point, state: facts.LinkBlocked, evidence: fmt.Sprintf("thread %d waits in %s", t.PID, t.channel),
		link: facts.Link{
			Kind: facts.KindMount, Name: m.Point, State: facts.LinkBlocked, Fingerprint: mountFingerprint(m.Type, m.Source),
			Evidence: fmt.Sprintf("%s on %s (%s)", m.Type, m.Source, m.Device),
		},
	}
	if path != "" {
		out.evidence += ", for " + path
	}
	remote := slices.ContainsFunc(channels, func(c channel) bool { return proc.In(m.Type, c.types...) })
	switch _, minor, _ := strings.Cut(m.Device, ":"); {
	case !ok:
		out.key, out.link.Name, out.link.Fingerprint = "path "+path, path, ""
		out.link.Evidence = "its mount is not in the process's table of mounts"
	case strings.HasPrefix(m.Type, "fuse"):
		if n := f.fuseWaiting(m); n != "" {
			out.link.Evidence += "; requests without an answer: " + n
		}
		// The connection is in the fdinfo of the server's descriptor, where the kernel shows it.
		out = f.heldBy(ctx, out, "this FUSE mount", "/dev/fuse", func(info proc.FDInfo) bool {
			return info.FuseConnection == -1 || strconv.Itoa(info.FuseConnection) == minor
		})
	case remote:
		out.link.Evidence += "; its server does not answer"
	case state == facts.LinkFrozen:
		out.link.State = facts.LinkFrozen
		out.link.Evidence += "; writes wait for it to be thawed (fsfreeze -u)"
	}
	f.add(out)
}

// mountOf returns the mount that a thread waits for: that of the descriptor of its
// system call, else the only one whose server it may wait for.
func (f *waiting) mountOf(t thread) (path string, m proc.Mount, ok bool) {
	if f.mounts == nil {
		b, _ := f.table.ReadSlow(proc.Path(f.procfs, f.pid, "mountinfo"), maxMounts) // of nothing there is none
		f.mounts = proc.ParseMounts(b)
	}
	if fd := t.call.FD(); t.call.File != "" && fd >= 0 {
		path = strings.TrimSuffix(f.fd(fd), " (deleted)")
		if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "/dev/pts/") {
			id := proc.ReadFDInfo(f.procfs, f.pid, fd).MountID
			if i := slices.IndexFunc(f.mounts, func(m proc.Mount) bool { return id != 0 && m.ID == id }); i >= 0 {
				return path, f.mounts[i], true
			}
			return path, m, false // it is detached, as by umount -l
		}
	}
	devices := map[string]bool{}
	for _, one := range f.mounts {
		if proc.In(one.Type, t.kind().types...) && f.fuseWaiting(one) != "0" {
			m, devices[one.Device] = one, true
		}
	}
	return "", m, len(devices) == 1
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
	if path, _, _ := f.mountOf(t); path != "" {
		out.evidence += ", to access " + path
	}
	f.add(f.heldBy(ctx, out, what, link, func(info proc.FDInfo) bool { return info.Permits }))
}

// fileLocks adds the holders of the locks for which the process waits by /proc/locks. The
// wait for a lock of an open file stands there without a process: threads show the file.
func (f *waiting) fileLocks(ctx context.Context) {
	b, _ := proc.ReadFile(f.procfs, "locks") // what cannot be read shows none
	path := func(file string) string { return f.lockPaths[file[strings.LastIndexByte(file, ':')+1:]] }
	waits := slices.DeleteFunc(proc.ParseLocks(b), func(l proc.Lock) bool {
		return !l.WaitsFor(f.pid) && (!l.Waiting || l.PID >= 0 || path(l.File) == "")
	})
	p := cmp.Or(f.symptom.Locked, &facts.Process{})
	if l := p.Lock; p.PID == f.pid && l != nil && l.HolderPID > 0 && len(f.found)+len(waits) == 0 {
		waits = append(waits, proc.Lock{File: l.File, Holder: l.HolderPID})
	}
	for _, l := range waits {
		out := wait{
			key: "lock " + l.File, state: facts.LinkLocked, next: l.Holder,
			evidence: "waits for the lock of " + cmp.Or(path(l.File), "file "+l.File),
		}
		if l.Holder == 0 {
			// The descriptor shows a lock of an open file, which has no process.
			out = f.heldBy(ctx, out, "the lock", "/", func(info proc.FDInfo) bool {
				return slices.ContainsFunc(info.Locks, func(h proc.Lock) bool { return h.File == l.File && !h.Waiting })
			})
		}
		if out.next != 0 {
			out.evidence += fmt.Sprintf(", which pid %d has", out.next)
		}
		f.add(out)
	}
}

// child adds the wait for a child.
func (f *waiting) child(pid int, format string, args ...any) {
	f.add(wait{state: facts.LinkChild, next: pid, evidence: fmt.Sprintf(format, args...)})
}

// vforkWait follows a thread that waits until its child has begun another program: to the
// youngest child, which still is the same program.
func (f *waiting) vforkWait(ctx context.Context, t thread) {
	var child proc.Process
	for _, c := range f.processes(ctx).Children(f.pid) {
		if c.Comm == f.now.threads[f.pid].Comm && c.Start >= child.Start {
			child = c
		}
	}
	if child.PID == 0 {
		f.add(kernelWait(t))
		return
	}
	f.child(child.PID, "thread %d waits for its child, pid %d, to begin another program", t.PID, child.PID)
}

// childWait follows a thread that sleeps in wait4(2) or waitid(2).
func (f *waiting) childWait(ctx context.Context, t thread) {
	var pid int
	switch call := t.call; {
	case call.Number == unix.SYS_WAIT4:
		pid = int(int32(call.Args[0])) //nolint:gosec // -1 is any child
	case call.Args[0] == unix.P_PID:
		pid = int(int32(call.Args[1])) //nolint:gosec // a pid
	case call.Args[0] == unix.P_PIDFD:
		pid = proc.ReadFDInfo(f.procfs, f.pid, int(call.Args[1])).PID //nolint:gosec // a descriptor
	}
	children := slices.DeleteFunc(f.processes(ctx).Children(f.pid), func(c proc.Process) bool {
		return pid > 0 && c.PID != pid
	})
	if len(children) != 1 {
		f.doubt("thread %d waits for any of %d children", t.PID, len(children))
		return
	}
	c, begun := children[0], f.symptom.Since
	switch {
	case c.Comm == "containerd": // dockerd's runs for as long as its parent
	case len(f.now.threads) > 1 && !begun.IsZero() && time.Since(begun)+oldChild < age(c):
		f.doubt("thread %d waits for its child, pid %d, which has run since long before", t.PID, c.PID)
	default:
		f.child(c.PID, "thread %d waits for its child, pid %d (%s), to end", t.PID, c.PID, c.Comm)
	}
}

// helpers adds the helpers of a shim: children that are to end soon. Of several, the one
// that works on the container in question.
func (f *waiting) helpers(ctx context.Context) {
	target, _ := f.sweep.target()
	all := f.helpersOf(ctx, f.pid, target.ID)
	if len(all) == 0 {
		all = f.helpersOf(ctx, f.pid, "")
	}
	for _, c := range all {
		f.child(c.PID, "waits for its helper, pid %d (%s), which has run for %s", c.PID, c.Comm,
			age(c).Round(100*time.Millisecond))
	}
}
