package proc

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// NetlinkSocket is a netlink socket of a process.
type NetlinkSocket struct {
	Protocol int
	Groups   uint32 // of multicast messages
}

// netlinkNames are the protocols of linux/netlink.h.
var netlinkNames = map[int]string{
	unix.NETLINK_ROUTE: "route", unix.NETLINK_USERSOCK: "usersock", unix.NETLINK_SOCK_DIAG: "sock_diag", unix.NETLINK_NFLOG: "nflog",
	unix.NETLINK_XFRM: "xfrm", unix.NETLINK_SELINUX: "selinux", unix.NETLINK_ISCSI: "iscsi", unix.NETLINK_AUDIT: "audit",
	unix.NETLINK_FIB_LOOKUP: "fib_lookup", unix.NETLINK_CONNECTOR: "connector", unix.NETLINK_NETFILTER: "netfilter",
	unix.NETLINK_KOBJECT_UEVENT: "kobject_uevent", unix.NETLINK_GENERIC: "generic", unix.NETLINK_SCSITRANSPORT: "scsitransport",
	unix.NETLINK_RDMA: "rdma", unix.NETLINK_CRYPTO: "crypto",
}

// Name returns the name of the protocol.
func (s NetlinkSocket) Name() string {
	return cmp.Or(netlinkNames[s.Protocol], "protocol "+strconv.Itoa(s.Protocol))
}

// IsOfKernel reports whether the messages are the kernel's alone: other groups of kobject_uevent than the first one are udevd's.
func (s NetlinkSocket) IsOfKernel() bool {
	isUdevd := s.Protocol == unix.NETLINK_KOBJECT_UEVENT && s.Groups != 1
	return s.Protocol != unix.NETLINK_USERSOCK && !isUdevd
}

// Netlink returns a netlink socket in the network namespace of a process. The error is Absent where there is none with that
// inode.
func Netlink(procfs string, pid int, inode uint32) (NetlinkSocket, error) {
	path := Path(procfs, pid, "net/netlink")
	b, err := ReadFile(path)
	if err != nil {
		return NetlinkSocket{}, err
	}
	for line := range strings.Lines(string(b)) { // sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
		fields := strings.Fields(line)
		if len(fields) < 10 || fields[9] != fmt.Sprint(inode) {
			continue
		}
		protocol, err := strconv.Atoi(fields[1])
		if err != nil {
			return NetlinkSocket{}, failed(path, err)
		}
		groups, err := strconv.ParseUint(fields[3], 16, 32)
		if err != nil {
			return NetlinkSocket{}, failed(path, err)
		}
		return NetlinkSocket{Protocol: protocol, Groups: uint32(groups)}, nil
	}
	return NetlinkSocket{}, &ReadError{Path: path, Outcome: Absent}
}

// rawTables are the tables of the sockets that receive packets of the network without a connection, and in which of their
// columns each has its inode.
var rawTables = []struct {
	name, table string
	column      int
}{
	{name: "packet", table: "packet", column: 8}, // sk RefCnt Type Proto Iface R Rmem User Inode
	{name: "raw", table: "raw", column: 9},       // sl local rem st queues tr+when retrnsmt uid timeout inode
	{name: "raw", table: "raw6", column: 9},
}

// RawSocket returns the kind of a socket in the network namespace of a process that receives packets as they come, as for
// DHCP, "" for another one.
func RawSocket(procfs string, pid int, inode uint32) (kind string, err error) {
	for _, t := range rawTables {
		b, err := ReadFile(Path(procfs, pid, "net/"+t.table))
		if err != nil && OutcomeOf(err) != Absent { // as without IPv6
			return "", err
		}
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			if len(fields) > t.column && fields[t.column] == fmt.Sprint(inode) {
				return t.name, nil
			}
		}
	}
	return "", nil
}
