package evidence

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	nodes "github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// keptChildren is how many stuck or old children are named.
	keptChildren = 5
	// helperAge is how old a helper must be to be worth a word; whether that is
	// too old is for the classifier to say.
	helperAge = 5 * time.Second
	// settledAge is how old a process must be that is of no interest to be
	// looked at only in one of settledRounds searches: what it is to become, it is by then.
	// The pid may be another process's meanwhile, which shows that much later.
	settledAge    = 10 * time.Second
	settledRounds = 8
	// calmRounds is in how many samples each shim is looked at once while all is well:
	// a look takes 10 µs, and there are 110 of them. In one of so many samples one shim
	// that looks asleep is looked at more closely, with 110 of them each in 7 minutes;
	// while something may be wrong, in each sample, and each in 2 minutes.
	calmRounds = 4
	// searchChildrenAgain is the time between two searches of all processes,
	// searchChildrenCalm while all is well: the children that are known are looked at
	// more often.
	searchChildrenAgain = 2500 * time.Millisecond
	searchChildrenCalm  = 30 * time.Second
	// maxAncestors bounds the way up from the runtime.
	maxAncestors = 64
)

// childrenSource looks at the processes that the runtime leaves its work to.
type childrenSource struct {
	procfs string
	pid    func() int
	socket func() string
	up     func() time.Duration

	reader  proc.Reader // of the search
	known   proc.Reader // of what was found
	tree    cgroup.Tree
	args    proc.ArgsReader
	owner   childrenOwner
	settled map[int]bool
	shims   map[proc.ID]*shim
	turn    int // of the closer looks
	round   int // of looks
	runtime int // the runtime's process, of this look

	found       family // by the last search
	searched    time.Time
	searches    int
	calm        func() bool // all is well
	searchAgain func() time.Duration
	changes     func() uint64
	changed     uint64 // at the last search
}

// shim is what is remembered of a shim or conmon.
type shim struct {
	state string
	since time.Time
	tid   int // the stuck thread
	seen  int // the round of the last look
}

// ChildrenOptions configure the source about the runtime's children.
type ChildrenOptions struct {
	ProcFS, SysFS string
	// PID returns the runtime's process, 0 for none; Socket its path.
	PID    func() int
	Socket func() string
	// Changes counts the relists that found a pod changed; nil: not known.
	Changes func() uint64
	// All processes are searched every SearchAgain; while all is well and no pod has
	// changed since the last search, every SearchCalm.
	SearchAgain, SearchCalm time.Duration
}

// NewChildren returns the source about shims, conmons and the runtime's helpers.
// It looks every second, at a quarter of the shims while all is well, and three times a
// second while one is or looks stuck; for at most 1 s, and needs no privilege: at the
// stat file of the first thread of each, and where a shim looks stuck at its cgroup,
// its threads' stat and schedstat.
//
// A shim counts when the runtime, or a process that the runtime descends from,
// has it as a child: shims are left to these when the one that started them
// ends. So those of a runtime that runs in a pod do not count. Its arguments must
// name the runtime besides (childrenOwner): those of another runtime on the node,
// as of dockerd's containerd or of podman, are neither counted nor named, nor what
// they have started. It is stuck as T (stopped) or F (in a frozen cgroup) at once,
// as D when the same thread has not run since the sample before. That its cgroup
// is frozen on v2, or that a thread other than the first is in D, is looked for in
// turn: of one shim in each sample, of every fourth while all is well.
//
// Old are helpers: children of the runtime or of a shim in the runtime's namespaces,
// whatever their names. Those that live long by design do not count (exec,
// decompressors, NRI plugins, port forwarding).
//
// The arguments of a process can block the reader as long as it is wedged: they
// are read once and given up after 50 ms; a shim whose arguments cannot be read is
// not taken for the runtime's.
func NewChildren(opts ChildrenOptions) *Watch[health.Children] {
	c := newChildrenSource(opts.ProcFS, opts.SysFS, opts.PID, opts.Socket)
	w := NewWatch(Spec[health.Children]{
		Name: "children", Period: time.Second, Timeout: time.Second,
		Fast: 300 * time.Millisecond, Urgent: func(v *health.Children) bool { return len(v.Stuck) > 0 || len(c.shims) > 0 },
		Gather: c.gather, Store: func(e *health.Evidence, v *health.Children) { e.Children = v },
	})
	if opts.Changes != nil {
		c.changes = opts.Changes
	}
	c.calm = func() bool { return !w.alert.Load() }
	c.searchAgain = func() time.Duration {
		if !c.calm() || c.changes() != c.changed {
			return opts.SearchAgain
		}
		return opts.SearchCalm
	}
	return w
}

func newChildrenSource(procfs, sysfs string, pid func() int, socket func() string) *childrenSource {
	return &childrenSource{
		procfs: procfs, pid: pid, socket: socket, up: proc.Uptime, tree: cgroup.NewTree(procfs, sysfs), args: proc.ArgsReader{ProcFS: procfs},
		settled: map[int]bool{}, shims: map[proc.ID]*shim{}, known: proc.Reader{Keep: keepOpen(keptFiles)}, calm: func() bool { return false }, searchAgain: func() time.Duration { return 0 }, changes: func() uint64 { return 0 },
	}
}

// isShim tells a shim or a conmon by its name, of which the kernel keeps 15
// bytes.
func isShim(comm string) bool {
	return strings.HasPrefix(comm, "containerd-shim") || comm == "conmon" || comm == "conmonrs"
}

func (c *childrenSource) gather(ctx context.Context) (*health.Children, error) {
	runtime := c.pid()
	if runtime == 0 {
		return nil, ErrNoData
	}
	again := runtime == c.runtime && time.Since(c.searched) < c.searchAgain()
	c.runtime = runtime
	if again {
		c.lookAgain(ctx)
		return c.judge(), ctx.Err()
	}
	changed := c.changes()
	all, err := proc.Numbers(c.procfs, maxProcesses+1)
	if err != nil {
		return nil, err
	}
	switch n := len(all); {
	case n == 0:
		return nil, fmt.Errorf("look for the runtime's children: %s shows no process", c.procfs)
	case n > maxProcesses:
		return nil, fmt.Errorf("look for the runtime's children: more than %d processes", maxProcesses)
	}
	c.searched = time.Now()
	found, err := c.look(ctx, all, runtime)
	if err != nil {
		c.searched = time.Time{}
		return nil, err
	}
	c.found, c.changed = found, changed
	c.forget()
	return c.judge(), nil
}

// lookAgain looks at the shims and helpers that the last search found, and forgets
// those that have ended; while all is well and none looks stuck, only at the shims whose
// turn it is.
func (c *childrenSource) lookAgain(ctx context.Context) {
	c.round++
	again := func(all []proc.Stat, rounds int) []proc.Stat {
		alive := all[:0]
		for i, before := range all {
			if ctx.Err() != nil || i%rounds != c.round%rounds {
				alive = append(alive, before)
			} else if s, err := c.known.StatFirst(c.procfs, before.PID); err == nil && s.ID() == before.ID() && !s.Dead() {
				alive = append(alive, s)
			} else {
				delete(c.found.ids, before.PID)
				delete(c.shims, before.ID())
			}
		}
		return alive
	}
	c.found.shims, c.found.helpers = again(c.found.shims, c.rounds()), again(c.found.helpers, 1)
}

// rounds is in how many samples each shim is looked at once.
func (c *childrenSource) rounds() int {
	if c.calm() && len(c.shims) == 0 {
		return calmRounds
	}
	return 1
}

// judge tells which of the runtime's children are stuck or old.
func (c *childrenSource) judge() *health.Children {
	now, up := time.Now(), c.up()
	v := &health.Children{At: now, Shims: len(c.found.shims)}
	closely := -1 // the shim to look at more closely; none
	if n := len(c.found.shims); n > 0 && c.round%c.rounds() == 0 {
		c.turn = (c.turn + 1) % n
		closely = c.turn
	}
	for i, s := range c.found.shims {
		if state, since := c.shimState(s, now, i == closely); state != "" {
			v.Stuck = append(v.Stuck, health.Child{PID: s.PID, Comm: s.Comm, State: state, Since: since})
		}
	}
	for _, s := range c.found.helpers {
		started := proc.StartedAt(now, up, s.Start)
		if now.Sub(started) >= helperAge && c.isHelper(s) {
			v.Old = append(v.Old, health.Child{PID: s.PID, Comm: s.Comm, State: proc.ThreadState(s.State), Since: started})
		}
	}
	v.Stuck, v.Old = longest(v.Stuck), longest(v.Old)
	for i := range v.Stuck {
		s := &v.Stuck[i]
		if args := c.args.Of(c.found.ids[s.PID]); args != nil {
			s.Sandbox = sandboxOf(s.Comm, args)
		}
	}
	return v
}

// longest are the few children that have been so for longest.
func longest(all []health.Child) []health.Child {
	slices.SortFunc(all, func(a, b health.Child) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return a.PID - b.PID
	})
	return all[:min(len(all), keptChildren)]
}

// family is what one look through /proc finds of the runtime's.
type family struct {
	shims, helpers []proc.Stat
	ids            map[int]proc.ID // of all of these
	others         map[int]proc.ID // shims and conmons that are not known to be the runtime's
}

// look goes through the processes.
func (c *childrenSource) look(ctx context.Context, all []int, runtime int) (family, error) {
	c.round++
	c.searches++
	kin := c.ancestors(runtime)
	out := family{ids: map[int]proc.ID{}, others: map[int]proc.ID{}}
	c.owner.look(ctx, c, runtime)
	settled := make(map[int]bool, len(all))
	up := c.up()
	var rest []proc.Stat
	for _, pid := range all {
		if ctx.Err() != nil {
			return family{}, ctx.Err()
		}
		if c.settled[pid] && (pid+c.searches)%settledRounds != 0 {
			settled[pid] = true
			continue
		}
		stat := c.reader.Stat
		if _, ours := c.found.ids[pid]; ours {
			stat = c.known.StatFirst
		}
		s, err := stat(c.procfs, pid)
		if err != nil || s.State == 'Z' || s.State == 'X' || pid == runtime {
			continue
		}
		switch {
		case isShim(s.Comm) && kin[s.PPID]:
			args := c.args.Of(s.ID())
			if !c.owner.owns(s.Comm, args) {
				out.others[pid] = s.ID()
				settled[pid] = args != nil && up-proc.TicksToDuration(s.Start) >= settledAge
				continue
			}
			out.shims = append(out.shims, s)
			out.ids[pid] = s.ID()
		case s.PPID == runtime:
			out.helpers = append(out.helpers, s)
			out.ids[pid] = s.ID()
		default:
			rest = append(rest, s) // its parent may come later
		}
	}
	for _, s := range rest {
		if _, ours := out.ids[s.PPID]; ours && nodes.SharesNamespaces(c.procfs, s.PID, runtime) {
			out.helpers = append(out.helpers, s)
			out.ids[s.PID] = s.ID()
			continue
		}
		settled[s.PID] = up-proc.TicksToDuration(s.Start) >= settledAge
	}
	c.settled = settled
	return out, nil
}

// ancestors are the runtime and the processes that it descends from.
func (c *childrenSource) ancestors(runtime int) map[int]bool {
	kin := map[int]bool{}
	for pid := runtime; !kin[pid] && len(kin) < maxAncestors; {
		kin[pid] = true
		s, err := c.reader.Stat(c.procfs, pid)
		if err != nil {
			break
		}
		pid = s.PPID
	}
	return kin
}

// forget drops what is known of processes that the last search did not find.
func (c *childrenSource) forget() {
	for id := range c.shims {
		if c.found.ids[id.PID] != id {
			delete(c.shims, id)
		}
	}
	known := maps.Clone(c.found.ids)
	maps.Copy(known, c.found.others)
	c.args.Forget(known)
}
