package bundle

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
)

// Sockets is the part of the unix sockets that have a name or belong to a process
// of a runtime: queues, unread bytes, and the processes at both ends.
func Sockets(procfs string) Part {
	return Part{Name: "unix sockets", Time: 2 * partTime, Gather: func(ctx context.Context, add Add) error {
		var d sockdiag.Conn
		defer d.Close()
		if err := d.Open(ctx); err != nil {
			return fmt.Errorf("sock_diag: %w", err)
		}
		all := map[uint32]sockdiag.Socket{}
		states := uint32(1<<sockdiag.Established | 1<<sockdiag.Listening)
		if err := d.All(ctx, states, sockdiag.ShowEnd, func(s sockdiag.Socket) { all[s.Inode] = s }); err != nil {
			return fmt.Errorf("sock_diag: %w", err)
		}
		owners, err := socketOwners(ctx, procfs)
		add("node/unix-sockets.txt", socketTable(all, owners), 2*partBytes)
		return err
	}}
}

// socketOwners returns the processes that hold each socket.
func socketOwners(ctx context.Context, procfs string) (map[uint32][]process, error) {
	all, err := listProcesses(procfs)
	if err != nil {
		return nil, err
	}
	owners := map[uint32][]process{}
	denied := 0
	for _, p := range all {
		if ctx.Err() != nil {
			return owners, errors.New("the processes behind some sockets are missing: the time was over")
		}
		dir := filepath.Join(procfs, fmt.Sprint(p.pid))
		if proc.MayReadFDs(dir) != nil {
			denied++
		}
		proc.EachSocket(filepath.Join(dir, "fd"), func() bool { return ctx.Err() != nil }, func(inode uint32) {
			if !slices.ContainsFunc(owners[inode], func(o process) bool { return o.pid == p.pid }) {
				owners[inode] = append(owners[inode], p)
			}
		})
	}
	if denied > 0 {
		return owners, fmt.Errorf("the sockets of %d processes could not be read: that takes CAP_SYS_PTRACE", denied)
	}
	return owners, nil
}

// socketTable lists the sockets by name.
func socketTable(all map[uint32]sockdiag.Socket, owners map[uint32][]process) []byte {
	var list []sockdiag.Socket
	for _, s := range all {
		if s.Name != "" || all[s.Peer].Name != "" || slices.ContainsFunc(owners[s.Inode], func(p process) bool { return named(p.stat.Comm) }) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b sockdiag.Socket) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.State, a.State), cmp.Compare(a.Inode, b.Inode)) // listeners first
	})
	var b bytes.Buffer
	fmt.Fprintln(&b, "For a listener the queues are: connections not yet accepted, and the most that fit. For a connection: bytes not yet read, and memory of what the other end has not read.")
	fmt.Fprintf(&b, "%-6s %10s %10s %8s %8s %s\n", "STATE", "INODE", "PEER", "RQUEUE", "WQUEUE", "NAME, PROCESSES")
	for _, s := range list {
		state := "conn"
		if s.Listens() {
			state = "listen"
		}
		fmt.Fprintf(&b, "%-6s %10d %10d %8d %8d %q %s\n", state, s.Inode, s.Peer, s.RQueue, s.WQueue, s.Name, ownersText(owners[s.Inode]))
	}
	return b.Bytes()
}

func ownersText(list []process) string {
	if len(list) == 0 {
		return "-"
	}
	var b bytes.Buffer
	for i, p := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%d/%s", p.pid, fileName(p.stat.Comm))
	}
	return b.String()
}
