// Package chain follows a chain of waiting, from a call or a process that hangs to the
// process that waits for no other one.
//
// It reads /proc, /sys and sock_diag. It sends no signal, starts no process, attaches to
// none and opens no process's memory. Each step has a time limit. A link is named only
// where the kernel shows it and where it stayed the same between two looks; where a
// process waits for several things, or where that cannot be seen, the chain ends and
// gives the reason. It knows no reason of a verdict: internal/health maps links to reasons.
package chain

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
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
	// maxName and maxEvidence bound the texts of a link, in bytes.
	maxName     = 160
	maxEvidence = 1 << 10
	// helperAge is the age from which a child of a shim is what the shim waits for.
	helperAge = time.Second
)

// Walker follows processes. Not for several goroutines at once.
type Walker struct {
	procfs, sysfs string
	table         *node.Table
	tree          node.CgroupTree
	since         bounded.Since[string]
	symptom       Symptom
	about         string // the container in question, "" where none is known
	denied        bool   // something of the process could not be read for want of a privilege
}

// NewWalker returns a walker over the processes below procfs.
func NewWalker(procfs, sysfs string) *Walker {
	return &Walker{procfs: procfs, sysfs: sysfs, table: node.NewTable(procfs), tree: node.NewCgroupTree(procfs, sysfs)}
}

// Process returns the chain that begins with a process: its link is first.
func (w *Walker) Process(ctx context.Context, pid int, kind health.LinkKind) health.Chain {
	c := health.Chain{At: time.Now()}
	w.follow(ctx, &c, pid, kind)
	w.finish(&c)
	return c
}

// wait is what a process waits for. Two with the same key are the same.
type wait struct {
	key      string
	state    health.LinkState
	evidence string
	// next is the process that it waits for, 0 for none; link, a mount or a cgroup,
	// comes before it.
	link health.Link
	next int
	// unknown is the reason why nothing more is known.
	unknown string
}

// follow appends the links from a process on. kind is that of the first one, "" for
// its own.
func (w *Walker) follow(ctx context.Context, c *health.Chain, pid int, kind health.LinkKind) {
	seen := map[int]bool{}
	for {
		s, err := node.ReadStat(w.procfs, pid)
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
		if found.link.Kind != "" && len(c.Links) < health.MaxLinks {
			c.Links = append(c.Links, found.link)
		}
		seen[pid] = true
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
func (w *Walker) linkOf(ctx context.Context, s node.Process, kind health.LinkKind) health.Link {
	l := health.Link{Kind: cmp.Or(kind, w.kindOf(ctx, s)), Name: s.Comm, PID: s.PID}
	if l.Kind == health.KindShim {
		l.RuntimeID = shimID(s, w.table.Args(s.ID()))
		if w.symptom.Pod != nil && l.RuntimeID != "" {
			l.Pod = w.symptom.Pod(l.RuntimeID)
		}
	}
	return l
}

// shimID returns the sandbox or container that a shim or conmon serves, "" where its
// arguments do not name it.
func shimID(s node.Process, args []string) string {
	if strings.HasPrefix(s.Comm, "conmon") {
		return node.ArgValue(args, "c")
	}
	return node.ArgValue(args, "id")
}

// finish makes the texts of a chain safe to show, and sets since when each link has been
// so. It may have taken a while, with many processes: the chain is as old as its end.
func (w *Walker) finish(c *health.Chain) {
	keys := make([]string, len(c.Links))
	for i := range c.Links {
		l := &c.Links[i]
		for _, text := range []*string{&l.Name, &l.RuntimeID, &l.Pod} {
			*text = clean(*text, maxName)
		}
		l.Evidence = clean(l.Evidence, maxEvidence)
		keys[i] = fmt.Sprintf("%s %s %d %s", l.Kind, l.Name, l.PID, l.State)
	}
	c.Unknown = clean(c.Unknown, maxEvidence)
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

// runtime returns the process whose children are helpers, 0 while it is not known.
func (w *Walker) runtime() int { return cmp.Or(w.symptom.DaemonPID, w.symptom.RuntimePID) }

// kindOf returns what a process is: a shim by its name, a helper by its ancestors and
// namespaces.
func (w *Walker) kindOf(ctx context.Context, s node.Process) health.LinkKind {
	switch {
	case s.Kind() == node.KindShim:
		return health.KindShim
	case w.isHelper(ctx, s):
		return health.KindHelper
	}
	return health.KindProcess
}

// isHelper reports whether a process descends from the runtime or from a shim and shares
// its namespaces. An OCI runtime whose parent has ended is one, too.
func (w *Walker) isHelper(ctx context.Context, s node.Process) bool {
	all, child := w.processes(ctx), s
	for range maxAncestors {
		parent, ok := all.ByPID[child.PPID]
		if !ok || parent.PID <= 1 {
			break
		}
		if parent.PID == w.runtime() || parent.PID == w.symptom.RuntimePID || parent.Kind() == node.KindShim {
			return node.IsHelper(child, parent, w.table.Args(child.ID())) &&
				node.SharesNamespaces(w.procfs, s.PID, parent.PID, "pid", "mnt")
		}
		child = parent
	}
	return s.Kind() == node.KindOCI && node.SharesNamespaces(w.procfs, s.PID, 1, "pid", "mnt")
}

// helpersOf returns the helpers that are children of a process and run for longer than
// they should, the oldest first; only those that work on a container, unless id is "".
func (w *Walker) helpersOf(ctx context.Context, parent int, id string) (out []node.Process) {
	if parent == 0 {
		return nil
	}
	for _, c := range w.processes(ctx).Children(parent) {
		about := id == "" || slices.Contains(w.table.Args(c.ID()), id)
		if about && age(c) >= helperAge && w.isHelper(ctx, c) {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b node.Process) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// age is how long a process has run.
func age(s node.Process) time.Duration { return node.Uptime() - node.TicksToDuration(s.Start) }

// clean makes a text of at most some bytes safe to show.
func clean(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return plain.Text(s)
}

// link returns where a link below procfs leads, "" where it may not be read.
func (w *Walker) link(name string) string {
	to, _ := os.Readlink(filepath.Join(w.procfs, name))
	return to
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
