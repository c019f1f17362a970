package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

// holder returns the process, other than pid, that holds a descriptor for which keep is
// true: where it leads and, on request, its fdinfo decide. Of several, pid 1 does not
// count, since systemd keeps the sockets that it made; else the only one that does not run
// counts. The text is the reason why there is none; alone is true where only pid itself
// holds one.
func (w *Walker) holder(
	ctx context.Context, pid int, what string, keep func(to string, info func() []byte) bool,
) (next int, unknown string, alone bool) {
	var pids []int
	hidden := false
	all, err := proc.Numbers(w.procfs, maxProcesses)
	for _, p := range all {
		failed := proc.EachFD(w.procfs, p, func(fd, to string) bool {
			if keep(to, func() []byte { return w.rawFDInfo(p, fd) }) {
				pids = append(pids, p)
				return false
			}
			return ctx.Err() == nil
		})
		hidden = hidden || failed != nil && !proc.Gone(failed)
	}
	rest := slices.DeleteFunc(slices.Clone(pids), func(p int) bool { return p == pid || p == 1 && len(pids) > 1 })
	if held := slices.DeleteFunc(slices.Clone(rest), w.runs); len(rest) > 1 && len(held) == 1 {
		rest = held
	}
	switch {
	case len(rest) == 1:
		return rest[0], "", false
	case len(rest) > 1:
		return 0, fmt.Sprintf("%d processes hold the other end of %s", len(rest), what), false
	case err != nil, hidden, ctx.Err() != nil:
		return 0, "the holder of the other end of " + what + " cannot be read (CAP_SYS_PTRACE)", false
	case len(pids) > 0:
		return 0, "only the process itself holds the other end of " + what, true
	}
	return 0, "no process that plegd can see holds the other end of " + what, false
}

// maxProcesses bounds the processes whose descriptors are read.
const maxProcesses = 32768

// runs reports whether the first thread of a process is neither stopped, traced nor in D.
func (w *Walker) runs(pid int) bool {
	s, err := proc.ReadStat(w.procfs, pid)
	return err != nil || strings.IndexByte("TtD", s.State) < 0
}

// socketHolder is holder for a socket.
func (w *Walker) socketHolder(
	ctx context.Context, pid int, what string, inode uint32,
) (next int, unknown string, alone bool) {
	link := fmt.Sprintf("socket:[%d]", inode)
	return w.holder(ctx, pid, what, func(to string, _ func() []byte) bool { return to == link })
}

// sockets returns the connected unix sockets of a process, by the inode of its own
// end; denied is true where they cannot be seen.
func (w *Walker) sockets(ctx context.Context, pid int) (out map[uint32]socketPair, denied bool) {
	out = map[uint32]socketPair{}
	var inodes []uint32
	err := proc.EachSocket(w.procfs, pid, func(inode uint32) bool {
		inodes = append(inodes, inode)
		return true
	})
	if err != nil && !errors.Is(err, proc.ErrManyFDs) {
		return out, !proc.Gone(err)
	}
	if len(inodes) == 0 {
		return out, false
	}
	if w.netns == "" || w.link(strconv.Itoa(pid)+"/ns/net") != w.netns {
		return out, true // sock_diag sees the sockets of plegd's own network namespace
	}
	all := map[uint32]sockdiag.Socket{}
	err = w.diag.All(ctx, 1<<sockdiag.Established, sockdiag.ShowEnd, func(s sockdiag.Socket) { all[s.Inode] = s })
	for _, inode := range inodes {
		if own, ok := all[inode]; ok && own.Kind == unix.SOCK_STREAM {
			out[inode] = socketPair{own: own, peer: all[own.Peer]}
		}
	}
	return out, err != nil
}

// isLog reports whether a socket is one to which logs are written: no answer is awaited.
func isLog(name string) bool {
	return strings.HasPrefix(name, "/run/systemd/journal/") || name == "/dev/log" || strings.Contains(name, "syslog")
}

// name is the path by which a connection was made, "" where neither end has one.
func (p socketPair) name() string {
	if p.peer.Name != "" {
		return p.peer.Name
	}
	return p.own.Name
}

func (p socketPair) text() string {
	if name := p.name(); name != "" {
		return "socket " + clean(name)
	}
	return "a socket without a name"
}

// fullBuffer is how much memory of a socket's usual send buffer (212,992 bytes) unread
// data must take for a server to wait for the client.
const fullBuffer = 64 << 10

// unreadByPeers adds the processes that leave unread what this one has sent.
func (w *Walker) unreadByPeers(ctx context.Context, f *waiting) {
	for inode, now := range f.now.sockets {
		b, ok := f.before.sockets[inode]
		if !ok || isLog(now.name()) {
			continue
		}
		switch {
		case now.own.Name != "" && now.own.WQueue < fullBuffer:
			// It is the server's end: a client that reads late holds up nobody until
			// there is no room left for data to it.
		case now.peer.Inode != 0 && b.peer.Cookie == now.peer.Cookie && b.peer.RQueue > 0 && now.peer.RQueue >= b.peer.RQueue:
			w.peerWait(ctx, f, now, fmt.Sprintf("%d bytes that it has sent wait unread at the other end of %s",
				now.peer.RQueue, now.text()))
		case now.own.Peer == 0 && b.own.Peer == 0 && b.own.WQueue > 0 && now.own.WQueue >= b.own.WQueue && now.own.Name == "":
			w.acceptWait(ctx, f, now)
		}
	}
}

// peerWait adds the process at the other end of a socket.
func (w *Walker) peerWait(ctx context.Context, f *waiting, p socketPair, evidence string) {
	next, unknown, alone := w.socketHolder(ctx, f.pid, p.text(), p.own.Peer)
	if !alone { // or it talks to itself
		key := fmt.Sprintf("socket %d", p.own.Peer)
		f.add(wait{key: key, state: health.LinkPeer, evidence: evidence, next: next, unknown: unknown})
	}
}

// acceptWait adds the process that does not accept a connection. sock_diag does not
// name the listener at which it waits: it is known where only one has any waiting.
func (w *Walker) acceptWait(ctx context.Context, f *waiting, p socketPair) {
	var full []sockdiag.Socket
	err := w.diag.All(ctx, 1<<sockdiag.Listening, sockdiag.ShowListener, func(s sockdiag.Socket) {
		if s.Listens() && s.RQueue > 0 {
			full = append(full, s)
		}
	})
	out := wait{key: "listener", state: health.LinkPeer}
	out.evidence = fmt.Sprintf("a connection of it, with %d bytes of memory sent, is not accepted", p.own.WQueue)
	switch {
	case err != nil || len(full) == 0:
		return
	case len(full) > 1:
		out.unknown = fmt.Sprintf("connections wait at %d listeners, and the one of its own cannot be seen", len(full))
	default:
		name := "socket " + clean(full[0].Name)
		out.evidence += fmt.Sprintf(" at %s, where %d wait", name, full[0].RQueue)
		out.next, out.unknown, _ = w.socketHolder(ctx, f.pid, name, full[0].Inode)
	}
	f.add(out)
}

// busNames are the sockets by which runc asks systemd for a cgroup.
var busNames = []string{"/run/dbus/system_bus_socket", "/var/run/dbus/system_bus_socket", "/run/systemd/private"}

// services adds the service at the other end of a helper's connection to the system
// bus, or systemd behind it, where that one is stopped, frozen or in D: it may have read
// the request before.
func (w *Walker) services(ctx context.Context, f *waiting) {
	if w.kindOf(ctx, f.now.stat) != health.KindHelper {
		return
	}
	for _, p := range f.now.sockets {
		if !slices.Contains(busNames, p.name()) {
			continue
		}
		service, _, _ := w.socketHolder(ctx, f.pid, p.text(), p.own.Peer)
		for _, pid := range []int{service, 1} {
			s, err := proc.ReadStat(w.procfs, pid)
			if err == nil && pid != f.pid && w.standsStill(ctx, s) {
				f.add(wait{
					state: health.LinkPeer, next: pid,
					evidence: fmt.Sprintf("has a connection to %s, and pid %d (%s) does not run", p.text(), pid, clean(s.Comm)),
				})
			}
		}
	}
}

// standsStill reports whether a process is stopped, traced or frozen, or its first thread
// in D.
func (w *Walker) standsStill(ctx context.Context, s proc.Stat) bool {
	l, ok := w.look(ctx, s)
	if !ok {
		return false
	}
	if _, held := w.held(l); held {
		return true
	}
	return slices.ContainsFunc(l.still(), func(t thread) bool { return t.tid == s.PID && t.state == 'D' })
}

// unread returns what a process leaves unread itself, "" for nothing.
func (l looks) unread() string {
	for inode, n := range l.now.sockets {
		b, ok := l.before.sockets[inode]
		if ok && b.own.Cookie == n.own.Cookie && b.own.RQueue > 0 && n.own.RQueue >= b.own.RQueue {
			return fmt.Sprintf("leaves %d bytes unread on %s", n.own.RQueue, n.text())
		}
	}
	return ""
}

// descriptorWait follows a thread that sleeps in a read or write.
func (w *Walker) descriptorWait(ctx context.Context, f *waiting, p place, writes bool) {
	to := w.fd(f.pid, p.call.Args[0])
	text := fmt.Sprintf("thread %d reads from", p.tid)
	if writes {
		text = fmt.Sprintf("thread %d writes to", p.tid)
	}
	switch {
	case to == "":
		f.denied = true
	case strings.HasPrefix(to, "pipe:["), strings.HasPrefix(to, "/") && strings.Contains(p.channel, "pipe_"):
		if !writes && !f.single() {
			f.doubt("%s a pipe", text)
			return
		}
		w.pipeWait(ctx, f, to, text, writes)
	case strings.HasPrefix(to, "socket:["):
		inode, _ := proc.SocketInode(to)
		s, ok := f.now.sockets[inode]
		switch {
		case !ok:
			f.doubt("%s a socket that is no unix stream", text)
		case !writes && !f.single() || s.own.Peer == 0: // without a peer it is not accepted yet, or closed
			f.doubt("%s %s", text, s.text())
		default:
			w.peerWait(ctx, f, s, text+" "+s.text())
		}
	case !writes && (to == "/dev/fuse" || strings.HasPrefix(to, "anon_inode:")):
		f.calls["read of "+clean(to)]++ // a server that waits for its next request
	case writes && !proc.IdleChannel(p.channel):
		f.kernel = append(f.kernel, kernelWait(p))
	default:
		f.doubt("%s %s", text, clean(to))
	}
}

// pipeWait adds the process at the other end of a pipe.
func (w *Walker) pipeWait(ctx context.Context, f *waiting, to, text string, writes bool) {
	out := wait{key: to, state: health.LinkPeer, evidence: text + " " + clean(to)}
	var alone bool
	out.next, out.unknown, alone = w.holder(ctx, f.pid, "the pipe", func(at string, info func() []byte) bool {
		if at != to {
			return false
		}
		mode := proc.ParseFDInfo(info()).Flags & unix.O_ACCMODE
		return mode == unix.O_RDWR || writes == (mode == unix.O_RDONLY)
	})
	if alone { // it waits for itself
		out.unknown, out.state = "", health.LinkAsleep
		out.evidence += ", of which only it holds the other end"
	}
	f.add(out)
}
