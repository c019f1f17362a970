package ledger

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// identity tells obligations apart over passes and restarts of plegd.
type identity struct {
	kind kind
	id   uint64 // a socket's cookie, a pipe's inode, a process's start
	pid  int    // of a process, else 0
}

// String is the key of Ages.
func (id identity) String() string { return fmt.Sprintf("%s %d %d", id.kind, id.id, id.pid) }

// kind is the kind of an obligation.
type kind string

const (
	unreadBytes kind = "bytes"     // a peer does not read
	unaccepted  kind = "accept"    // a peer does not accept
	openPipe    kind = "pipe"      // a stranger keeps a pipe open that the runtime reads
	killed      kind = "process"   // a killed process does not end
	lostPod     kind = "lost"      // a shim lives whose pod the runtime has ceased to list
	unserved    kind = "ended"     // the shim has ended of a pod or container that the runtime lists as running
	unnoticed   kind = "unnoticed" // a process of a shim has ended, and the runtime still lists it as running
	busyPath    kind = "busy"      // a path is in use that the runtime is to remove
	unanswered  kind = "request"   // a server does not answer
	resting     kind = "child"     // a child that may run for long has ceased to run
	unstopped   kind = "stop"      // a sandbox has ended, and its network is still there
	unstarted   kind = "start"     // starts do not end
	goneServer  kind = "server"    // nobody listens any more where the runtime was connected
)

// needsNoDebtor reports whether such an obligation may be nobody's that can be named.
func (k kind) needsNoDebtor() bool {
	return k == busyPath || k == unanswered || k == goneServer || k == unstarted
}

// obligation is something that is owed.
type obligation struct {
	identity

	begun  time.Time
	known  bool          // it was there in the first pass: it may be so by design
	limit  time.Duration // the age from which it is followed, where that is longer than usual
	due    time.Time     // when it is looked up whose it is
	amount uint32        // bytes or connections
	waiter int           // the process of the runtime's, or a shim, to which it is owed; 0 while not known
	debtor int           // the process that owes it; 0 while not known
	// isClients is set where the debtor is a client of a server's: the server need not wait for it.
	isClients bool
	// stands is set for a child that stands still itself.
	stands   bool
	socket   proc.Socket
	name     string // of the socket or pipe
	evidence string // how the waiter waits
	explorer *chain.Explorer
	followed facts.Chain // to which starts that do not end led when it was last due
	silent   int         // the process that did not read at the last look what may keep the runtime from taking note of an end
	lost     facts.Link  // the shim of a pod that is lost or not served, a pod that is not stopped, or what has ended unnoticed
}

// keep keeps an obligation with the age that it has, and returns it. An amount that has fallen
// since the last pass makes it a new one: it is draining.
func (p *pass) keep(found obligation) *obligation {
	p.seen[found.identity] = true
	o, ok := p.owed[found.identity]
	if !ok || found.amount < o.amount {
		begun, restored := p.Begun[found.String()]
		found.known = !p.passed && !restored
		if ok || !restored {
			begun = p.moment
		}
		found.begun = begun
		found.explorer = chain.New(p.Table, p.SysFS, nil)
		p.owed[found.identity] = &found
		return &found
	}
	o.amount = found.amount
	o.socket = found.socket
	return o
}

// isDue reports whether it is time to look up whose an old obligation is, and counts it as done.
func (p *pass) isDue(o *obligation) bool {
	if p.age(o) < limit || p.moment.Before(o.due) {
		return false
	}
	o.due = p.moment.Add(againAfter)
	return true
}

// age is how long something has been owed.
func (p *pass) age(o *obligation) time.Duration { return p.moment.Sub(o.begun) }

// followedFrom is the age from which an obligation is followed.
func (o *obligation) followedFrom() time.Duration {
	if o.kind == resting && !o.stands {
		return idleLimit
	}
	return max(limit, o.limit)
}
