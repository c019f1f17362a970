// Package chain follows who waits for whom, from a call or a process that hangs to
// the one that waits for nobody.
//
// It reads /proc, /sys and sock_diag and nothing else: it sends no signal, starts
// no process and attaches to none. Every step has a time limit. A link is named
// only where the kernel shows it, and only where it stayed the same between two
// looks; where a process waits for several things, or what it waits for cannot be
// seen, the chain ends and says why.
//
// It knows no reason: which link makes which reason is for internal/health.
package chain

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/evidence/node/sockdiag"
	"github.com/plegd/plegd/internal/health"
)

const (
	// betweenLooks is the least time between the two looks at a process that are
	// compared, usableLook the most.
	betweenLooks = 300 * time.Millisecond
	usableLook   = 5 * time.Second
	// stepLimit limits the time for one process.
	stepLimit = 3 * time.Second
	// readLimit limits a read that may block.
	readLimit = 50 * time.Millisecond
)

// Walker follows processes. Not for several goroutines at once.
type Walker struct {
	procfs, sysfs string
	reader        proc.Reader
	left          proc.LeftBehind
	tree          cgroup.Tree
	diag          sockdiag.Conn
	looks         map[proc.ID]*look
	holders       map[string]holder
	since         map[string]time.Time
	// table are the node's processes at tableAt.
	table   map[int]proc.Stat
	tableAt time.Time
	// about is the container in question, "" where none is known.
	about string
	// Begun is when the fault began, zero where that is not known. A process with
	// several threads may wait all its life for a child: only one that is not much
	// older than the fault counts.
	Begun time.Time
	// netns is the network namespace of this process, whose sockets sock_diag sees.
	netns string
}

// NewWalker returns a walker over the processes below procfs. Close it.
func NewWalker(procfs, sysfs string) *Walker {
	w := &Walker{
		procfs: procfs, sysfs: sysfs, tree: cgroup.NewTree(procfs, sysfs),
		looks: map[proc.ID]*look{}, holders: map[string]holder{}, since: map[string]time.Time{},
	}
	w.netns = w.link("self/ns/net")
	return w
}

// Close closes the netlink socket.
func (w *Walker) Close() { w.diag.Close() }

// Forget drops what is known of processes: the next walk begins a new fault.
func (w *Walker) Forget() {
	clear(w.looks)
	clear(w.holders)
	clear(w.since)
	w.Begun, w.about = time.Time{}, ""
}

// Process returns the chain that begins with a process: its link is first.
func (w *Walker) Process(ctx context.Context, pid int, kind health.LinkKind) health.Chain {
	c := health.Chain{At: time.Now()}
	w.follow(ctx, &c, pid, kind)
	w.keepSince(&c)
	c.At = time.Now()
	return c
}

// wait is what a process does instead of answering, and what it waits for.
type wait struct {
	state    health.LinkState
	evidence string
	// next is the process that it waits for, 0 for none; links are what follows in
	// its place (a mount, a cgroup), before next.
	links []health.Link
	next  int
	// kind is that of next, "" for what its name says.
	kind health.LinkKind
	// unknown says why nothing more is known.
	unknown string
}

// follow appends the links from a process on.
func (w *Walker) follow(ctx context.Context, c *health.Chain, pid int, kind health.LinkKind) {
	seen := map[int]bool{}
	for {
		s, err := w.reader.Stat(w.procfs, pid)
		if err != nil {
			c.Unknown = fmt.Sprintf("process %d is not visible to plegd: it has ended, or /proc hides it (hidepid, ProtectProc, another pid namespace)", pid)
			return
		}
		if kind == "" {
			kind = kindOf(s.Comm)
		}
		link := health.Link{Kind: kind, Name: clean(s.Comm), PID: pid}
		if len(c.Links) >= health.MaxLinks {
			c.Unknown = fmt.Sprintf("it is longer than %d links", health.MaxLinks)
			return
		}
		step, cancel := context.WithTimeout(ctx, stepLimit)
		found := w.waitOf(step, s)
		cancel()
		link.State, link.Evidence = found.state, found.evidence
		c.Links = append(c.Links, link)
		seen[pid] = true
		for _, l := range found.links {
			if len(c.Links) < health.MaxLinks {
				c.Links = append(c.Links, l)
			}
		}
		c.Unknown = found.unknown
		if found.unknown != "" || found.next == 0 {
			return
		}
		if seen[found.next] {
			last := &c.Links[len(c.Links)-1]
			last.State = health.LinkLoop
			last.Evidence += fmt.Sprintf("; pid %d stands earlier in this chain: they wait for each other", found.next)
			return
		}
		pid, kind = found.next, found.kind
	}
}

// keepSince sets since when each link has been so.
func (w *Walker) keepSince(c *health.Chain) {
	known := map[string]time.Time{}
	for i := range c.Links {
		l := &c.Links[i]
		if !l.Since.IsZero() {
			continue
		}
		key := fmt.Sprintf("%s %s %d %s", l.Kind, l.Name, l.PID, l.State)
		at, ok := w.since[key]
		if !ok {
			at = c.At
		}
		l.Since, known[key] = at, at
	}
	w.since = known
}

// kindOf is the kind of a process by its name.
func kindOf(comm string) health.LinkKind {
	switch {
	case strings.HasPrefix(comm, "containerd-shim") || comm == "conmon" || comm == "conmonrs":
		return health.KindShim
	case isOCIRuntime(comm):
		return health.KindHelper
	default:
		return health.KindProcess
	}
}

// isOCIRuntime reports whether a name is that of what a shim starts for one step
// of a container.
func isOCIRuntime(comm string) bool { return comm == "runc" || comm == "crun" || comm == "youki" }

// maxName is as much of a name as is shown, in bytes.
const maxName = 160

// clean makes a name safe to show: it is cut, and what is no printable text is
// replaced.
func clean(s string) string {
	if len(s) > maxName {
		s = s[:maxName] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
