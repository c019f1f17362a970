package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"syscall"

	"github.com/plegd/plegd/internal/proc"
)

// The pages that plegd reads of a runtime.
const (
	// PageInfo is CRI-O's own: its root, its drivers and its cgroups.
	PageInfo = "/info"
	// PageGoroutinesCRIO is CRI-O's goroutine dump.
	PageGoroutinesCRIO = "/debug/goroutines"
	// PageGoroutines is the goroutine dump of dockerd and of containerd's debug socket.
	PageGoroutines = "/debug/pprof/goroutine?debug=2"
)

var (
	errRedirect = errors.New("the runtime redirects to another address")
	errNotHTTP  = errors.New("the runtime does not answer in HTTP/1.1")
	// notHTTP is net/http's text for bytes of a gRPC server, after the request and before it (transport.go).
	notHTTP = regexp.MustCompile("malformed HTTP|readLoopPeekFailLocked")
)

// Get reads at most limit bytes of a page of allowedPages over a runtime's unix socket. The
// socket and the process behind it must belong to root, or to the user of this process.
func Get(ctx context.Context, socket, page string, limit int64) ([]byte, error) {
	if err := refusedPage(page); err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dialTrusted(ctx, socket) },
	}
	defer transport.CloseIdleConnections()
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errRedirect },
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+page, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil && notHTTP.MatchString(err.Error()) {
		err = errNotHTTP
	}
	if err != nil {
		return nil, fmt.Errorf("get %s from %s: %w", page, socket, err)
	}
	defer func() { _ = answer.Body.Close() }() // only read from
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s from %s: status %d", page, socket, answer.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit))
	if err != nil {
		return nil, fmt.Errorf("get %s from %s: %w", page, socket, err)
	}
	return body, nil
}

// dialTrusted connects to a socket that belongs to root, with a process of root behind it.
func dialTrusted(ctx context.Context, socket string) (net.Conn, error) {
	info, err := os.Stat(socket)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is not a socket", socket)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !proc.IsTrusted(owner.Uid) {
		return nil, fmt.Errorf("%s does not belong to root", socket)
	}
	conn, err := DialPath(socket)(ctx)
	if err != nil {
		return nil, err
	}
	cred := peer(conn)
	if cred == nil || !proc.IsTrusted(cred.Uid) {
		_ = conn.Close()
		return nil, fmt.Errorf("the process behind %s does not belong to root", socket)
	}
	return conn, nil
}
