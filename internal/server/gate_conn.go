package server

import (
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// gateConn is a connection that counts against the limits of its gate.
type gateConn struct {
	net.Conn
	gate   *gate
	client netip.Prefix
	first  []byte // read already

	// Below gate.mu.
	active    bool      // a request is being answered
	asked     bool      // the first byte of a request has come
	changedAt time.Time // when it was opened, or active or asked last changed
}

// clientOf returns the addresses that count as one client: a node's loopback addresses, and
// the 64 bits of an IPv6 network, from which a host can choose any address.
func clientOf(address string) netip.Prefix {
	peer, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Prefix{}
	}
	addr := peer.Addr().Unmap().WithZone("")
	bits := 32
	switch {
	case addr.IsLoopback():
		return netip.PrefixFrom(netip.IPv6Loopback(), 128)
	case addr.Is6():
		bits = 64
	}
	client, _ := addr.Prefix(bits) // fails only for a length that the family does not have
	return client
}

// oldest returns the connection that goes before all others; nil if there is none. One whose
// request nobody has read yet becomes new.
func oldest(candidates []*gateConn) *gateConn {
	slices.SortFunc(candidates, (*gateConn).compare)
	for _, c := range candidates {
		if c.active || c.asked || !c.unread() {
			return c
		}
		c.ask()
	}
	if len(candidates) == 0 {
		return nil
	}
	return candidates[0]
}

// ask notes the first byte of a request. The caller holds gate.mu.
func (c *gateConn) ask() {
	c.asked = true
	c.changedAt = time.Now()
}

// unread reports whether the kernel holds bytes that nobody has read yet.
func (c *gateConn) unread() bool {
	conn, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	held := 0
	err = raw.Control(func(fd uintptr) {
		n, failure := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if failure == nil {
			held = n
		}
	})
	return err == nil && held > 0
}

// outstays reports whether the grace time of c is over.
func (c *gateConn) outstays() bool {
	if c.active {
		return time.Since(c.changedAt) >= activeGrace
	}
	return time.Since(c.changedAt) >= silentGrace
}

// compare orders connections by which is closed first: those without a request, the oldest first.
func (c *gateConn) compare(rival *gateConn) int {
	switch {
	case c.active && !rival.active:
		return 1
	case rival.active && !c.active:
		return -1
	}
	return c.changedAt.Compare(rival.changedAt)
}

// Read returns the first byte, which has been read already, and then the rest.
func (c *gateConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Close closes the connection, which no longer counts.
func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
