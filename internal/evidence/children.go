package evidence

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

const (
	// keptChildren is how many stuck or old children are reported.
	keptChildren = 5
	// helperAge is the age from which a helper is reported; whether that is too old is
	// for internal/health.
	helperAge = 5 * time.Second
	// familyInterval is the time between two passes over all processes while something
	// may be wrong or a pod has changed, familyCalm in the steady state.
	familyInterval = 2500 * time.Millisecond
	familyCalm     = 30 * time.Second
)

// childrenOptions configure the source about the runtime's children.
type childrenOptions struct {
	ProcFS, SysFS string
	Table         *node.Table
	// PID returns the runtime's process, 0 for none; Socket the path by which shims are
	// started for it.
	PID    func() int
	Socket func() string
	// Changes counts the relists that found a pod changed. Calm reports whether all is
	// well. Either may be nil.
	Changes func() uint64
	Calm    func() bool
}

// childrenSource samples the processes to which the runtime leaves its work.
type childrenSource struct {
	opts childrenOptions
	up   func() time.Duration

	tree    cgroup.Tree
	owner   childrenOwner
	stuck   map[proc.ID]condition // of the last sample, by shim
	since   bounded.Since[condition]
	turn    int // of the shim whose threads are read
	runtime int // of this sample

	table          *node.Processes // from which shims and helpers are
	shims, helpers []node.Process
	changed        uint64
}

// newChildren returns the source about shims, conmons and the runtime's helpers. It
// needs no privilege.
//
// A shim counts when the runtime, or a process that the runtime descends from, is its
// parent: shims are left to these when the process that started them ends. So those of
// a runtime in a pod do not count. Its arguments must name the runtime besides
// (childrenOwner): those of another runtime are neither counted nor named, nor are their
// children. It is stuck as T (stopped) or F (in a frozen cgroup) at once, as D when the
// same thread has not run since the sample before. A thread other than the first, and
// the freezer of v2, are read of one shim in each sample, in turn.
//
// A helper is a child of the runtime or of a shim in the runtime's namespaces, with any
// name; processes that live long by design do not count (node.IsHelper).
func newChildren(opts childrenOptions) *Watch[health.Children] {
	c := newChildrenSource(opts)
	return NewWatch(Spec[health.Children]{
		// Calm is what a stopped shim that nothing else shows may wait.
		Name: "children", Every: 1, Calm: 3, Timeout: time.Second, Gather: c.gather,
		Again: func(v *health.Children) bool { return len(c.stuck) > 0 },
		Store: func(e *health.Evidence, v *health.Children) { e.Children = v },
	})
}

func newChildrenSource(opts childrenOptions) *childrenSource {
	if opts.Changes == nil {
		opts.Changes = func() uint64 { return 0 }
	}
	return &childrenSource{opts: opts, up: proc.Uptime, tree: cgroup.NewTree(opts.ProcFS, opts.SysFS)}
}

func (c *childrenSource) gather(ctx context.Context) (*health.Children, error) {
	runtime := c.opts.PID()
	if runtime == 0 {
		return nil, ErrNoData
	}
	changed, age := c.opts.Changes(), familyInterval
	switch {
	case runtime != c.runtime || c.opts.Calm == nil:
		age = 0
	case c.opts.Calm() && changed == c.changed:
		age = familyCalm
	}
	all, err := c.opts.Table.Processes(ctx, age)
	if err != nil {
		return nil, err
	}
	c.runtime = runtime
	if all != c.table {
		c.table, c.changed = all, changed
		c.findFamily(ctx, all)
	} else {
		c.shims, c.helpers = c.alive(c.shims), c.alive(c.helpers)
	}
	now, up := time.Now(), c.up()
	v := &health.Children{At: now, Shims: len(c.shims), Stuck: longest(c.stuckShims(now))}
	for _, s := range c.helpers {
		if started := proc.StartedAt(now, up, s.Start); now.Sub(started) >= helperAge {
			v.Old = append(v.Old, health.Child{PID: s.PID, Comm: s.Comm, State: proc.ThreadState(s.State), Since: started})
		}
	}
	v.Old = longest(v.Old)
	return v, nil
}

// alive returns the processes that have not ended, as they are now.
func (c *childrenSource) alive(all []node.Process) []node.Process {
	out := all[:0]
	for _, before := range all {
		if p, err := c.opts.Table.Alive(before.PID); err == nil && p.ID() == before.ID() && !ended(p) {
			out = append(out, p)
		}
	}
	return out
}

// ended reports whether the first thread of a process has ended.
func ended(p node.Process) bool { return p.State == 'Z' || p.State == 'X' }

// findFamily finds the runtime's shims and helpers.
func (c *childrenSource) findFamily(ctx context.Context, all *node.Processes) {
	c.owner.update(ctx, c, all)
	c.shims, c.helpers = nil, nil
	for _, parent := range all.Ancestors(c.runtime) {
		for _, s := range all.Children(parent) {
			if s.Kind == node.KindShim && s.PID != c.runtime && !ended(s) && c.owner.owns(s.Comm, c.opts.Table.Args(s.ID())) {
				c.shims = append(c.shims, s)
			}
		}
	}
	runtime := all.ByPID[c.runtime]
	runtime.PID = c.runtime
	parents := append(slices.Clone(c.shims), runtime)
	for len(parents) > 0 { // a helper has helpers
		parent := parents[0]
		parents = parents[1:]
		for _, s := range all.Children(parent.PID) {
			beside := parent.PID == c.runtime || node.SharesNamespaces(c.opts.ProcFS, s.PID, c.runtime)
			if s.Kind != node.KindShim && beside && !ended(s) && node.IsHelper(s.Stat, parent.Stat, c.opts.Table.Args(s.ID())) {
				c.helpers = append(c.helpers, s)
				parents = append(parents, s)
			}
		}
	}
}

// longest returns the few children that have been in their state for longest.
func longest(all []health.Child) []health.Child {
	slices.SortFunc(all, func(a, b health.Child) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID))
	})
	return all[:min(len(all), keptChildren)]
}
