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
	"strings"
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
}

// New returns an explorer of the processes of a table, which knows the arguments of those
// that have hung since.
func New(table *proc.Table, sysfs string, ask Asker) *Explorer {
	return &Explorer{
		procfs: table.ProcFS, sysfs: sysfs, ask: ask, table: table,
		members: family.NewMembers(table),
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
}

// follow appends the links from a process on.
func (e *Explorer) follow(ctx context.Context, c *facts.Chain, pid int) {
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
// What it returns leads on only if the chain does.
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

// linkOf returns the link of a process. A shim has the id that it serves, and its pod.
func (e *Explorer) linkOf(ctx context.Context, p proc.Process) facts.Link {
	l := facts.Link{Kind: e.kindOf(ctx, p), Name: p.Comm, PID: p.PID}
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

// processes returns the processes of the node: with Unread, those that could be read in time.
func (e *Explorer) processes(ctx context.Context) *proc.Processes {
	all, err := e.table.Processes(ctx, tableAge)
	if all == nil {
		return &proc.Processes{Unread: err}
	}
	return all
}

// runtime returns the process whose children are helpers, 0 while it is not known.
func (e *Explorer) runtime() int { return cmp.Or(e.symptom.DaemonPID, e.symptom.RuntimePID) }

// isShim reports whether a process is a shim or conmon of the runtime.
func (e *Explorer) isShim(ctx context.Context, p proc.Process) bool {
	return e.members.Shim(ctx, p, e.symptom.RuntimePID).Proven()
}

// kindOf returns what a process is to the runtime.
func (e *Explorer) kindOf(ctx context.Context, p proc.Process) facts.LinkKind {
	if e.isShim(ctx, p) {
		return facts.KindShim
	}
	if e.isHelper(ctx, p) {
		return facts.KindHelper
	}
	return facts.KindProcess
}

// isHelper reports whether a process is a helper of the runtime or of a shim from which it
// descends, or an OCI runtime whose parent has ended.
func (e *Explorer) isHelper(ctx context.Context, p proc.Process) bool {
	all := e.processes(ctx)
	top := p
	for _, pid := range all.Ancestors(p.PPID) {
		parent := all.ByPID[pid]
		if pid == e.runtime() || pid == e.symptom.RuntimePID || e.isShim(ctx, parent) {
			return e.members.Helper(ctx, p, top, parent).Proven()
		}
		top = parent
	}
	return e.members.Orphan(ctx, p).Proven()
}

// helpersOf returns the helpers that are children of a process and run for longer than
// they should, the oldest first; only those that work on a container, unless id is "". The error is
// why it is not known of another one whether it works on it.
func (e *Explorer) helpersOf(ctx context.Context, parent int, id string) (out []proc.Process, unread error) {
	for _, p := range e.processes(ctx).Children(parent) {
		if age(p) < helperAge || e.kindOf(ctx, p) != facts.KindHelper {
			continue
		}
		works, err := e.worksOn(p, id)
		if err != nil && !proc.Gone(err) {
			unread = fmt.Errorf("whether the helper with pid %d (%s) works on it could not be read (%s)", p.PID, p.Comm, proc.Why(err))
		}
		if works {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b proc.Process) int { return cmp.Compare(a.Start, b.Start) })
	return out, unread
}

// maxEnviron bounds the environment of a helper that is read.
const maxEnviron = 64 << 10

// worksOn reports whether a helper names a container or sandbox in its arguments, or as a CNI plugin
// does; true for the id "". The error is why that is not known.
func (e *Explorer) worksOn(p proc.Process, id string) (bool, error) {
	if id == "" || slices.Contains(e.table.Args(p.ID()), id) {
		return true, nil
	}
	environ, err := proc.Read(proc.Path(e.procfs, p.PID, "environ"), maxEnviron)
	return slices.Contains(strings.Split(string(environ), "\x00"), "CNI_CONTAINERID="+id), err
}

// age is how long a process has run.
func age(p proc.Process) time.Duration { return proc.Uptime() - proc.TicksToDuration(p.Start) }

// thread is a thread at the moment of a look, and where it waits in the kernel.
type thread struct {
	proc.Thread

	channel string // "" where it cannot be read
	call    proc.Syscall
}

// look is a process at a moment: its threads by id, its sockets by inode.
type look struct {
	time    time.Time
	threads map[int]thread
	sockets map[uint32]connection
}

// waiting is two looks at a process, and what its threads wait for.
type waiting struct {
	*Explorer
	pid         int
	first, last look
	mounts      []proc.Mount // nil before they are read
	mountsErr   error        // why they could not be
	unseen      string       // why something of the process could not be read, "" if all was

	found     []wait
	blocked   []wait            // threads in D whose object is not known: they count where nothing else is found
	kernel    []wait            // threads in another call: the last to count
	doubts    []string          // those that may as well be of idle threads
	calls     map[string]int    // the idle threads, by their system call
	lockPaths map[string]string // in whose fcntl(2) or flock(2) threads sleep, by inode
	unread    string            // what it leaves unread, "" for nothing
}

// look returns two looks at a process; ok is false when it has ended.
func (e *Explorer) look(ctx context.Context, pid int) (f *waiting, ok bool) {
	f = &waiting{Explorer: e, pid: pid, calls: map[string]int{}, lockPaths: map[string]string{}}
	if !f.read(ctx, &f.first) {
		return f, false
	}
	if !bounded.Sleep(ctx, betweenLooks) {
		return f, false
	}
	return f, f.read(ctx, &f.last) && f.last.threads[pid].ID() == f.first.threads[pid].ID()
}

// read reads the threads and sockets of a process; false when it has ended.
func (f *waiting) read(ctx context.Context, l *look) bool {
	*l = look{time: time.Now(), threads: map[int]thread{}}
	all, err := proc.Threads(f.procfs, f.pid, maxThreads)
	f.unseenIf("its threads", err)
	for _, t := range all {
		l.threads[t.PID] = thread{Thread: t}
	}
	if !f.isHeld(l) { // what holds it up is known without them
		l.sockets = f.connections(ctx)
	}
	return ctx.Err() == nil && len(l.threads) > 0
}

// unmoved returns the threads that have not run between the looks and are in the same
// state: those in D first.
func (f *waiting) unmoved() (out []thread) {
	for tid, t := range f.last.threads {
		b := f.first.threads[tid]
		if b.ID() == t.ID() && b.State == t.State && b.Schedstat == t.Schedstat {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b thread) int { return int(a.State) - int(b.State) })
	return out
}

// ran is the CPU time of all threads between the looks, in nanoseconds.
func (f *waiting) ran() (sum uint64) {
	for tid, t := range f.last.threads {
		if b := f.first.threads[tid]; b.ID() == t.ID() {
			sum += max(t.Run, b.Run) - b.Run
		}
	}
	return sum
}

// place reads where a thread waits in the kernel.
func (f *waiting) place(t *thread) {
	place := f.table.Place(f.pid, t.PID)
	t.call = place.Call
	t.channel = place.Channel
	f.unseenIf("the system call of a thread", place.Unread)
}

// fd returns where a descriptor of the process leads, "" where that cannot be read.
func (f *waiting) fd(n int) string {
	leads, err := proc.Link(proc.Path(f.procfs, f.pid, fmt.Sprintf("fd/%d", n)))
	if err != nil {
		f.unseenIf("a descriptor", err)
	}
	return leads
}

// cgroups returns the cgroups of the process, nil for none, with a reader of their files. What cannot
// be read is noted in unseen.
func (f *waiting) cgroups(unseen *string) (proc.CgroupTree, proc.Cgroups) {
	note := func(part string, err error) {
		if proc.OutcomeOf(err) != proc.Absent {
			*unseen = fmt.Sprintf("its %s: %s", part, proc.Why(err))
		}
	}
	tree := proc.NewCgroupTree(f.procfs, f.sysfs, proc.NewFiles(note))
	groups, err := tree.Of(f.pid)
	if err != nil {
		note("cgroup", err)
		return tree, nil
	}
	return tree, groups
}

// missingPrivilege is why a file of another process is denied.
const missingPrivilege = "CAP_SYS_PTRACE"

// unseenIf notes that something of the process could not be read: its waits are not all known.
func (f *waiting) unseenIf(what string, err error) {
	outcome := proc.OutcomeOf(err)
	switch outcome {
	case "", proc.Absent:
	case proc.Denied:
		f.unseen = what + ": denied (" + missingPrivilege + ")"
	case proc.Failed:
		f.unseen = fmt.Sprintf("%s: %v", what, err)
	default:
		f.unseen = what + ": " + string(outcome)
	}
}
