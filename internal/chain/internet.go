package chain

import (
	"cmp"
	"encoding/hex"
	"net"
	"net/netip"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
)

// tuple identifies a TCP or UDP connection as one of its ends sees it.
type tuple struct{ local, remote netip.AddrPort }

// internetSocket is one line of /proc/PID/net/tcp or udp.
type internetSocket struct {
	tuple

	state  uint64
	inode  uint32 // 0 of a connection that is not accepted yet
	unread uint32 // bytes; of a listening socket the connections that wait
	// unacknowledged are the bytes that were sent, or are to be, and of which the other end has not said that it has them.
	unacknowledged uint32
}

// internet holds the TCP or the UDP sockets of a network namespace.
type internet struct {
	ends      map[tuple]internetSocket
	datagrams bool // they are UDP's
	// servers are the listening TCP sockets, or the UDP sockets that are bound and not connected.
	servers map[netip.AddrPort]internetSocket
	local   localAddresses
	unread  error // why sockets are missing, nil where none is
}

// localAddresses are the addresses of a network namespace.
type localAddresses struct {
	prefixes []netip.Prefix
	complete bool // all have been read
}

// readInternet adds the connected TCP and UDP sockets of some inodes, by the files of a process
// about its network namespace. It reports whether it is known of all where they lead.
func readInternet(dir string, inodes map[uint32]bool, out map[uint32]connection) (complete bool) {
	fs, err := procfs.NewFS(dir)
	if err != nil {
		return false
	}
	tcp, _ := readTCP(dir)
	udp := newInternet(tcp.local, closed, asTCP(fs.NetUDP), asTCP(fs.NetUDP6))
	udp.datagrams = true
	complete = tcp.unread == nil && udp.unread == nil
	for _, all := range []internet{tcp, udp} {
		for _, end := range all.ends {
			if !inodes[end.inode] {
				continue
			}
			c, known := all.connection(end)
			complete = complete && known
			if known {
				out[end.inode] = c
			}
		}
	}
	return complete
}

// readTCP reads the TCP sockets of the network namespace of a process. The error is why some may be missing.
func readTCP(dir string) (internet, error) {
	fs, err := procfs.NewFS(dir)
	if err != nil {
		return internet{unread: err}, err
	}
	all := newInternet(readLocalAddresses(dir), proc.Listening, fs.NetTCP, fs.NetTCP6) //nolint:staticcheck // on demand only
	if !all.local.complete {
		return all, errAddresses
	}
	return all, all.unread
}

// closed is the state of a UDP socket that is not connected.
const closed = 7

// asTCP converts a reader of UDP sockets, whose lines are the same.
func asTCP(read func() (procfs.NetUDP, error)) func() (procfs.NetTCP, error) {
	return func() (procfs.NetTCP, error) {
		lines, err := read()
		return procfs.NetTCP(lines), err
	}
}

// newInternet reads sockets by their files for IPv4 and IPv6. serving is the state of a server's.
func newInternet(local localAddresses, serving uint64, files ...func() (procfs.NetTCP, error)) internet {
	all := internet{ends: map[tuple]internetSocket{}, servers: map[netip.AddrPort]internetSocket{}, local: local}
	for _, read := range files {
		lines, err := read()
		if proc.OutcomeOf(err) != proc.Absent { // without IPv6 there is no file
			all.unread = cmp.Or(all.unread, err)
		}
		for _, l := range lines {
			s := internetSocket{state: l.St, inode: low(l.Inode), unread: low(l.RxQueue), unacknowledged: low(l.TxQueue)}
			s.local = endpoint(l.LocalAddr, l.LocalPort)
			s.remote = endpoint(l.RemAddr, l.RemPort)
			switch l.St {
			case serving:
				all.servers[s.local] = s
			case proc.Established, unix.BPF_TCP_SYN_SENT, unix.BPF_TCP_SYN_RECV:
				all.ends[s.tuple] = s
			}
		}
	}
	return all
}

// connection describes a socket and the other end of it; known is false where it cannot be
// said whether that is on this node.
func (all internet) connection(s internetSocket) (c connection, known bool) {
	c = connection{name: s.remote.String(), received: s.unread, syn: s.state == unix.BPF_TCP_SYN_SENT}
	if !all.datagrams {
		c.ends = s.tuple
	}
	if !all.datagrams && !c.syn {
		c.unacknowledged = s.unacknowledged
	}
	_, c.server = all.server(s.local)
	server, served := all.server(s.remote)
	if end, ok := all.ends[tuple{local: s.remote, remote: s.local}]; ok {
		c.peer = end.inode
		c.sent = end.unread
		c.unread = end.unread
		c.listener = server.inode
		return c, true
	}
	isLocal := all.local.contains(s.remote.Addr())
	switch {
	case !all.datagrams && !c.syn:
		c.remote = true
	case !isLocal:
		c.remote = true
		return c, all.local.complete
	case all.datagrams && served:
		c.peer = server.inode
		c.sent = server.unread
		c.unread = server.unread
	case c.syn && server.unread > 0:
		// Without connections that wait, the address is a service's that is forwarded.
		c.listener = server.inode
	}
	return c, true
}

// server returns the socket that serves an address: the one bound to it, else one bound to all.
func (all internet) server(address netip.AddrPort) (s internetSocket, ok bool) {
	for _, addr := range []netip.Addr{address.Addr(), netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		s, ok = all.servers[netip.AddrPortFrom(addr, address.Port())]
		if ok {
			return s, true
		}
	}
	return s, false
}

// endpoint returns an end of a connection; an IPv4 address within IPv6 is itself.
func endpoint(ip net.IP, port uint64) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)                    // of 4 or 16 bytes
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)) //nolint:gosec // of 16 bits
}

func low(n uint64) uint32 { return uint32(n) } //nolint:gosec // of 32 bits

// readLocalAddresses reads the addresses of the network namespace of a process.
func readLocalAddresses(dir string) localAddresses {
	v4, err := proc.ReadFile(dir, "net/fib_trie")
	local := localAddresses{prefixes: parseFIBTrie(v4), complete: err == nil}
	v6, err := proc.ReadFile(dir, "net/if_inet6")
	if err != nil && !proc.Gone(err) { // without IPv6 there is no file
		local.complete = false
	}
	local.prefixes = append(local.prefixes, parseIfInet6(v6)...)
	return local
}

// parseFIBTrie returns the local addresses in a /proc/PID/net/fib_trie:
//
//	|-- 127.0.0.0
//	   /8 host LOCAL
func parseFIBTrie(b []byte) (out []netip.Prefix) {
	address := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if leaf, ok := strings.CutPrefix(line, "|-- "); ok {
			address = leaf
			continue
		}
		bits, ok := strings.CutSuffix(line, " host LOCAL")
		if !ok {
			continue
		}
		if prefix, err := netip.ParsePrefix(address + bits); err == nil {
			out = append(out, prefix)
		}
	}
	return out
}

// parseIfInet6 returns the addresses in a /proc/PID/net/if_inet6, which begin each line.
func parseIfInet6(b []byte) (out []netip.Prefix) {
	for line := range strings.Lines(string(b)) {
		digits, _, _ := strings.Cut(line, " ")
		raw, err := hex.DecodeString(digits)
		if err != nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(raw); ok {
			out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out
}

// contains reports whether an address is one of the network namespace.
func (l localAddresses) contains(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	for _, prefix := range l.prefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}
