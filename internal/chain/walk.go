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
	"context"
	"fmt"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/plain"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// stepLimit limits the time for one process.
	stepLimit = 3 * time.Second
	// tableAge is the age of the process table that is good enough.
	tableAge = 500 * time.Millisecond
	// maxText bounds each text of a chain, in bytes.
	maxText = 1 << 10
	// helperAge is the age from which a child of a shim is what the shim waits for.
	helperAge = time.Second
	// betweenLooks is the time between the two looks at a process that are compared.
	betweenLooks = 300 * time.Millisecond
	// maxThreads bounds the threads of a process that are read.
	maxThreads = 2048
)

// Explorer goes from a symptom to its culprit. Not for several goroutines at once.
type Explorer struct {
	procfs, sysfs string
	ask           Asker
	table         *proc.Table
	members       *family.Members

	symptom Symptom // the present one
	sweep   sweep
	// opened are the sockets of the daemon behind the runtime at the first round, nil before.
	opened map[uint32]bool
	begins bounded.Since[string]
	// quotas are what the CPU quotas did when they were last read, by cgroups.
	quotas map[string]quota
	// peeks is whether it looks at a process that may be a link, and not at those for which that one waits in turn.
	peeks bool
}

// New returns an explorer of the processes of a table, which knows the arguments of those
// that have hung since.
func New(table *proc.Table, sysfs string, ask Asker) *Explorer {
	return &Explorer{
		procfs: table.ProcFS, sysfs: sysfs, ask: ask, table: table,
		members: family.NewMembers(table),
		quotas:  map[string]quota{},
	}
}

// Process returns the chain that begins with a process: its link is first.
func (e *Explorer) Process(ctx context.Context, pid int) facts.Chain {
	c := facts.Chain{At: time.Now()}
	e.follow(ctx, &c, pid)
	e.finish(&c)
	return c
}

// wait is what a process waits for. Two with the same key are the same.
type wait struct {
	key      string
	state    facts.LinkState
	evidence string
	link     facts.Link // a mount, a cgroup or a kernel function on the way
	next     int        // the process that it waits for, 0 for none
	unknown  string     // why nothing more is known
	connects bool       // it is for the answer to a TCP connection
}

// follow appends the links from a process on.
func (e *Explorer) follow(ctx context.Context, c *facts.Chain, pid int) {
	start := len(c.Links)
	e.followTo(ctx, c, pid)
	e.endAtQuota(ctx, c, start)
}

// followTo appends the links from a process to the one at which nothing more is known.
func (e *Explorer) followTo(ctx context.Context, c *facts.Chain, pid int) {
	seen := map[int]bool{}
	for pid != 0 {
		if len(c.Links) >= facts.MaxLinks {
			c.Unknown = fmt.Sprintf("it is longer than %d links", facts.MaxLinks)
			return
		}
		p, err := proc.ReadStat(e.procfs, pid)
		if err != nil {
			c.Unknown = fmt.Sprintf("process %d is not visible to plegd: "+
				"it has ended, or /proc hides it (hidepid, ProtectProc, another pid namespace)", pid)
			return
		}
		found := e.step(ctx, c, p, len(seen) == 0)
		seen[pid] = true
		if seen[found.next] {
			last := &c.Links[len(c.Links)-1]
			last.State = facts.LinkLoop
			last.Evidence += fmt.Sprintf("; pid %d stands earlier in this chain: they wait for each other", found.next)
			return
		}
		pid = found.next
	}
}

// step appends the link of a process, and that of a mount or another thing that it waits for.
// The wait that it returns has a next process only if the chain continues.
func (e *Explorer) step(ctx context.Context, c *facts.Chain, p proc.Process, first bool) wait {
	limited, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	found := e.waitOf(limited, p)
	link := facts.Link{Kind: facts.KindRuntime, Name: p.Comm, PID: p.PID}
	if p.PID != e.symptom.RuntimePID || !first {
		link = e.linkOf(limited, p)
	}
	link.State = found.state
	link.Evidence = found.evidence
	c.Links = append(c.Links, link)
	if found.link.Kind != "" && len(c.Links) < facts.MaxLinks {
		c.Links = append(c.Links, found.link)
	}
	c.Unknown = found.unknown
	if found.unknown != "" {
		found.next = 0
	}
	return found
}

// linkOf returns the link of a process. A shim has the id that it serves, and its pod. A helper has its start: on a busy
// node its state changes from one look to the next.
func (e *Explorer) linkOf(ctx context.Context, p proc.Process) facts.Link {
	l := facts.Link{Kind: e.kindOf(ctx, p), Name: p.Comm, PID: p.PID}
	if l.Kind == facts.KindHelper {
		l.Since = proc.StartedAt(time.Now(), proc.Uptime(), p.Start)
	}
	if l.Kind == facts.KindShim {
		l.RuntimeID = family.ShimID(p, e.table.Args(p.ID()))
		if e.symptom.Pod != nil && l.RuntimeID != "" {
			l.Pod = e.symptom.Pod(l.RuntimeID)
		}
	}
	return l
}

// finish makes the texts of a chain safe to show, and sets since when each link has been
// so. It may have taken a while, with many processes: the chain is as old as its end.
func (e *Explorer) finish(c *facts.Chain) {
	keys := make([]string, len(c.Links))
	for i := range c.Links {
		l := &c.Links[i]
		for _, text := range []*string{&l.Name, &l.RuntimeID, &l.Pod, &l.Evidence} {
			*text = clean(*text)
		}
		keys[i] = fmt.Sprintf("%s %s %d %s", l.Kind, l.Name, l.PID, l.State)
	}
	c.Unknown = clean(c.Unknown)
	begins := e.begins.Update(c.At, keys...)
	for i := range c.Links {
		if c.Links[i].Since.IsZero() {
			c.Links[i].Since = begins[keys[i]]
		}
	}
	c.At = time.Now()
}

// clean makes a text short and safe to show.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "..."
	}
	return plain.Text(s)
}
