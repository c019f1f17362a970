package chain

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/test/check"
	"github.com/plegd/plegd/test/evidencetest"
	"github.com/plegd/plegd/test/must"
)

// TestNetlink: a process that reads from a netlink socket waits for the kernel, unless another process may send to it, and one
// that reads from a packet socket for the network.
func TestNetlink(t *testing.T) {
	const head = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
	line := func(protocol int, groups string, inode int) string {
		return fmt.Sprintf("0000000079f2e6b2 %d   1280       %s 0        0        0     2        0        %d       \n", protocol, groups, inode)
	}
	for name, tt := range map[string]struct {
		sockets, text, unknown string
		packet                 string // a line of net/packet
		isOfTwo                bool
	}{
		"an event about a link":    {sockets: line(0, "00000001", 24), text: "netlink socket (route): it waits for a message of the kernel"},
		"a packet of a filter":     {sockets: line(0, "00000001", 240) + line(12, "00000000", 24), text: "netlink socket (netfilter): it waits"},
		"a device":                 {sockets: line(15, "00000001", 24), text: "netlink socket (kobject_uevent): it waits"},
		"a device of udevd":        {sockets: line(15, "00000002", 24), text: "netlink socket (kobject_uevent)", unknown: "idle wait"},
		"another process":          {sockets: line(2, "00000001", 24), text: "netlink socket (usersock)", unknown: "idle wait"},
		"a protocol without name":  {sockets: line(77, "00000001", 24), text: "netlink socket (protocol 77): it waits"},
		"one of two threads reads": {sockets: line(0, "00000001", 24), isOfTwo: true, text: "netlink socket (route)", unknown: "idle wait"},
		"a socket of another kind": {sockets: line(0, "00000001", 25), text: "neither unix, TCP nor UDP", unknown: "idle wait"},
		"a packet of the network":  {packet: "0000000079f2e6b2 3      3    0800   2     1 0      0      24\n", text: "a packet socket: it waits for a packet of the network"},
		"of another process":       {packet: "0000000079f2e6b2 3      3    0800   2     1 0      0      240\n", text: "neither unix, TCP nor UDP", unknown: "idle wait"},
		"a line that is not valid": {sockets: line(0, "none", 24), text: "1 threads", unknown: "its netlink sockets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := procTree(t, map[int]byte{10: 'S'})
			sysfs := t.TempDir()
			evidencetest.WriteTree(t, sysfs, map[string]string{"fs/cgroup/cgroup.controllers": ""})
			evidencetest.WriteTree(t, root, map[string]string{
				"10/task/10/syscall": fmt.Sprintf("%d 0x3 0x10 0x0 0x0 0x0 0x0 0x1 0x1\n", unix.SYS_RECVMSG), "10/task/10/wchan": "__skb_wait_for_more_packets",
				"10/net/netlink": head + tt.sockets, "10/net/packet": tt.packet, "10/net/tcp": socketLines, "10/net/udp": socketLines,
				"10/net/fib_trie": "|-- 10.0.0.10\n/32 host LOCAL\n",
			})
			if tt.isOfTwo {
				evidencetest.WriteTree(t, root, map[string]string{"10/task/13/stat": evidencetest.StatLine(13, "thing", 'S', 1, 100), "10/task/13/schedstat": "1 1 1\n"})
			}
			must.Do(t, os.Symlink("socket:[24]", filepath.Join(root, "10/fd/3")))
			for _, process := range []string{"self", "10"} {
				must.Do(t, os.MkdirAll(filepath.Join(root, process, "ns"), 0o755))
				must.Do(t, os.Symlink("net:[1]", filepath.Join(root, process, "ns/net")))
			}
			c := New(proc.NewTable(root), sysfs, nil).Process(t.Context(), 10)
			check.Equal(t, len(c.Links), 1, "%+v", c)
			check.Equal(t, strings.Contains(c.Links[0].Evidence, tt.text), true, "%+v", c)
			check.Equal(t, strings.Contains(c.Unknown, tt.unknown) && (c.Unknown == "") == (tt.unknown == ""), true, "%+v", c)
			check.Equal(t, c.Links[0].State == facts.LinkAsleep, tt.unknown == "", "%+v", c)
		})
	}
}
