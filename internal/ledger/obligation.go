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
	goneServer  kind = "server"    // nobody listens any more where the runtime was connected
)

// needsNoDebtor reports whether such an obligation may be nobody's that can be named.
func (k kind) needsNoDebtor() bool { return k == busyPath || k == unanswered || k == goneServer }

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
	silent   int        // the process that did not read at the last look what may keep the runtime from taking note of an end
	lost     facts.Link // the shim of a pod that is lost or not served, a pod that is not stopped, or what has ended unnoticed
}
