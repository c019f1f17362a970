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
	"slices"
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
	// maxName and maxEvidence bound the texts of a link, in bytes.
	maxName     = 160
	maxEvidence = 1 << 10
	// helperAge is the age from which a child of a shim is what the shim waits for.
	helperAge = time.Second
)

// Explorer goes from a symptom to its culprit. Not for several goroutines at once.
type Explorer struct {
	procfs, sysfs string
	ask           Asker
	table         *node.Table
	tree          node.CgroupTree

	symptom Symptom // the present one
	sweep   sweep
	about   string // the container in question, "" where none is known
	since   bounded.Since[string]
}

// New returns an explorer of the processes below procfs.
func New(procfs, sysfs string, ask Asker) *Explorer {
	return &Explorer{
		procfs: procfs, sysfs: sysfs, ask: ask, table: node.NewTable(procfs), tree: node.NewCgroupTree(procfs, sysfs),
	}
}

// Process returns the chain that begins with a process: its link is first. kind is that of
// the link, "" for its own.
func (e *Explorer) Process(ctx context.Context, pid int, kind health.LinkKind) health.Chain {
	c := health.Chain{At: time.Now()}
	e.follow(ctx, &c, pid, kind)
	e.finish(&c)
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

// follow appends the links from a process on. kind is that of the first one.
func (e *Explorer) follow(ctx context.Context, c *health.Chain, pid int, kind health.LinkKind) {
	for seen := map[int]bool{}; ; kind = "" {
		p, err := node.ReadStat(e.procfs, pid)
		switch {
		case err != nil:
			c.Unknown = fmt.Sprintf("process %d is not visible to plegd: "+
				"it has ended, or /proc hides it (hidepid, ProtectProc, another pid namespace)", pid)
			return
		case len(c.Links) >= health.MaxLinks:
			c.Unknown = fmt.Sprintf("it is longer than %d links", health.MaxLinks)
			return
		}
		step, cancel := context.WithTimeout(ctx, stepLimit)
		found, link := e.waitOf(step, p), e.linkOf(step, p, kind)
		cancel()
		link.State, link.Evidence = found.state, found.evidence
		c.Links = append(c.Links, link)
		if found.link.Kind != "" && len(c.Links) < health.MaxLinks {
			c.Links = append(c.Links, found.link)
		}
		c.Unknown = found.unknown
		if found.unknown != "" || found.next == 0 {
			return
		}
		seen[pid], pid = true, found.next
		if seen[pid] {
			last := &c.Links[len(c.Links)-1]
			last.State = health.LinkLoop
			last.Evidence += fmt.Sprintf("; pid %d stands earlier in this chain: they wait for each other", pid)
			return
		}
	}
}

// linkOf returns the link of a process. A shim has its pod, and the id of its sandbox or
// container.
func (e *Explorer) linkOf(ctx context.Context, p node.Process, kind health.LinkKind) health.Link {
	l := health.Link{Kind: cmp.Or(kind, e.kindOf(ctx, p)), Name: p.Comm, PID: p.PID}
	if l.Kind == health.KindShim {
		l.RuntimeID = p.ShimID(e.table.Args(p.ID()))
		if e.symptom.Pod != nil && l.RuntimeID != "" {
			l.Pod = e.symptom.Pod(l.RuntimeID)
		}
	}
	return l
}

// finish makes the texts of a chain safe to show, and sets since when each link has been
// so. It may have taken a while, with many processes: the chain is as old as its end.
func (e *Explorer) finish(c *health.Chain) {
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
	since := e.since.Update(c.At, keys...)
	for i := range c.Links {
		if l := &c.Links[i]; l.Since.IsZero() {
			l.Since = since[keys[i]]
		}
	}
	c.At = time.Now()
}

// clean makes a text of at most some bytes safe to show.
func clean(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return plain.Text(s)
}

// processes returns the processes of the node; none where /proc cannot be read.
func (e *Explorer) processes(ctx context.Context) *node.Processes {
	all, err := e.table.Processes(ctx, tableAge)
	if err != nil {
		return &node.Processes{}
	}
	return all
}

// runtime returns the process whose children are helpers, 0 while it is not known.
func (e *Explorer) runtime() int { return cmp.Or(e.symptom.DaemonPID, e.symptom.RuntimePID) }

// kindOf returns what a process is: a shim by its name; a helper where it descends from the
// runtime or from a shim and shares its namespaces, or is an OCI runtime whose parent has
// ended.
func (e *Explorer) kindOf(ctx context.Context, p node.Process) health.LinkKind {
	if p.Kind() == node.KindShim {
		return health.KindShim
	}
	all, child, helper, of := e.processes(ctx), p, p.Kind() == node.KindOCI, 1
	for _, pid := range all.Ancestors(p.PPID) {
		parent := all.ByPID[pid]
		if parent.PID <= 1 {
			break
		}
		if parent.PID == e.runtime() || parent.PID == e.symptom.RuntimePID || parent.Kind() == node.KindShim {
			helper, of = node.IsHelper(child, parent, e.table.Args(child.ID())), parent.PID
			break
		}
		child = parent
	}
	if helper && node.SharesNamespaces(e.procfs, p.PID, of, "pid", "mnt") {
		return health.KindHelper
	}
	return health.KindProcess
}

// helpersOf returns the helpers that are children of a process and run for longer than
// they should, the oldest first; only those that work on a container, unless id is "".
func (e *Explorer) helpersOf(ctx context.Context, parent int, id string) []node.Process {
	if parent == 0 {
		return nil
	}
	out := slices.DeleteFunc(e.processes(ctx).Children(parent), func(p node.Process) bool {
		about := id == "" || slices.Contains(e.table.Args(p.ID()), id)
		return !about || age(p) < helperAge || e.kindOf(ctx, p) != health.KindHelper
	})
	slices.SortFunc(out, func(a, b node.Process) int { return cmp.Compare(a.Start, b.Start) })
	return out
}

// age is how long a process has run.
func age(p node.Process) time.Duration { return node.Uptime() - node.TicksToDuration(p.Start) }

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
