package ledger

import (
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/proc"
)

const (
	// maxAges bounds the ages that are kept over a restart.
	maxAges = 64
	// maxServers bounds the servers that are kept over a restart.
	maxServers = 64
)

// Memory is what no pass can see again: a plegd that starts continues with it, and with Ages.
type Memory struct {
	// Runtime is the process that all the rest is of. For another one it does not count.
	Runtime proc.ID `json:"runtime"`
	// Servers are the unix sockets to which it has been connected.
	Servers []string `json:"servers,omitempty"`
	// FailedSince is since when its starts fail at once, FailedAt the last one and FailedIn the directory that showed it; zero
	// while they do not.
	FailedSince time.Time `json:"starts_failed_since,omitzero"`
	FailedAt    time.Time `json:"starts_failed_at,omitzero"`
	FailedIn    string    `json:"starts_failed_in,omitempty"`
}

// Times returns the times that a change of the clock changes.
func (m *Memory) Times() []*time.Time { return []*time.Time{&m.FailedSince, &m.FailedAt} }

// Ages returns since when each obligation exists that is old and was not there before plegd: what a
// restart of plegd should not forget. It may be called by any goroutine.
func (l *Ledger) Ages() map[string]time.Time {
	ages := l.ages.Load()
	if ages == nil {
		return nil
	}
	return *ages
}

// publishAges makes the result of Ages after a pass.
func (l *Ledger) publishAges(p *pass) {
	ages := map[string]time.Time{}
	for id, o := range l.owed {
		if !o.known && p.age(o) >= limit && len(ages) < maxAges {
			ages[id.String()] = o.begun
		}
	}
	l.ages.Store(&ages)
}

// Memory returns what a restart of plegd should not forget. It may be called by any goroutine.
func (l *Ledger) Memory() Memory {
	known := l.memory.Load()
	if known == nil {
		return l.Recalled
	}
	return *known
}

// publishMemory makes the result of Memory after a pass.
func (p *pass) publishMemory() {
	servers := slices.Sorted(maps.Keys(p.servers))
	known := Memory{Runtime: p.runtime(), Servers: servers[:min(len(servers), maxServers)]}
	if p.started.proven {
		known.FailedSince = p.started.since
		known.FailedAt = p.started.last
		known.FailedIn = p.started.dir
	}
	p.memory.Store(&known)
}

// recall continues with what the plegd before knew of the same process.
func (p *pass) recall() {
	known := p.Recalled
	if known.Runtime.PID == 0 || known.Runtime != p.runtime() {
		return
	}
	for _, name := range known.Servers {
		p.servers[name] = known.Runtime.PID
	}
	if !known.FailedAt.IsZero() {
		p.started = starts{
			runtime: known.Runtime,
			failed:  failedStarts,
			since:   known.FailedSince,
			last:    known.FailedAt,
			dir:     known.FailedIn,
			proven:  true,
		}
	}
}
