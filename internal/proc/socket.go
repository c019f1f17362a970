package proc

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// Established is a state of a socket: those of TCP, for unix sockets as well.
	Established = 1
	// Listening is another one.
	Listening = 10

	// The attributes of linux/unix_diag.h: name, file, peer and queues. UDIAG_SHOW_ICONS is
	// left out on purpose: the kernel walks the whole accept queue under its lock for it.
	showAll = 0x01 | 0x02 | 0x04 | 0x10
	// showPending is UDIAG_SHOW_ICONS, for single listeners.
	showPending = 0x08

	attrName    = 0 // UNIX_DIAG_NAME
	attrVFS     = 1 // UNIX_DIAG_VFS
	attrPeer    = 2 // UNIX_DIAG_PEER
	attrPending = 3 // UNIX_DIAG_ICONS
	attrRQLen   = 4 // UNIX_DIAG_RQLEN

	diagMessageLen = 16 // struct unix_diag_msg
)

// Socket is one unix socket. Attributes that it has not are zero.
type Socket struct {
	Inode uint32
	Kind  uint8 // unix.SOCK_STREAM and so on
	State uint8
	// Cookie never occurs again while the kernel runs, unlike the inode.
	Cookie uint64
	// Name is the path as bind(2) was given it, or @ and an abstract name.
	Name string
	// File is the socket's file. A server's end has its listener's.
	File FileID
	// Peer is the inode of the other end; 0 when it is not accepted yet, or gone.
	Peer uint32
	// RQueue and WQueue are the connections that wait at a listener and the most that fit.
	// Of a connected stream they are the bytes that this end has yet to read, and the
	// memory, in bytes, of what the other end has: 277 writes of 10 bytes take 208 KiB.
	RQueue, WQueue uint32
}

// Listens reports whether the socket is a listening stream socket.
func (s Socket) Listens() bool { return s.State == Listening && s.Kind == unix.SOCK_STREAM }

// FileID tells files apart as far as sock_diag does: by the inode's lower 32 bits.
type FileID struct {
	Device uint64 // as of stat(2)
	Inode  uint32
}

// EachSocket calls found for each unix socket in one of the states of the mask, in the
// network namespace of this process.
func EachSocket(ctx context.Context, states uint32, found func(Socket)) error {
	request := diagRequest{states: states, show: showAll}
	answers, err := request.execute(ctx, netlink.Dump)
	if err != nil {
		return err
	}
	for _, m := range answers {
		s, err := parseDiag(m.Data)
		if err != nil {
			return err
		}
		found(s)
	}
	return nil
}

// IsLogSocket reports whether logs are written to a unix socket of a name: no answer is awaited,
// and nobody waits for its reader.
func IsLogSocket(name string) bool {
	return strings.HasPrefix(name, "/run/systemd/journal/") || name == "/dev/log" || strings.Contains(name, "syslog")
}

// UnixSockets returns the unix sockets of EachSocket by their inodes.
func UnixSockets(ctx context.Context, states uint32) (map[uint32]Socket, error) {
	all := map[uint32]Socket{}
	err := EachSocket(ctx, states, func(s Socket) { all[s.Inode] = s })
	return all, err
}

// Pending returns the inodes of the clients' sockets that wait to be accepted at a listener.
func Pending(ctx context.Context, listener Socket) ([]uint32, error) {
	request := diagRequest{states: 1 << Listening, inode: listener.Inode, show: showPending, cookie: listener.Cookie}
	answers, err := request.execute(ctx, 0)
	if err != nil {
		return nil, err
	}
	var clients []uint32
	for _, m := range answers {
		found, err := parsePending(m.Data)
		if err != nil {
			return nil, err
		}
		clients = append(clients, found...)
	}
	return clients, nil
}

// parsePending decodes the inodes behind struct unix_diag_msg.
func parsePending(b []byte) ([]uint32, error) {
	if len(b) < diagMessageLen {
		return nil, errCutOff
	}
	var clients []uint32
	err := eachAttribute(b[diagMessageLen:], func(kind uint16, inodes []byte) {
		if kind != attrPending {
			return
		}
		for offset := 0; offset+4 <= len(inodes); offset += 4 {
			clients = append(clients, word(inodes, offset))
		}
	})
	return clients, err
}

// diagRequest is struct unix_diag_req.
type diagRequest struct {
	states, inode, show uint32
	cookie              uint64 // of one socket
}

// execute sends a request and returns the answers. flags are added to those of a request.
func (r diagRequest) execute(ctx context.Context, flags netlink.HeaderFlags) ([]netlink.Message, error) {
	b := [24]byte{unix.AF_UNIX}
	binary.NativeEndian.PutUint32(b[4:], r.states)
	binary.NativeEndian.PutUint32(b[8:], r.inode)
	binary.NativeEndian.PutUint32(b[12:], r.show)
	binary.NativeEndian.PutUint64(b[16:], r.cookie)
	answers, err := sockDiag(ctx, flags, b[:])
	if errors.Is(err, unix.ENOENT) {
		return nil, errors.New("sock_diag: this kernel has no unix_diag: modprobe unix_diag")
	}
	return answers, err
}

// parseDiag decodes struct unix_diag_msg and the attributes behind it.
func parseDiag(b []byte) (Socket, error) {
	if len(b) < diagMessageLen || b[0] != unix.AF_UNIX {
		return Socket{}, errCutOff
	}
	order := binary.NativeEndian
	s := Socket{Kind: b[1], State: b[2], Inode: order.Uint32(b[4:]), Cookie: order.Uint64(b[8:])}
	err := eachAttribute(b[diagMessageLen:], func(kind uint16, value []byte) {
		switch kind {
		case attrName:
			s.Name = bindName(string(value))
		case attrVFS:
			dev := word(value, 4) // the kernel's own dev_t: 12 bits major, 20 bits minor
			s.File = FileID{Device: unix.Mkdev(dev>>20, dev&(1<<20-1)), Inode: word(value, 0)}
		case attrPeer:
			s.Peer = word(value, 0)
		case attrRQLen:
			s.RQueue = word(value, 0)
			s.WQueue = word(value, 4)
		}
	})
	if err != nil {
		return Socket{}, err
	}
	return s, nil
}

// bindName decodes sun_path: a path with a NUL behind it, or a NUL and an
// abstract name, which gets an @ as in /proc/net/unix.
func bindName(v string) string {
	if name, abstract := strings.CutPrefix(v, "\x00"); abstract {
		return "@" + name
	}
	name, _, _ := strings.Cut(v, "\x00")
	return name
}
