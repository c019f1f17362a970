package server

import (
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

// LocalOrAuthenticated gives access to clients on loopback, and to those that have passed the
// authentication which the web configuration demands.
func LocalOrAuthenticated(r *http.Request) bool {
	passed, _ := r.Context().Value(authenticated{}).(bool)
	return passed || local(r)
}

// local reports whether a request comes from this host: over loopback, through no
// proxy, and to a name of loopback. (A page of another site whose name resolves to
// loopback has that name as its host.)
func local(r *http.Request) bool {
	for _, h := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via",
	} {
		if len(r.Header.Values(h)) > 0 {
			return false
		}
	}
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !client.Addr().Unmap().IsLoopback() {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	target, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && target.Unmap().IsLoopback()
}
