package server

import (
	"net/http"
	"net/netip"
	"sync"

	"golang.org/x/time/rate"
)

const (
	// requestRate and requestBurst bound the requests of one client a second, health endpoints
	// and clients that have logged in excepted: a scrape or a page takes some milliseconds of CPU time, which plegd needs to
	// measure the runtime.
	requestRate  = 50
	requestBurst = 100
	// maxConnRequests is the number of requests after which a connection is closed, so that
	// pipelined requests cannot occupy plegd.
	maxConnRequests = 50
	maxLimiters     = 256 // clients whose rate is remembered
)

// connKey is the key of a request's connection in its context.
type connKey struct{}

// limits bounds the requests of each client.
type limits struct {
	mu       sync.Mutex
	limiters map[netip.Prefix]*rate.Limiter
}

// allow reports whether a client may make another request.
func (l *limits) allow(client netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter := l.limiters[client]
	if limiter == nil {
		if len(l.limiters) >= maxLimiters {
			l.limiters = nil
		}
		if l.limiters == nil {
			l.limiters = map[netip.Prefix]*rate.Limiter{}
		}
		limiter = rate.NewLimiter(requestRate, requestBurst)
		l.limiters[client] = limiter
	}
	return limiter.Allow()
}

// closeSpent closes the connection after this response if it has served enough requests.
func closeSpent(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(*gateConn)
	if ok && c != nil && c.requests.Add(1) >= maxConnRequests {
		w.Header().Set("Connection", "close")
	}
}
