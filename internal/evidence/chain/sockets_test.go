package chain

import (
	"testing"

	"github.com/plegd/plegd/test/evidencetest"
)

// TestTCP: connections to a process that has read, has not read and has not accepted, to a
// listener that is full, and to other nodes.
func TestTCP(t *testing.T) {
	const file = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000001 00:00000000 00000000     0        0 10 1 0 100 0 0 10 0
   1: 0100007F:C001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 21 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:C001 01 00000000:0000000A 00:00000000 00000000     0        0 31 1 0 20 4 30 10 -1
   3: 0100007F:C002 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 22 1 0 20 4 30 10 -1
   4: 0100007F:1F90 0100007F:C002 01 00000000:00000005 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   5: 0100007F:C003 0100007F:1F90 02 00000001:00000000 01:00000000 00000000     0        0 23 1 0 20 4 30 10 -1
   6: 0A00000A:C004 0100600A:01BB 01 00000000:00000000 00:00000000 00000000     0        0 24 1 0 20 4 30 10 -1
   7: 0A00000A:C005 0100600A:01BB 02 00000001:00000000 01:00000000 00000000     0        0 25 1 0 20 4 30 10 -1
`
	dir := t.TempDir()
	evidencetest.WriteTree(t, dir, map[string]string{"net/tcp": file})
	out := map[uint32]connection{}
	tcp(dir, map[uint32]bool{21: true, 31: true, 22: true, 23: true, 24: true, 25: true}, out)
	const server, remote = "127.0.0.1:8080", "10.96.0.1:443"
	for inode, want := range map[uint32]connection{
		21: {name: server, peer: 31, sent: 10, unread: 10, listener: 10},
		31: {name: "127.0.0.1:49153", peer: 21, own: 10, server: true},
		22: {name: server, sent: 5, unread: 5, listener: 10},
		23: {name: server, listener: 10},
		24: {name: remote, remote: true},
		25: {name: remote, remote: true},
	} {
		if out[inode] != want {
			t.Errorf("%d: %+v, want %+v", inode, out[inode], want)
		}
	}
}
