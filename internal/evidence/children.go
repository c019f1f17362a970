package evidence

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/plegd/plegd/internal/bounded"
	"github.com/plegd/plegd/internal/evidence/node"
	"github.com/plegd/plegd/internal/health"
)

const (
	// keptChildren is how many stuck or old children are reported.
	keptChildren = 5
	// maxShimThreads bounds the threads of a shim that are read.
	maxShimThreads = 64
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
	// well.
	Changes func() uint64
	Calm    func() bool
}

// childrenSource samples the processes to which the runtime leaves its work.
type childrenSource struct {
	childrenOptions

	up    func() time.Duration
	tree  node.CgroupTree
	place pathStat              // of the socket
	stuck map[node.ID]condition // of the last sample, by shim
	since bounded.Since[condition]
	turn  int // of the shim whose threads are read

	runtime        int             // of this sample
	table          *node.Processes // from which shims and helpers are
	shims, helpers []node.Process
	changed        uint64
}

// newChildren returns the source about shims, conmons and the runtime's helpers. It
// needs no privilege.
//
// A shim counts when the runtime, or a process that the runtime descends from, is its
// parent: shims are left to these when the process that started them ends. So those of
// a runtime in a pod do not count. Its arguments must name the runtime besides (owns).
// It is stuck as T (stopped) or F (in a frozen cgroup) at once, as D when the same thread
// is in D in two samples. A thread other than the first, and the freezer of v2, are read
// of one shim in each sample, in turn.
//
// A helper is a child of the runtime or of a shim in the runtime's namespaces, with any
// name; processes that live long by design do not count (node.IsHelper).
func newChildren(opts childrenOptions) *Watch[health.Children] {
	c := &childrenSource{childrenOptions: opts, up: node.Uptime, tree: node.NewCgroupTree(opts.ProcFS, opts.SysFS)}
	return NewWatch(Spec[health.Children]{
		// Calm is what a stopped shim that nothing else shows may wait.
		Name: "children", Every: 1, Calm: 3, Timeout: time.Second, Gather: c.gather,
		Again: func(v *health.Children) bool { return len(c.stuck) > 0 },
		Store: func(e *health.Evidence, v *health.Children) { e.Children = v },
	})
}

func (c *childrenSource) gather(ctx context.Context) (*health.Children, error) {
	runtime := c.PID()
	if runtime == 0 {
		return nil, ErrNoData
	}
	changed, age := c.Changes(), familyInterval
	switch {
	case runtime != c.runtime:
		age = 0
	case c.Calm() && changed == c.changed:
		age = familyCalm
	}
	all, err := c.Table.Processes(ctx, age)
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
		if started := node.StartedAt(now, up, s.Start); now.Sub(started) >= helperAge {
			v.Old = append(v.Old, health.Child{PID: s.PID, Comm: s.Comm, State: node.ThreadState(s.State), Since: started})
		}
	}
	v.Old = longest(v.Old)
	return v, nil
}

// alive returns the processes that have not ended, as they are now.
func (c *childrenSource) alive(all []node.Process) []node.Process {
	out := all[:0]
	for _, before := range all {
		if p, err := c.Table.Alive(before.PID); err == nil && p.ID() == before.ID() && !ended(p) {
			out = append(out, p)
		}
	}
	return out
}

// ended reports whether the first thread of a process has ended.
func ended(p node.Process) bool { return p.State == 'Z' || p.State == 'X' }

// findFamily finds the runtime's shims and helpers.
func (c *childrenSource) findFamily(ctx context.Context, all *node.Processes) {
	runtime := all.ByPID[c.runtime]
	runtime.PID = c.runtime
	socket := c.place.at(ctx, c.Socket())
	c.shims, c.helpers = nil, nil
	for _, parent := range all.Ancestors(c.runtime) {
		for _, s := range all.Children(parent) {
			shim := s.Kind() == node.KindShim && s.PID != c.runtime && !ended(s)
			if shim && owns(runtime.Comm, socket, s.Comm, c.Table.Args(s.ID())) {
				c.shims = append(c.shims, s)
			}
		}
	}
	parents := append(slices.Clone(c.shims), runtime)
	for len(parents) > 0 { // a helper has helpers
		parent := parents[0]
		parents = parents[1:]
		for _, s := range all.Children(parent.PID) {
			beside := parent.PID == c.runtime || node.SharesNamespaces(c.ProcFS, s.PID, c.runtime, "pid", "mnt")
			if s.Kind() != node.KindShim && beside && !ended(s) && node.IsHelper(s, parent, c.Table.Args(s.ID())) {
				c.helpers = append(c.helpers, s)
				parents = append(parents, s)
			}
		}
	}
}

// owns reports whether a shim or conmon is that of the runtime at a socket, by its
// arguments; one whose arguments are not known is not:
//
//	containerd 1.6 to 2.4  containerd-shim-runc-v2 -namespace k8s.io -id ID -address SOCKET
//	dockerd                the same with -namespace moby
//	CRI-O                  conmon -c ID -n k8s_NAME --exit-dir DIR ..., conmonrs
//	podman                 conmon -c ID -n NAME --exit-command PATH ...
//
// A containerd may serve both the kubelet and dockerd.
func owns(runtime string, socket place, comm string, args []string) bool {
	crio := runtime == "crio" || path.Base(socket.path) == "crio.sock"
	namespace := "k8s.io" // of containerd, in which the CRI plugin keeps its containers
	if strings.HasPrefix(runtime, "cri-dockerd") {
		namespace = "moby"
	}
	switch {
	case socket.path == "":
		return true // nothing to tell them apart by
	case comm == "conmonrs":
		return crio
	case comm == "conmon":
		return crio && strings.HasPrefix(node.ArgValue(args, "n"), "k8s_") && node.ArgValue(args, "exit-command") == ""
	}
	address := node.ArgValue(args, "address")
	same := func(name string) bool { return runPath(name) == runPath(address) }
	return slices.ContainsFunc(socket.names, same) && node.ArgValue(args, "namespace") == namespace
}

// runPath is the path of a socket for a comparison: /var/run is /run everywhere.
func runPath(p string) string { return strings.Replace(path.Clean(p), "/var/run/", "/run/", 1) }

// sandboxOf returns the id of the sandbox that a shim serves, or of the container or
// sandbox that a conmon does, "" where its arguments do not name one.
func sandboxOf(comm string, args []string) string {
	name := "id"
	if strings.HasPrefix(comm, "conmon") {
		name = "c"
	}
	id := node.ArgValue(args, name)
	if len(id) > 128 || strings.Trim(id, idChars) != "" {
		return ""
	}
	return id
}

const idChars = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_."

// condition is how a shim or conmon is stuck: T, F, or D and S with the thread that is.
type condition struct {
	shim  node.ID
	state string
	tid   int
}

// stuckShims returns the shims that are stuck. One that looks asleep is read more closely
// in its turn, and as long as it was stuck in the last sample. A thread must be stuck in
// two samples without another one in between: a healthy one waits for a disk at times.
func (c *childrenSource) stuckShims(now time.Time) (out []health.Child) {
	if n := len(c.shims); n > 0 {
		c.turn = (c.turn + 1) % n
	}
	next := map[node.ID]condition{}
	for i, s := range c.shims {
		if is := c.conditionOf(s, i == c.turn); is.state != "" {
			next[s.ID()] = is
		}
	}
	since := c.since.Update(now, slices.Collect(maps.Values(next))...)
	for _, s := range c.shims {
		is, stuck := next[s.ID()]
		if !stuck || is.tid != 0 && is != c.stuck[s.ID()] {
			continue
		}
		sandbox := sandboxOf(s.Comm, c.Table.Args(s.ID()))
		out = append(out, health.Child{PID: s.PID, Comm: s.Comm, State: is.state, Since: since[is], Sandbox: sandbox})
	}
	c.stuck = next
	return out
}

func (c *childrenSource) conditionOf(s node.Process, closely bool) condition {
	known, is := c.stuck[s.ID()], condition{shim: s.ID()}
	closely = closely || known.state == "F" || known.tid != 0
	state := node.ThreadState(s.State) // of v2's freezer it looks asleep
	switch {
	case state == "T":
		is.state = "T"
	case (state == "D" || closely) && c.isFrozen(s.PID):
		if !c.isFrozen(c.runtime) { // a service's freezer holds both, and the shim is not the cause
			is.state = "F"
		}
	case state == "D":
		is.state, is.tid = "D", s.PID
	case closely:
		is.state, is.tid = c.stuckThread(s.PID)
	}
	return is
}

func (c *childrenSource) isFrozen(pid int) bool {
	m, err := c.tree.Of(pid)
	_, frozen := c.tree.Frozen(m)
	return err == nil && frozen
}

// stuckThread returns the first thread that is stuck, and its state: D, or S for one that
// sleeps without waiting for work; "" for none.
func (c *childrenSource) stuckThread(pid int) (state string, tid int) {
	dir := node.Path(c.ProcFS, pid, "task")
	tids, _ := node.Numbers(dir, maxShimThreads) // none of one that has ended
	for _, tid := range tids {
		s, err := node.ReadStat(dir, tid)
		switch {
		case err != nil:
		case s.State == 'D', s.State == 'S' && !idles(dir, &health.BlockedThread{TID: tid}):
			return string(s.State), tid
		}
	}
	return "", 0
}

// longest returns the few children that have been in their state for longest.
func longest(all []health.Child) []health.Child {
	slices.SortFunc(all, func(a, b health.Child) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.PID, b.PID))
	})
	return all[:min(len(all), keptChildren)]
}
