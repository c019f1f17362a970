package ledger

import (
	"hash/fnv"
	"maps"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/internal/proc"
)

// goneFor is how long a server that has ended is owed for: it may have been taken away for good.
const goneFor = time.Hour

// goneServers notes the unix sockets to which the runtime has been connected and at which nobody listens any more, as
// at that of a snapshotter that has ended: its calls there fail at once.
func (p *pass) goneServers(d *dump, hops map[proc.ID]descriptors) {
	runtime := p.pids[0]
	connected := map[string]bool{}
	for hop, known := range hops {
		for inode := range known.sockets {
			end := d.byInode[inode]
			name := d.byInode[end.Peer].Name
			if hop.PID == runtime && end.Name == "" && end.Kind == unix.SOCK_STREAM && p.isForeign(name) {
				connected[name] = true
			}
		}
	}
	maps.DeleteFunc(p.servers, func(_ string, pid int) bool { return pid != runtime }) // the next one may need none
	for name := range connected {
		p.servers[name] = runtime
	}
	for name := range p.servers {
		if !connected[name] && !d.listens(name) {
			p.keepGone(name)
		}
	}
}

// isForeign reports whether a socket is neither that of a shim, which ends with its pod, nor one with reasons of its own.
func (p *pass) isForeign(name string) bool {
	isShim := strings.Contains(name, "/containerd/s/") || strings.Contains(name, "containerd-shim")
	return name != "" && !isShim && !p.answersAt(name) && !proc.IsLogSocket(name)
}

// listens reports whether somebody listens at a unix socket.
func (d *dump) listens(name string) bool {
	for _, s := range d.byInode {
		if s.State == proc.Listening && s.Name == name {
			return true
		}
	}
	return false
}

// idOf returns the id of what has a name alone.
func idOf(name string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	return hash.Sum64()
}

// keepGone notes a server that has ended.
func (p *pass) keepGone(name string) {
	o := p.keep(obligation{
		identity: identity{kind: goneServer, id: idOf(name)}, waiter: p.pids[0], name: name,
		evidence: "was connected to the socket " + name + ", and a call there fails",
	})
	if p.age(o) > goneFor {
		delete(p.servers, name)
	}
}
