package family

import (
	"context"
	"slices"

	"github.com/plegd/plegd/internal/proc"
)

// UnreadShims is the part of a sample that is missing while it is not known of a process whether it is a shim.
const UnreadShims = "identities of shims"

// Shims finds the shims and conmons of the runtime, once in each table of processes, for several goroutines at once.
type Shims struct {
	members *Members
	finding chan struct{} // holds one token while a search runs
	last    search
	found   Found
}

// search is what a search is for.
type search struct {
	all     *proc.Processes
	runtime int
	sockets []string
}

// Found is the result of a search. It is not changed.
type Found struct {
	Shims  []proc.Process
	Unread proc.Unread // UnreadShims, where it is not known of some processes
}

// NewShims returns the shims of a table's processes.
func NewShims(table *proc.Table) *Shims {
	return &Shims{members: NewMembers(table), finding: make(chan struct{}, 1)}
}

// In returns the shims in a table of processes, as Members.Shims does.
func (s *Shims) In(ctx context.Context, all *proc.Processes, runtime int, sockets []string) Found {
	unread := proc.Unread{}
	select {
	case s.finding <- struct{}{}:
	case <-ctx.Done(): // another search hangs
		unread[UnreadShims] = string(proc.Late)
		return Found{Unread: unread}
	}
	defer func() { <-s.finding }()
	isSame := s.last.all == all && s.last.runtime == runtime && slices.Equal(s.last.sockets, sockets)
	if isSame {
		return s.found
	}
	shims := s.members.Shims(ctx, all, runtime, sockets, func(err error) { unread.Add(UnreadShims, err) })
	s.last = search{all: all, runtime: runtime, sockets: sockets}
	s.found = Found{Shims: shims, Unread: unread}
	return s.found
}
