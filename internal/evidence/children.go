package evidence

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
	"github.com/plegd/plegd/internal/wchan"
)

const (
	keptChildren   = 5               // are reported as stuck, and as old
	maxShimThreads = 64              // of a shim are read
	helperAge      = 5 * time.Second // from which a helper is reported
	// familyInterval is the time between two passes over all processes while something
	// may be wrong or a pod has changed, familyCalm in the steady state and of a stopped runtime.
	familyInterval = 2500 * time.Millisecond
	familyCalm     = 30 * time.Second
	// restInterval is the time between two looks at the shims of a runtime that is stopped, which is the
	// reason then; while one of them is stuck there is no rest.
	restInterval = 2 * time.Second
)

// childrenSource samples the processes to which the runtime leaves its work.
type childrenSource struct {
	*hop // the runtime
	// sockets returns the names of the paths by which shims are started for it. changes counts the
	// relists that found a pod changed.
	sockets func() []string
	changes func() uint64

	up      func() time.Duration
	tree    proc.CgroupTree
	family  *family.Shims
	members *family.Members // for helpers
	since   bounded.Since[stuckShim]
	stuck   map[stuckShim]time.Time // of the last sample, since when
	current int                     // index of the shim whose threads are read

	runtime        int             // of this sample
	all            *proc.Processes // from which shims and helpers are
	shims, helpers []proc.Process
	checked        time.Time // when the shims and helpers were last looked at
	changed        uint64
	unread         proc.Unread // by this sample
	familyUnread   proc.Unread // by the last search for shims and helpers
}

// newChildren returns the source about shims, conmons and the runtime's helpers. It
// needs no privilege.
func newChildren(c *childrenSource) *Watch[facts.Children] {
	c.up = proc.Uptime
	c.unread = proc.Unread{}
	files := proc.NewFiles(func(part string, err error) { c.unread.Add(part+" of shims", err) })
	c.tree = proc.NewCgroupTree(c.procfs, c.sysfs, files)
	c.members = family.NewMembers(c.table)
	return NewWatch(Spec[facts.Children]{
		Name:  "children",
		Every: 1,
		// A stopped shim that nothing else shows is reported within 10 s.
		Calm:     8,
		Timeout:  time.Second,
		Gather:   c.gather,
		Unread:   c.unread.Drain,
		Resample: func(*facts.Children) bool { return len(c.stuck) > 0 },
		Store:    func(e *facts.Evidence, v *facts.Children) { e.Children = v },
	})
}

func (c *childrenSource) gather(ctx context.Context) (*facts.Children, error) {
	runtime := c.process.PID()
	if runtime == 0 {
		return nil, ErrNoData
	}
	err := c.updateFamily(ctx, runtime)
	if err != nil {
		return nil, err
	}
	c.unread.Add("processes", c.all.Unread)
	maps.Copy(c.unread, c.familyUnread)
	moment := time.Now()
	return &facts.Children{
		At:    moment,
		Shims: len(c.shims),
		Stuck: longest(c.stuckShims(moment)),
		Old:   longest(c.oldHelpers(moment)),
	}, nil
}

// updateFamily brings the shims and helpers up to date: by a search among all processes where the last
// one is too old, else by those that it found.
func (c *childrenSource) updateFamily(ctx context.Context, runtime int) error {
	changed := c.changes()
	age := familyInterval
	switch {
	case runtime != c.runtime:
		age = 0
	case changed == c.changed && (c.isCalm() || c.startsNothing()):
		age = familyCalm
	}
	all := c.all
	if all == nil || time.Since(all.At) >= age {
		found, err := c.table.Processes(ctx, age)
		if err != nil {
			return err
		}
		all = found
	}
	c.runtime = runtime
	rests := c.startsNothing() && len(c.stuck) == 0 && time.Since(c.checked) < restInterval
	if all == c.all && rests {
		return nil
	}
	c.checked = time.Now()
	if all == c.all {
		c.shims = c.alive(c.shims)
		c.helpers = c.alive(c.helpers)
		return nil
	}
	c.all = all
	c.changed = changed
	c.findFamily(ctx)
	return nil
}

// startsNothing reports whether the runtime has been stopped since before the last pass over all processes.
func (c *childrenSource) startsNothing() bool {
	p := c.process.Value()
	if p == nil || c.all == nil || !p.Stopped() || len(p.Stops) == 0 {
		return false
	}
	return c.all.At.After(p.Stops[len(p.Stops)-1])
}

// oldHelpers returns the helpers that have run for longer than helperAge.
func (c *childrenSource) oldHelpers(moment time.Time) []facts.Child {
	up := c.up()
	var out []facts.Child
	for _, s := range c.helpers {
		started := proc.StartedAt(moment, up, s.Start)
		if moment.Sub(started) >= helperAge {
			out = append(out, facts.Child{PID: s.PID, Comm: s.Comm, State: proc.ThreadState(s.State), Since: started})
		}
	}
	return out
}

// alive returns the processes that have not ended, as they are now.
func (c *childrenSource) alive(all []proc.Process) []proc.Process {
	out := all[:0]
	for _, known := range all {
		p, err := c.table.Alive(known.PID)
		if err == nil && p.ID() == known.ID() {
			out = append(out, p)
		}
	}
	return out
}

// findFamily finds the runtime's shims and helpers.
func (c *childrenSource) findFamily(ctx context.Context) {
	runtime := c.all.ByPID[c.runtime]
	runtime.PID = c.runtime
	found := c.family.In(ctx, c.all, c.runtime, c.sockets())
	c.familyUnread = proc.Unread{}
	maps.Copy(c.familyUnread, found.Unread)
	c.shims = slices.Clone(found.Shims)
	c.helpers = nil
	parents := append(slices.Clone(c.shims), runtime)
	for i := 0; i < len(parents); i++ { // a helper has helpers
		parent := parents[i]
		for _, s := range c.all.Children(parent.PID) {
			answer := c.members.Helper(ctx, s, s, parent)
			c.familyUnread.Add(family.UnreadShims, answer.Err)
			if answer.Proven() {
				c.helpers = append(c.helpers, s)
				parents = append(parents, s)
			}
		}
	}
}

// stuckShim is a shim or conmon and how it is stuck: T, F, or D and S with the thread that is.
type stuckShim struct {
	id    proc.ID
	state string
	tid   int
}

// stuckShims returns the shims that are stuck. One that looks asleep is read more closely
// in its turn, and as long as it was stuck in the last sample. A thread must be stuck in
// two samples without another one in between: a healthy one waits for a disk at times.
func (c *childrenSource) stuckShims(moment time.Time) []facts.Child {
	c.current = (c.current + 1) % max(1, len(c.shims))
	closely := map[proc.ID]bool{}
	for known := range c.stuck {
		closely[known.id] = true
	}
	found := map[stuckShim]proc.Process{}
	for i, s := range c.shims {
		state, tid := c.conditionOf(s, i == c.current || closely[s.ID()])
		if state != "" {
			found[stuckShim{id: s.ID(), state: state, tid: tid}] = s
		}
	}
	c.stuck = c.since.Update(moment, slices.Collect(maps.Keys(found))...)
	var out []facts.Child
	for known, since := range c.stuck {
		if known.tid != 0 && !since.Before(moment) {
			continue
		}
		s := found[known]
		out = append(out, facts.Child{
			PID:     s.PID,
			Comm:    s.Comm,
			State:   known.state,
			Since:   since,
			Sandbox: family.ShimID(s, c.table.Args(known.id)),
		})
	}
	return out
}

// conditionOf returns how a shim is stuck, with the thread for D and S; "" where it is not.
func (c *childrenSource) conditionOf(s proc.Process, closely bool) (string, int) {
	state := proc.ThreadState(s.State)
	if state == "T" {
		return "T", 0
	}
	if (state == "D" || closely) && c.isFrozen(s.PID) { // by v2, its tasks look asleep
		if c.isFrozen(c.runtime) { // a service's freezer holds both, and the shim is not the cause
			return "", 0
		}
		return "F", 0
	}
	if state == "D" && !c.awaitsExec(s.PID, s.PID) {
		return "D", s.PID
	}
	if closely {
		return c.stuckThread(s.PID)
	}
	return "", 0
}

func (c *childrenSource) isFrozen(pid int) bool {
	frozen, err := c.tree.IsFrozen(pid)
	c.unread.Add("cgroups of shims", err)
	return frozen
}

// awaitsExec reports whether a thread in D waits until its child has begun another program: then
// the child is what does not get on, and is a helper.
func (c *childrenSource) awaitsExec(pid, tid int) bool {
	return wchan.Of(proc.Channel(c.procfs, pid, tid)).Kind == wchan.Exec
}

// stuckThread returns the first thread that is stuck, and its state: D, or S for one that
// sleeps without waiting for work, which is not looked for in the steady state; "" for none.
func (c *childrenSource) stuckThread(pid int) (string, int) {
	all, err := proc.ThreadStates(c.procfs, pid, maxShimThreads)
	c.unread.Add("shim threads", err)
	for _, t := range all {
		if t.State == 'D' && !c.awaitsExec(pid, t.PID) {
			return "D", t.PID
		}
		if t.State != 'S' || c.isCalm() { // where it sleeps matters once something is late
			continue
		}
		place := c.table.Place(pid, t.PID)
		c.unread.Add("system calls of shims", place.Unread)
		if !place.IsIdle() {
			return "S", t.PID
		}
	}
	return "", 0
}

// longest returns the few children that have been in their state for longest.
func longest(all []facts.Child) []facts.Child {
	slices.SortFunc(all, func(a, b facts.Child) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID))
	})
	return all[:min(len(all), keptChildren)]
}
