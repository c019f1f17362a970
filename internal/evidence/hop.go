package evidence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// hop is a process that serves a socket in the CRI call path, with the sources that show it:
// the accept queue, the listener, the process and its cgroup.
type hop struct {
	prefix, caution string // of its sources' names, "" for the runtime; what a restart of it does
	procfs, sysfs   string
	table           *proc.Table
	dialer          *Dialer
	path            func() string
	dialed          func() *cri.DialResult        // the last connect(2) of the held connection, nil for none
	calm            func() bool                   // nil for never
	doubt           *atomic.Pointer[facts.Source] // why a process is not believed to lead to it; nil of the runtime

	queue   func() *facts.Queue
	process *Process
	sources []Source
}

// watch makes the sources.
func (h *hop) watch() *hop {
	queue := newQueue(h)
	h.queue = queue.Value
	h.process = newProcess(h)
	cgroup := newCgroup(h.prefix+"cgroup", h.procfs, h.sysfs, h.process.PID)
	h.sources = []Source{queue, newListener(h), h.process, cgroup}
	return h
}

// peer is the process at the other end of a connection, by SO_PEERCRED: 0 while it is not known,
// 1 where systemd made the socket.
type peer struct {
	pid int
	at  time.Time // when the connection was made
}

// peers returns the peers of the held connection to the socket and of the last fresh one.
func (h *hop) peers() (held, probed peer) {
	dialed := h.dialed()
	if dialed != nil && dialed.Err == nil {
		held = peer{pid: dialed.PeerPID, at: dialed.At}
	}
	result := h.dialer.peer.Load()
	if result != nil && h.dialer.Last().Cause != facts.CauseProtocol {
		probed = peer{pid: result.PeerPID, at: result.At}
	}
	return held, probed
}

// checkShown returns an error where /proc does not show a process to plegd. failed is that of
// its stat.
func (h *hop) checkShown(pid int, failed error) error {
	_, err := proc.ReadStat(h.procfs, 1)
	if err == nil && !errors.Is(failed, proc.Denied) {
		return nil
	}
	return fmt.Errorf("look at pid %d, which listens at the runtime's socket: "+
		"%s does not show it to plegd (hidepid, ProtectProc, or another pid namespace)", pid, h.procfs)
}

// holder returns the process that has the listener at the path open.
func (h *hop) holder(ctx context.Context) (proc.Process, error) {
	queue := h.queue()
	if queue == nil || queue.Inode == 0 {
		return proc.Process{}, proc.ErrGone
	}
	return h.table.Holder(ctx, uint32(queue.Inode)) //nolint:gosec // of a socket: 32 bits
}

// isCalm reports whether no call is late and no other source shows a fault.
func (h *hop) isCalm() bool { return h.calm != nil && h.calm() }

// nameOf returns the first word of a process's arguments, as the others may hold a secret, and
// its systemd service, each "" where it cannot be read.
func (h *hop) nameOf(id proc.ID) (command, unit string) {
	if args := h.table.Args(id); len(args) > 0 {
		command, _, _ = strings.Cut(args[0], " ")
		command = strings.ToValidUTF8(command[:min(len(command), 100)], "?")
	}
	cgroup, _ := proc.ReadFile(proc.Path(h.procfs, id.PID, "cgroup")) // without it there is no unit
	return command, proc.ParseCgroups(cgroup).Service()
}

// facts stores the last samples of a hop behind the runtime, if it has a socket, and the
// state of its sources as that of one: the first one that fails.
func (h *hop) facts(out *facts.Evidence) {
	e := facts.Evidence{Hop: facts.Hop{Socket: h.path(), Caution: h.caution}}
	name := strings.TrimSuffix(h.prefix, "_")
	if e.Socket == "" {
		if doubt := h.doubt.Load(); doubt != nil {
			out.Sources[name] = *doubt
		}
		return
	}
	var state facts.Source
	parts := map[string]string{}
	for i, source := range h.sources {
		report, ok := source.report(&e)
		if !ok {
			continue
		}
		maps.Copy(parts, report.Unread)
		if i == 0 || !report.Up && state.Err == "" {
			state = report
		}
	}
	state.Unread = nil
	if len(parts) > 0 {
		state.Unread = parts
	}
	if p := h.dialer.last.Load(); !p.At.IsZero() {
		e.Answer = p
	}
	out.Hops = append(out.Hops, e.Hop)
	out.Sources[name] = state
}
