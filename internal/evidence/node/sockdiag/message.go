// Package sockdiag asks the kernel about unix sockets: by netlink (sock_diag,
// UNIX_DIAG) one socket or all of a state, their queues and their other ends, and
// by /proc/net/unix those bound to a path. Both see the network namespace of this
// process only.
//
// It parses and does not judge: it knows no runtime and no reason. It never
// connects to a socket and never asks for the list of connections that wait in an
// accept queue, for which the kernel would hold that queue's lock.
package sockdiag

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What linux/sock_diag.h and linux/unix_diag.h define. UDIAG_SHOW_ICONS is left
// out on purpose: the kernel walks the whole accept queue under its lock for it.
const (
	ShowName  = 0x01 // UDIAG_SHOW_NAME
	ShowVFS   = 0x02 // UDIAG_SHOW_VFS
	ShowPeer  = 0x04 // UDIAG_SHOW_PEER
	ShowRQLen = 0x10 // UDIAG_SHOW_RQLEN

	// ShowListener and ShowEnd are what is asked of a listener and of one end of
	// a connection.
	ShowListener = ShowName | ShowVFS | ShowRQLen
	ShowEnd      = ShowName | ShowVFS | ShowPeer | ShowRQLen

	attrName  = 0 // UNIX_DIAG_NAME
	attrVFS   = 1 // UNIX_DIAG_VFS
	attrPeer  = 2 // UNIX_DIAG_PEER
	attrRQLen = 4 // UNIX_DIAG_RQLEN

	// The kernel keeps the states of TCP for unix sockets as well.
	Established = 1
	Listening   = 10

	diagRequestLen = 24 // struct unix_diag_req
	diagMessageLen = 16 // struct unix_diag_msg
	attrHeaderLen  = 4
	// attrTypeMask takes the flags (nested, byte order) off an attribute's type.
	attrTypeMask = 0x3fff

	// noCookie asks for a socket whichever cookie it has.
	noCookie = ^uint64(0)
)

var errDiagShort = errors.New("sock_diag: the kernel's answer is cut off")

// Socket is one unix socket as sock_diag tells of it. What was not asked
// for, or what the socket does not have, is zero.
type Socket struct {
	Inode uint32
	Kind  uint8 // unix.SOCK_STREAM and so on
	State uint8
	// cookie never occurs again while the kernel runs, unlike the inode.
	Cookie uint64
	// name is what bind(2) was given: a path as it was spelled then, or @ and a
	// name in the abstract namespace.
	Name string
	// file is the socket's file. A server's end has its listener's.
	File FileID
	// peer is the inode of the other end; 0 when that end is not accepted yet
	// or is gone.
	Peer uint32
	// rqueue and wqueue are, for a listener, the connections that wait and the
	// most that fit. For a connected stream rqueue is the bytes that this end has
	// yet to read, and wqueue the memory, in bytes, that holds what it has
	// written and the other end has yet to read: the kernel's overhead counts,
	// so 277 writes of 10 bytes are 208 KiB.
	RQueue, WQueue uint32
}

// Listens reports whether the socket is a listening stream socket.
func (s Socket) Listens() bool { return s.State == Listening && s.Kind == unix.SOCK_STREAM }

// FileID tells a socket's file from all others, as far as sock_diag does: it
// has the inode's lower 32 bits.
type FileID struct {
	Major, Minor, Inode uint32
}

// SameDevice reports whether two files are on the same device.
func (f FileID) SameDevice(o FileID) bool { return f.Major == o.Major && f.Minor == o.Minor }

// diagRequest encodes struct unix_diag_req: for one inode, or with inode 0 in a
// dump for all sockets in the states of the mask.
func diagRequest(inode, states, show uint32) []byte {
	b := make([]byte, diagRequestLen)
	b[0] = unix.AF_UNIX
	binary.NativeEndian.PutUint32(b[4:], states)
	binary.NativeEndian.PutUint32(b[8:], inode)
	binary.NativeEndian.PutUint32(b[12:], show)
	binary.NativeEndian.PutUint64(b[16:], noCookie)
	return b
}

// parseDiag decodes struct unix_diag_msg and the attributes behind it. Unknown
// attributes are passed over; one that does not fit is an error.
func parseDiag(b []byte) (Socket, error) {
	if len(b) < diagMessageLen {
		return Socket{}, errDiagShort
	}
	if b[0] != unix.AF_UNIX {
		return Socket{}, fmt.Errorf("sock_diag: asked for unix sockets, answered with family %d", b[0])
	}
	s := Socket{
		Kind: b[1], State: b[2],
		Inode:  binary.NativeEndian.Uint32(b[4:]),
		Cookie: binary.NativeEndian.Uint64(b[8:]),
	}
	for b = b[diagMessageLen:]; len(b) > 0; {
		if len(b) < attrHeaderLen {
			return Socket{}, errDiagShort
		}
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrHeaderLen || n > len(b) {
			return Socket{}, errDiagShort
		}
		if err := s.setAttr(binary.NativeEndian.Uint16(b[2:])&attrTypeMask, b[attrHeaderLen:n]); err != nil {
			return Socket{}, err
		}
		// The next one starts at a multiple of four; the last one's padding may
		// be missing.
		b = b[min((n+3)&^3, len(b)):]
	}
	return s, nil
}

func (s *Socket) setAttr(kind uint16, v []byte) error {
	switch {
	case kind == attrName:
		s.Name = bindName(v)
	case kind == attrVFS && len(v) >= 8:
		// The kernel's own dev_t: 12 bits major, 20 bits minor.
		dev := binary.NativeEndian.Uint32(v[4:])
		s.File = FileID{Major: dev >> 20, Minor: dev & (1<<20 - 1), Inode: binary.NativeEndian.Uint32(v)}
	case kind == attrPeer && len(v) >= 4:
		s.Peer = binary.NativeEndian.Uint32(v)
	case kind == attrRQLen && len(v) >= 8:
		s.RQueue, s.WQueue = binary.NativeEndian.Uint32(v), binary.NativeEndian.Uint32(v[4:])
	case kind == attrVFS || kind == attrPeer || kind == attrRQLen:
		return errDiagShort
	}
	return nil
}

// bindName decodes sun_path: a path with a NUL behind it, or a NUL and an
// abstract name, which is spelled with an @ here as in /proc/net/unix.
func bindName(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	if v[0] == 0 {
		return "@" + string(v[1:])
	}
	for i, c := range v {
		if c == 0 {
			return string(v[:i])
		}
	}
	return string(v)
}
