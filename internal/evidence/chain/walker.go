// Package chain follows a chain of waiting, from a call or a process that hangs to the
// process that waits for no other one.
//
// It reads /proc, /sys and sock_diag. It sends no signal, starts no process, attaches to
// none and opens no process's memory. Each step has a time limit. A link is named only
// where the kernel shows it and where it stayed the same between two looks; where a
// process waits for several things, or where that cannot be seen, the chain ends and
// gives the reason.
//
// It knows no reason of a verdict: internal/health maps links to reasons.
package chain

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
	"github.com/plegd/plegd/internal/plain"
)

const (
	// stepLimit limits the time for one process.
	stepLimit = 3 * time.Second
	// tableAge is the age of the process table that is good enough.
	tableAge = 500 * time.Millisecond
	// maxAncestors bounds the way up from a helper to the runtime or a shim.
	maxAncestors = 16
	// maxName bounds a name that is shown, in bytes.
	maxName = 160
)

// Walker follows processes. Not for several goroutines at once.
type Walker struct {
	// Runtime is the process that runs the containers: the runtime's, or dockerd's behind
	// cri-dockerd; front is the one that serves the CRI. Each is 0 while it is not known.
	// Their children are helpers.
	Runtime, front int
	// Begun is when the fault began, zero where that is not known. A process with several
	// threads may always wait for a child: a child much older than the fault does not
	// count.
	Begun time.Time
	// Pod returns the namespace and name of the pod that a sandbox or container belongs
	// to, "" where it is not known; nil: none is.
	Pod func(id string) string

	procfs, sysfs string
	table         *node.Table
	tree          cgroup.Tree
	looks         map[proc.ID]*look
	since         bounded.Since[string]
	lock          *health.LockWait // that the process locked asks for again and again, unseen in /proc/locks
	locked        int
	about         string // the container in question, "" where none is known
	netns         string // of this process, whose sockets sock_diag shows
}

// NewWalker returns a walker over the processes below procfs.
func NewWalker(procfs, sysfs string) *Walker {
	w := &Walker{
		procfs: procfs, sysfs: sysfs, table: node.NewTable(procfs), tree: cgroup.NewTree(procfs, sysfs),
		looks: map[proc.ID]*look{},
	}
	w.netns = w.link("self/ns/net")
	return w
}

// Forget drops the looks at processes: the next walk begins a new fault.
func (w *Walker) Forget() {
	clear(w.looks)
	w.since.Clear()
	w.Begun, w.about = time.Time{}, ""
}

// Process returns the chain that begins with a process: its link is first.
func (w *Walker) Process(ctx context.Context, pid int, kind health.LinkKind) health.Chain {
	c := health.Chain{At: time.Now()}
	w.follow(ctx, &c, pid, kind)
	w.keepSince(&c)
	return c
}

// wait is what a process waits for. Two with the same key are the same.
type wait struct {
	key      string
	state    health.LinkState
	evidence string
	// next is the process that it waits for, 0 for none; links (a mount, a cgroup)
	// come before it.
	links []health.Link
	next  int
	// unknown is the reason why nothing more is known.
	unknown string
}

// follow appends the links from a process on. kind is that of the first one, "" for
// its own.
func (w *Walker) follow(ctx context.Context, c *health.Chain, pid int, kind health.LinkKind) {
	seen := map[int]bool{}
	for {
		s, err := proc.ReadStat(w.procfs, pid)
		if err != nil {
			c.Unknown = fmt.Sprintf("process %d is not visible to plegd: "+
				"it has ended, or /proc hides it (hidepid, ProtectProc, another pid namespace)", pid)
			return
		}
		if len(c.Links) >= health.MaxLinks {
			c.Unknown = fmt.Sprintf("it is longer than %d links", health.MaxLinks)
			return
		}
		step, cancel := context.WithTimeout(ctx, stepLimit)
		found := w.waitOf(step, s)
		link := w.linkOf(step, s, kind)
		cancel()
		link.State, link.Evidence = found.state, found.evidence
		c.Links = append(c.Links, link)
		seen[pid] = true
		c.Links = append(c.Links, found.links[:min(len(found.links), health.MaxLinks-len(c.Links))]...)
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
		pid, kind = found.next, ""
	}
}

// linkOf returns the link of a process. A shim has its pod, and the id of its sandbox or
// container.
func (w *Walker) linkOf(ctx context.Context, s proc.Stat, kind health.LinkKind) health.Link {
	if kind == "" {
		kind = w.kindOf(ctx, s)
	}
	l := health.Link{Kind: kind, Name: clean(s.Comm), PID: s.PID}
	if kind == health.KindShim {
		l.RuntimeID = clean(shimID(s, w.table.Args(s.ID())))
		if w.Pod != nil && l.RuntimeID != "" {
			l.Pod = clean(w.Pod(l.RuntimeID))
		}
	}
	return l
}

// shimID returns the sandbox or container that a shim or conmon serves, "" where its
// arguments do not name it.
func shimID(s proc.Stat, args []string) string {
	if strings.HasPrefix(s.Comm, "conmon") {
		return proc.ArgValue(args, "c")
	}
	return proc.ArgValue(args, "id")
}

// keepSince sets since when each link has been so. It may have taken a while, with many
// processes: the chain is as old as its end.
func (w *Walker) keepSince(c *health.Chain) {
	keys := make([]string, len(c.Links))
	for i, l := range c.Links {
		keys[i] = fmt.Sprintf("%s %s %d %s", l.Kind, l.Name, l.PID, l.State)
	}
	since := w.since.Update(c.At, keys...)
	for i := range c.Links {
		if l := &c.Links[i]; l.Since.IsZero() {
			l.Since = since[keys[i]]
		}
	}
	c.At = time.Now()
}

// processes returns the processes of the node; none where /proc cannot be read.
func (w *Walker) processes(ctx context.Context) *node.Processes {
	all, err := w.table.Processes(ctx, tableAge)
	if err != nil {
		return &node.Processes{}
	}
	return all
}

// kindOf returns what a process is: a shim by its name, a helper by its ancestors and
// namespaces.
func (w *Walker) kindOf(ctx context.Context, s proc.Stat) health.LinkKind {
	switch {
	case node.KindOf(s.Comm) == node.KindShim:
		return health.KindShim
	case w.isHelper(ctx, s):
		return health.KindHelper
	}
	return health.KindProcess
}

// isHelper reports whether a process descends from the runtime or from a shim and shares
// its namespaces. An OCI runtime whose parent has ended is one, too.
func (w *Walker) isHelper(ctx context.Context, s proc.Stat) bool {
	all, child := w.processes(ctx), s
	for range maxAncestors {
		parent, ok := all.ByPID[child.PPID]
		if !ok || parent.PID <= 1 {
			break
		}
		if parent.PID == w.Runtime || parent.PID == w.front || parent.Kind == node.KindShim {
			return node.IsHelper(child, parent.Stat, w.table.Args(child.ID())) &&
				node.SharesNamespaces(w.procfs, s.PID, parent.PID)
		}
		child = parent.Stat
	}
	return node.KindOf(s.Comm) == node.KindOCI && node.SharesNamespaces(w.procfs, s.PID, 1)
}

// age is how long a process has run.
func age(s proc.Stat) time.Duration { return proc.Uptime() - proc.TicksToDuration(s.Start) }

// clean makes a name safe to show.
func clean(s string) string {
	if len(s) > maxName {
		s = s[:maxName] + "..."
	}
	return plain.Text(s)
}

// link returns where a link below procfs leads, "" where it may not be read.
func (w *Walker) link(name string) string {
	to, err := os.Readlink(filepath.Join(w.procfs, name))
	if err != nil {
		return ""
	}
	return to
}

// read returns the content of a file below /sys, without the line's end; "" where it
// cannot be read.
func (w *Walker) read(name string) string {
	b, err := os.ReadFile(w.sysfs + "/" + name) // ".." is that of a link's target
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
