package proc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// netlinkBuffer holds the largest piece in which the kernel sends a dump.
	netlinkBuffer = 32 << 10
	// diagTimeout limits a request without a deadline of its own.
	diagTimeout = time.Second
)

var errCutOff = errors.New("sock_diag: the kernel's answer is cut off")

// eachAttribute calls visit for each attribute behind the fixed part of an answer. The value is valid
// during the call.
func eachAttribute(b []byte, visit func(kind uint16, value []byte)) error {
	const headerLen, alignment = 4, 4 // struct nlattr
	order := binary.NativeEndian
	for len(b) > 0 {
		if len(b) < headerLen {
			return errCutOff
		}
		size := int(order.Uint16(b))
		if size < headerLen || size > len(b) {
			return errCutOff
		}
		visit(order.Uint16(b[2:]), b[headerLen:size])
		b = b[min(len(b), (size+alignment-1)/alignment*alignment):]
	}
	return nil
}

// word returns the number of 32 bits at an offset of an attribute; 0 where it is shorter.
func word(value []byte, offset int) uint32 {
	if len(value) < offset+4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value[offset:])
}

// idle holds a connection to sock_diag between two requests: to open one costs more than most answers.
var idle = make(chan *netlink.Conn, 1)

// diagConn returns a connection for one request at a time, in the network namespace of this process.
func diagConn() (*netlink.Conn, error) {
	select {
	case conn := <-idle:
		return conn, nil
	default:
	}
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: netlinkBuffer})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for sock_diag: %w (the sandbox must allow AF_NETLINK)", err)
	}
	return conn, nil
}

// keepConn keeps a connection for the next request, unless there is one.
func keepConn(conn *netlink.Conn) {
	select {
	case idle <- conn:
	default:
		_ = conn.Close() // nothing is written
	}
}

// sockDiag asks the kernel about sockets in the network namespace of this process. flags are
// added to those of a request.
func sockDiag(ctx context.Context, flags netlink.HeaderFlags, request []byte) ([]netlink.Message, error) {
	return askDiag(ctx, netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | flags}, request)
}

// askDiag sends a request with a header, and returns the answers.
func askDiag(ctx context.Context, header netlink.Header, request []byte) ([]netlink.Message, error) {
	conn, err := diagConn()
	if err != nil {
		return nil, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(diagTimeout)
	}
	err = conn.SetDeadline(deadline)
	var answers []netlink.Message
	if err == nil {
		answers, err = conn.Execute(netlink.Message{Header: header, Data: request})
	}
	if err != nil {
		_ = conn.Close() // the rest of an answer may still come
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	keepConn(conn)
	return answers, nil
}
