package evidence

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

const (
	// A client that has connected and never reads the server's SETTINGS harms nobody.
	// The runtime is held up when its writes block: HTTP/2 sends 64 KiB that the client
	// has not taken, and the kernel queues 208 KiB of its memory
	// (net.core.wmem_default). These are about half of either.
	stuckUnread = 32 << 10
	stuckUnsent = 128 << 10
	// maxStuck bounds the clients that are named.
	maxStuck = 16
	// holderSearchInterval is the time between two searches for the process of a client
	// that could not be found.
	holderSearchInterval = 30 * time.Second
	// dumpShare bounds the time of the dumps: after one, nothing is dumped for so many
	// times as long.
	dumpShare = 50
)

// NewConnections returns the source of the accepted connections of the listener at path:
// whether the runtime reads what it is sent, and which clients do not read what it sends.
//
// Its numbers are those of plegd's network namespace and need no privilege. Naming a
// client takes CAP_SYS_PTRACE; its PID is 0 without. A client that does not process what
// its own thread has read cannot be seen.
func NewConnections(table *node.Table, path func() string) *Watch[health.Connections] {
	c := newConnectionsSource(table, path)
	return NewWatch(Spec[health.Connections]{
		Name: "connections", Every: 5, Timeout: 2 * time.Second, Gather: c.gather,
		Again: func(*health.Connections) bool { return len(c.waits) > 0 },
		Store: func(e *health.Evidence, v *health.Connections) { e.Connections = v },
	})
}

type connectionsSource struct {
	path   func() string
	table  *node.Table
	finder listenerFinder

	unread bounded.Since[string] // by path
	// waits are the connections with bytes that the client has not read.
	waits map[wait]time.Time
	since bounded.Since[wait]
	// clients are the processes of sockets, by inode; a zero ID was not found.
	clients  map[uint32]proc.ID
	searched time.Time
	rest     time.Time // until when nothing is dumped
	last     *health.Connections
}

// wait is a connection that holds up the runtime. It is the same wait while none of the
// numbers changes.
type wait struct {
	cookie         uint64
	client         uint32 // the inode of the client's end
	unsent, unread uint32
}

func newConnectionsSource(table *node.Table, path func() string) *connectionsSource {
	return &connectionsSource{path: path, table: table}
}

func (c *connectionsSource) gather(ctx context.Context) (*health.Connections, error) {
	path := c.path()
	if path == "" {
		c.unread.Clear()
		c.waits = nil
		return nil, ErrNoData
	}
	now := time.Now()
	if c.last != nil && now.Before(c.rest) {
		return c.last, nil
	}
	l, listening, err := c.finder.find(ctx, path)
	if err != nil {
		return nil, err
	}
	names := c.finder.looker.last.names
	all := map[uint32]sockdiag.Socket{}
	err = c.finder.diag.All(ctx, 1<<sockdiag.Established, sockdiag.ShowEnd, func(s sockdiag.Socket) {
		if s.Inode != 0 && s.Kind == unix.SOCK_STREAM { // 0: not accepted yet
			all[s.Inode] = s
		}
	})
	if err != nil {
		return nil, err
	}
	c.rest = time.Now().Add(dumpShare * time.Since(now))
	out := &health.Connections{At: now}
	var waits []wait
	for _, server := range all {
		// The server's end has the name and the file of its listener.
		if listening && (server.Name != l.Name || server.File != l.File) || !listening && !slices.Contains(names, server.Name) {
			continue
		}
		out.Accepted++
		if server.RQueue > 0 {
			out.Unread++
			out.UnreadBytes += int(server.RQueue)
		}
		client := all[server.Peer]
		if server.WQueue > 0 && client.RQueue > 0 && (client.RQueue >= stuckUnread || server.WQueue >= stuckUnsent) {
			waits = append(waits, wait{server.Cookie, client.Inode, server.WQueue, client.RQueue})
		}
	}
	out.UnreadSince = c.unread.While(now, path, out.Unread > 0)
	out.Stuck = c.stuck(ctx, now, waits)
	c.last = out
	return out, nil
}

// stuck returns the clients that have not read since the last sample, the longest first.
func (c *connectionsSource) stuck(ctx context.Context, now time.Time, waits []wait) (out []health.StuckClient) {
	c.waits = c.since.Update(now, waits...)
	waits = slices.DeleteFunc(waits, func(w wait) bool { return c.waits[w].Equal(now) })
	slices.SortFunc(waits, func(a, b wait) int {
		return cmp.Or(c.waits[a].Compare(c.waits[b]), cmp.Compare(a.client, b.client))
	})
	waits = waits[:min(len(waits), maxStuck)]
	c.identify(ctx, waits)
	for _, w := range waits {
		client := health.StuckClient{UnsentBytes: int(w.unsent), UnreadBytes: int(w.unread), Since: c.waits[w]}
		id := c.clients[w.client]
		if p, err := c.table.Alive(id.PID); err == nil && p.ID() == id {
			client.PID, client.Comm, client.State = p.PID, p.Comm, string(p.State)
		}
		out = append(out, client)
	}
	return out
}

// identify finds the processes of clients that are not known.
func (c *connectionsSource) identify(ctx context.Context, waits []wait) {
	known := map[uint32]proc.ID{}
	var search []uint32
	for _, w := range waits {
		id, ok := c.clients[w.client]
		p, err := c.table.Alive(id.PID)
		switch {
		case id.PID != 0 && err == nil && p.ID() == id, ok && id.PID == 0 && time.Since(c.searched) < holderSearchInterval:
			known[w.client] = id
		default:
			search = append(search, w.client)
		}
	}
	if len(search) > 0 {
		c.searched = time.Now()
		pids, _ := c.table.Holders(ctx, search...) // those that cannot be named have no pid
		for _, inode := range search {
			known[inode] = proc.ID{}
			if p, err := c.table.Alive(pids[inode]); err == nil {
				known[inode] = p.ID()
			}
		}
	}
	c.clients = known
}
