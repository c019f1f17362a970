package server

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Access reports whether a request may see what the node contains: names of pods,
// ids, paths and texts of the runtime.
type Access func(*http.Request) bool

// FullAccess is the control socket's: only its owner can open it.
func FullAccess(*http.Request) bool { return true }

// SocketOwner returns the user of the TCP socket with these addresses.
type SocketOwner func(ctx context.Context, local, remote netip.AddrPort) (uid uint32, err error)

// RootOrAuthenticated gives access to root's clients on loopback, and to clients that have
// passed the authentication which the web configuration demands. Other users of the node, and
// reverse proxies that run as another user, are not root. If the owner of a socket cannot be
// read, its client has no access.
func RootOrAuthenticated(owner SocketOwner) Access {
	return func(r *http.Request) bool {
		passed, _ := r.Context().Value(authenticated{}).(bool)
		return passed || overLoopback(r) && ofRoot(r, owner)
	}
}

// ofRoot reports whether the client's socket belongs to uid 0.
func ofRoot(r *http.Request, owner SocketOwner) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return false
	}
	uid, err := owner(r.Context(), client, address.AddrPort())
	return err == nil && uid == 0
}

// overLoopback reports whether a request comes over loopback, through no proxy, and to a name
// of loopback. (A page of another site whose name resolves to loopback has that name as its
// host.)
func overLoopback(r *http.Request) bool {
	for _, h := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via",
	} {
		if len(r.Header.Values(h)) > 0 {
			return false
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return false // as nginx asks by default, which adds no header
	}
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !client.Addr().Unmap().IsLoopback() {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	target, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && target.Unmap().IsLoopback()
}
