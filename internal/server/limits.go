package server

import (
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/plegd/plegd/internal/bounded"
)

const (
	// requestRate and requestBurst bound the requests of one client a second, of clients that have
	// not logged in and are not root on the node: a scrape or a page takes some milliseconds of CPU
	// time, which plegd needs to measure the runtime.
	requestRate  = 50
	requestBurst = 100
	// refusalDelay is the time that a client which asks too often, or with a wrong password,
	// waits for its answer: a client that asks again at once cannot take all CPU time.
	refusalDelay = 300 * time.Millisecond
	// maxStreams is the number of requests at a time on one HTTP/2 connection.
	maxStreams  = 4
	maxLimiters = 256 // clients whose rate is remembered
)

// limits bounds the requests of each client that is not trusted.
type limits struct {
	trusted Access

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

// slow waits for refusalDelay if the client of a request asks too often, and reports whether it
// does.
func (l *limits) slow(r *http.Request) bool {
	if l.allow(clientOf(r.RemoteAddr)) || l.trusted(r) {
		return false
	}
	bounded.Sleep(r.Context(), refusalDelay)
	return true
}
