package proc

import (
	"context"
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

// sockDiag asks the kernel about sockets in the network namespace of this process. flags are
// added to those of a request.
func sockDiag(ctx context.Context, flags netlink.HeaderFlags, request []byte) ([]netlink.Message, error) {
	conn, err := netlink.Dial(unix.NETLINK_SOCK_DIAG, &netlink.Config{MessageBufferSize: netlinkBuffer})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for sock_diag: %w (the sandbox must allow AF_NETLINK)", err)
	}
	defer func() { _ = conn.Close() }() // nothing is written
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(diagTimeout)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	header := netlink.Header{Type: unix.SOCK_DIAG_BY_FAMILY, Flags: netlink.Request | flags}
	answers, err := conn.Execute(netlink.Message{Header: header, Data: request})
	if err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	return answers, nil
}
