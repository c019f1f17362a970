package server

import (
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v2"
)

// Access reports whether a request may see what the node contains: names of pods,
// ids, paths and texts of the runtime.
type Access func(*http.Request) bool

// FullAccess is the control socket's: only its owner can open it.
func FullAccess(*http.Request) bool { return true }

// LocalOrAuthenticated gives access to clients on loopback, and to those that
// passed the authentication which the web configuration in file demands.
func LocalOrAuthenticated(file string) Access {
	return func(r *http.Request) bool {
		if local(r) {
			return true
		}
		users, certs := demands(file)
		_, _, password := r.BasicAuth()
		return users && password || certs && r.TLS != nil && len(r.TLS.VerifiedChains) > 0
	}
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
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname()
	to, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && to.Unmap().IsLoopback()
}

// demands returns whether a web configuration demands a password, or a verified certificate,
// of every client. The toolkit reads the file for each request too: one that stops
// demanding authentication must not continue to give access.
func demands(file string) (users, certs bool) {
	var c web.Config
	content, err := os.ReadFile(file)
	if err != nil || yaml.UnmarshalStrict(content, &c) != nil {
		return false, false
	}
	return len(c.Users) > 0, c.TLSConfig.ClientAuth == "RequireAndVerifyClientCert"
}
