package ledger

import (
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/proc"
)

// maxServers bounds the servers that are kept over a restart.
const maxServers = 64

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

// runtime is the process of the runtime, zero where it has just ended.
func (p *pass) runtime() proc.ID {
	if len(p.hops) == 0 || p.hops[0].PID != p.pids[0] {
		return proc.ID{}
	}
	return p.hops[0]
}
