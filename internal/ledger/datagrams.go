package ledger

import (
	"context"
	"fmt"
)

// datagrams notes the servers that do not read the datagrams of the runtime, or of a hop behind it, such as a name server
// on the node. A client makes a new socket for each attempt: so the server's socket is what is owed.
func (p *pass) datagrams(ctx context.Context) {
	servers, err := p.readUDP(ctx)
	p.unread.Add(udpSockets, err)
	for _, s := range servers {
		o := p.keepSocket(unreadBytes, s.Socket)
		if o.waiter == 0 && p.age(o) >= limit {
			o.waiter = p.clientOf(s.Clients)
		}
		if o.waiter == 0 {
			continue
		}
		o.name = s.Name
		o.evidence = fmt.Sprintf("the datagrams that it sends to %s are not read (%d bytes wait there)", s.Name, s.RQueue)
		p.resolveDebtor(ctx, o)
	}
}

// clientOf returns the hop that has one of some sockets now, 0 for none.
func (p *pass) clientOf(sockets []uint32) int {
	if len(sockets) == 0 {
		return 0
	}
	p.rereadHops()
	for _, socket := range sockets {
		pid := pidOf(p.ofHops, socket)
		if pid != 0 {
			return pid
		}
	}
	return 0
}
