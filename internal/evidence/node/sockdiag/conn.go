package sockdiag

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// ErrGone is returned for an inode that is no socket any more. It is news
// about the socket, not a fault of the source.
var ErrGone = errors.New("no such socket")

// netlinkBuffer holds the largest piece in which the kernel sends a dump.
const netlinkBuffer = 32 << 10

// Conn asks sock_diag about unix sockets, over one netlink socket that it
// keeps and opens again after an error: an answer that came too late would
// otherwise be taken for the next one's. It sees the network namespace of the
// process alone, as /proc/net/unix does. Not for several goroutines at once.
type Conn struct {
	conn *netlink.Conn
}

// One asks about one socket; show is what to tell of it. It returns
// errSocketGone when there is none with that inode.
func (d *Conn) One(ctx context.Context, inode, show uint32) (Socket, error) {
	if inode == 0 {
		return Socket{}, ErrGone // a connection that is not accepted yet
	}
	var out Socket
	err := d.ask(ctx, netlink.Request, diagRequest(inode, 0, show), func(s Socket) { out = s })
	switch {
	case errors.Is(err, unix.ENOENT):
		return Socket{}, ErrGone
	case err != nil:
		return Socket{}, err
	case out.Inode != inode:
		return Socket{}, fmt.Errorf("sock_diag: asked for inode %d, answered with %d", inode, out.Inode)
	}
	return out, nil
}

// All tells each socket in one of the states of the mask.
func (d *Conn) All(ctx context.Context, states, show uint32, tell func(Socket)) error {
	return d.ask(ctx, netlink.Request|netlink.Dump, diagRequest(0, states, show), tell)
}

func (d *Conn) ask(ctx context.Context, flags netlink.HeaderFlags, req []byte, tell func(Socket)) error {
	if err := d.Open(ctx); err != nil {
		return err
	}
	err := d.exchange(ctx, flags, req, tell)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		d.Close()
	}
	return err
}

// Open makes the netlink socket. It asks for inode 0, which unix_diag refuses
// with EINVAL: a kernel without unix_diag says ENOENT to everything, which must
// not pass for a socket that is gone.
func (d *Conn) Open(ctx context.Context) error {
	if d.conn != nil {
		return nil
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: netlinkBuffer})
	if err != nil {
		return fmt.Errorf("open a netlink socket for sock_diag: %w (the sandbox must allow AF_NETLINK)", err)
	}
	d.conn = conn
	err = d.exchange(ctx, netlink.Request, diagRequest(0, 0, 0), func(Socket) {})
	if errors.Is(err, unix.EINVAL) {
		return nil
	}
	d.Close()
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("sock_diag: this kernel has no unix_diag: modprobe unix_diag")
	}
	return fmt.Errorf("sock_diag: try the netlink socket: %w", err)
}

func (d *Conn) exchange(ctx context.Context, flags netlink.HeaderFlags, req []byte, tell func(Socket)) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Second)
	}
	if err := d.conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("sock_diag: %w", err)
	}
	sent, err := d.conn.Send(netlink.Message{Header: netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: flags}, Data: req})
	if err != nil {
		return fmt.Errorf("sock_diag: send the request: %w", err)
	}
	for m, err := range d.conn.ReceiveIter() {
		if err != nil {
			return fmt.Errorf("sock_diag: %w", err)
		}
		if m.Header.Sequence != sent.Header.Sequence || m.Header.Type != unix.SOCK_DIAG_BY_FAMILY {
			return fmt.Errorf("sock_diag: an answer of type %d to request %d, asked %d", m.Header.Type, m.Header.Sequence, sent.Header.Sequence)
		}
		s, err := parseDiag(m.Data)
		if err != nil {
			return err
		}
		tell(s)
	}
	return nil
}

// Close closes the netlink socket; the next question opens another.
func (d *Conn) Close() {
	if d.conn != nil {
		_ = d.conn.Close()
		d.conn = nil
	}
}
