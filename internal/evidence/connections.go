package evidence

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

const (
	// One question costs as much as dumpRows rows of a dump of all connected
	// sockets (measured: 15 µs and 2 µs). With more than tableRows in the table
	// there is no dump; each sample then asks about endsAtOnce connections.
	dumpRows   = 8
	tableRows  = 4000
	endsAtOnce = 64

	// A client may leave a little unread for as long as it likes: somebody who
	// has connected and says nothing never reads the server's SETTINGS, and harms
	// nobody. The runtime is held up when its writes go no further: HTTP/2 lets
	// 64 KiB go out that the client has not taken, and the kernel lets 208 KiB of
	// its memory wait (net.core.wmem_default), which small messages fill with a
	// few thousand bytes. These are about half of either.
	stuckUnread = 32 << 10
	stuckUnsent = 128 << 10

	// connectionsPeriod is how often the connections are looked at, connectionsSoon
	// while one of them holds up the runtime, or may.
	connectionsPeriod = 5 * time.Second
	connectionsSoon   = time.Second

	// stuckMax limits the clients that are named.
	stuckMax = 16
)

// NewConnections watches the accepted connections of the listener at path, which
// returns "" while there is none, every five seconds, and every second while one
// holds up the runtime: whether the runtime reads
// what it is sent, and which of its clients do not read what it sends.
//
// Its numbers need AF_NETLINK and the kernel's unix_diag, no privilege, and are
// those of its own network namespace only. A client that does not read what its
// own thread has read from the socket cannot be seen. To name a client takes the
// right to look at other processes' descriptors (root and CAP_SYS_PTRACE); its
// PID is 0 without. plegd's own connections are judged like any other.
func NewConnections(procfs string, path func() string) *Watch[health.Connections] {
	c := newConnectionsSource(procfs, path)
	return NewWatch(Spec[health.Connections]{
		Name: "connections", Period: connectionsPeriod, Timeout: 2 * time.Second,
		Fast: connectionsSoon, Urgent: func(*health.Connections) bool { return len(c.waits) > 0 },
		Gather: c.gather, Store: func(e *health.Evidence, v *health.Connections) { e.Connections = v },
	})
}

type connectionsSource struct {
	path    func() string
	finder  listenerFinder
	looker  pathLooker
	holders holders

	unread time.Time
	// waits are the connections with bytes that the client has not read, by
	// the inode of the runtime's end.
	waits map[uint32]unreadWait
	// next is where to go on in a table that is too large.
	next int
}

// unreadWait is one connection that held up the runtime in the last sample.
type unreadWait struct {
	cookie         uint64
	unsent, unread uint32
	since          time.Time
}

// connection is both ends of a connection.
type connection struct {
	server, client sockdiag.Socket
}

func newConnectionsSource(procfs string, path func() string) *connectionsSource {
	return &connectionsSource{
		path: path, finder: listenerFinder{procfs: procfs}, looker: pathLooker{look: lookAt}, holders: holders{procfs: procfs},
	}
}

func (c *connectionsSource) gather(ctx context.Context) (*health.Connections, error) {
	path := c.path()
	if path == "" {
		c.unread, c.waits = time.Time{}, nil
		return nil, ErrNoData
	}
	p := c.looker.at(ctx, path)
	l, t, listening, err := c.finder.find(ctx, p)
	if err != nil {
		return nil, err
	}
	pairs, err := c.pairs(ctx, t)
	if err != nil {
		return nil, err
	}
	// The table is a hint only: see there.
	pairs = slices.DeleteFunc(pairs, func(e connection) bool {
		if listening {
			return e.server.Name != l.Name || e.server.File != l.File
		}
		return !slices.Contains(p.names, e.server.Name)
	})
	now := time.Now()
	out := &health.Connections{At: now, Accepted: t.Accepted}
	for _, e := range pairs {
		if e.server.RQueue > 0 {
			out.Unread++
			out.UnreadBytes += int(e.server.RQueue)
		}
	}
	switch {
	case out.Unread == 0:
		c.unread = time.Time{}
	case c.unread.IsZero():
		c.unread = now
	}
	out.UnreadSince = c.unread
	out.Stuck = c.stuck(ctx, pairs, now)
	return out, nil
}

// stuck tells the clients that have not read since the last sample, those that
// have been so for longest first.
func (c *connectionsSource) stuck(ctx context.Context, pairs []connection, now time.Time) []health.StuckClient {
	waits := map[uint32]unreadWait{}
	var still []connection
	for _, e := range pairs {
		if e.server.WQueue == 0 || e.client.RQueue == 0 || e.client.RQueue < stuckUnread && e.server.WQueue < stuckUnsent {
			continue
		}
		w := unreadWait{cookie: e.server.Cookie, unsent: e.server.WQueue, unread: e.client.RQueue, since: now}
		if before, ok := c.waits[e.server.Inode]; ok && before.cookie == w.cookie && before.unsent == w.unsent && before.unread == w.unread {
			w.since = before.since
			still = append(still, e)
		}
		waits[e.server.Inode] = w
	}
	c.waits = waits
	slices.SortFunc(still, func(a, b connection) int {
		return cmp.Or(waits[a.server.Inode].since.Compare(waits[b.server.Inode].since), cmp.Compare(a.server.Inode, b.server.Inode))
	})
	still = still[:min(len(still), stuckMax)]

	inodes := make([]uint32, 0, len(still))
	for _, e := range still {
		inodes = append(inodes, e.client.Inode)
	}
	who := c.holders.of(ctx, inodes)
	out := make([]health.StuckClient, 0, len(still))
	for _, e := range still {
		o := who[e.client.Inode]
		out = append(out, health.StuckClient{
			PID: o.pid, Comm: o.comm, State: o.state,
			UnsentBytes: int(e.server.WQueue), UnreadBytes: int(e.client.RQueue),
			Since: waits[e.server.Inode].since,
		})
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// pairs asks about the connections in the table; the client's end only where
// the runtime has sent something that waits.
func (c *connectionsSource) pairs(ctx context.Context, t sockdiag.Table) ([]connection, error) {
	if t.Rows <= tableRows && (len(t.Ends) > endsAtOnce || dumpRows*len(t.Ends) > t.Rows) {
		return c.dump(ctx, t.Ends)
	}
	var out []connection
	for _, inode := range c.some(t.Ends) {
		e, err := c.pair(ctx, inode)
		if errors.Is(err, sockdiag.ErrGone) {
			continue // closed between the two questions
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (c *connectionsSource) pair(ctx context.Context, inode uint32) (connection, error) {
	server, err := c.finder.diag.One(ctx, inode, sockdiag.ShowEnd)
	if err != nil || server.WQueue == 0 || server.Peer == 0 {
		return connection{server: server}, err
	}
	client, err := c.finder.diag.One(ctx, server.Peer, sockdiag.ShowRQLen)
	if errors.Is(err, sockdiag.ErrGone) {
		err = nil
	}
	return connection{server, client}, err
}

// dump asks about all connected sockets at once.
func (c *connectionsSource) dump(ctx context.Context, ends []uint32) ([]connection, error) {
	all := map[uint32]sockdiag.Socket{}
	err := c.finder.diag.All(ctx, 1<<sockdiag.Established, sockdiag.ShowEnd, func(s sockdiag.Socket) { all[s.Inode] = s })
	if err != nil {
		return nil, err
	}
	out := make([]connection, 0, len(ends))
	for _, inode := range ends {
		if server, ok := all[inode]; ok {
			out = append(out, connection{server, all[server.Peer]})
		}
	}
	return out, nil
}

// some takes as many ends as may be asked about: all, where that goes; else
// those that waited last time, and of the others each time the next ones.
func (c *connectionsSource) some(ends []uint32) []uint32 {
	if len(ends) <= endsAtOnce {
		return ends
	}
	out := make([]uint32, 0, endsAtOnce)
	for _, inode := range ends {
		if _, ok := c.waits[inode]; ok && len(out) < endsAtOnce/2 {
			out = append(out, inode)
		}
	}
	for range ends {
		if len(out) == endsAtOnce {
			break
		}
		inode := ends[c.next%len(ends)]
		c.next = (c.next + 1) % len(ends)
		if !slices.Contains(out, inode) {
			out = append(out, inode)
		}
	}
	return out
}
