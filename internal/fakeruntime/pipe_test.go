package fakeruntime

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// TestPipe: a connection in memory behaves as a net.Conn.
func TestPipe(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		c1, c2 = pipe()
		stop = func() {
			_ = c1.Close()
			_ = c2.Close()
		}
		return c1, c2, stop, nil
	})
}
