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
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

const (
	keptChildren   = 5               // are reported as stuck, and as old
	maxShimThreads = 64              // of a shim are read
	helperAge      = 5 * time.Second // from which a helper is reported
	// familyInterval is the time between two passes over all processes while something
	// may be wrong or a pod has changed, familyCalm in the steady state.
	familyInterval = 2500 * time.Millisecond
	familyCalm     = 30 * time.Second
)

// childrenSource samples the processes to which the runtime leaves its work.
type childrenSource struct {
	*hop // the runtime
	// socket returns the path by which shims are started for it. changes counts the relists
	// that found a pod changed. calm reports whether all is well.
	socket  func() string
	changes func() uint64
	calm    func() bool

	up    func() time.Duration
	tree  proc.CgroupTree
	since bounded.Since[stuckShim]
	stuck map[stuckShim]time.Time // of the last sample, since when
	turn  int                     // of the shim whose threads are read

	runtime        int             // of this sample
	all            *proc.Processes // from which shims and helpers are
	shims, helpers []proc.Process
	changed        uint64
}

// newChildren returns the source about shims, conmons and the runtime's helpers. It
// needs no privilege.
//
// A shim counts when the runtime, or a process that the runtime descends from, is its
// parent: shims are left to these when the process that started them ends. So those of
// a runtime in a pod do not count.
func newChildren(c *childrenSource) *Watch[facts.Children] {
	c.up, c.tree = proc.Uptime, proc.NewCgroupTree(c.procfs, c.sysfs)
	return NewWatch(Spec[facts.Children]{
		// Calm is what a stopped shim that nothing else shows may wait.
		Name: "children", Every: 1, Calm: 3, Timeout: time.Second, Gather: c.gather,
		Again: func(v *facts.Children) bool { return len(c.stuck) > 0 },
		Store: func(e *facts.Evidence, v *facts.Children) { e.Children = v },
	})
}

func (c *childrenSource) gather(ctx context.Context) (*facts.Children, error) {
	runtime := c.process.PID()
	if runtime == 0 {
		return nil, ErrNoData
	}
	changed, age := c.changes(), familyInterval
	switch {
	case runtime != c.runtime:
		age = 0
	case c.calm() && changed == c.changed:
		age = familyCalm
	}
	all, err := c.table.Processes(ctx, age)
	if err != nil {
		return nil, err
	}
	c.runtime = runtime
	if all != c.all {
		c.all, c.changed = all, changed
		c.findFamily(all)
	} else {
		c.shims, c.helpers = c.alive(c.shims), c.alive(c.helpers)
	}
	now, up := time.Now(), c.up()
	v := &facts.Children{At: now, Shims: len(c.shims), Stuck: longest(c.stuckShims(now))}
	for _, s := range c.helpers {
		if started := proc.StartedAt(now, up, s.Start); now.Sub(started) >= helperAge {
			v.Old = append(v.Old, facts.Child{PID: s.PID, Comm: s.Comm, State: proc.ThreadState(s.State), Since: started})
		}
	}
	v.Old = longest(v.Old)
	return v, nil
}

// alive returns the processes that have not ended, as they are now.
func (c *childrenSource) alive(all []proc.Process) []proc.Process {
	out := all[:0]
	for _, before := range all {
		if p, err := c.table.Alive(before.PID); err == nil && p.ID() == before.ID() {
			out = append(out, p)
		}
	}
	return out
}

// findFamily finds the runtime's shims and helpers.
func (c *childrenSource) findFamily(all *proc.Processes) {
	runtime := all.ByPID[c.runtime]
	runtime.PID = c.runtime
	names := spellings(c.socket())
	c.shims, c.helpers = nil, nil
	for _, parent := range all.Ancestors(c.runtime) {
		for _, s := range all.Children(parent) {
			if s.Kind() == proc.KindShim && s.PID != c.runtime && owns(runtime.Comm, names, s.Comm, c.table.Args(s.ID())) {
				c.shims = append(c.shims, s)
			}
		}
	}
	parents := append(slices.Clone(c.shims), runtime)
	for i := 0; i < len(parents); i++ { // a helper has helpers
		parent := parents[i]
		for _, s := range all.Children(parent.PID) {
			beside := parent.PID == c.runtime || proc.SharesNamespaces(c.procfs, s.PID, c.runtime, "pid", "mnt")
			if beside && proc.IsHelper(s, parent, c.table.Args(s.ID())) {
				c.helpers = append(c.helpers, s)
				parents = append(parents, s)
			}
		}
	}
}

// owns reports whether a shim or conmon is that of the runtime at a socket with these
// names, by its arguments; one whose arguments are not known is not:
//
//	containerd 1.6 to 2.4  containerd-shim-runc-v2 -namespace k8s.io -id ID -address SOCKET
//	dockerd                the same with -namespace moby
//	CRI-O                  conmon -c ID -n k8s_NAME --exit-dir DIR ..., conmonrs
//	podman                 conmon -c ID -n NAME --exit-command PATH ...
//
// A containerd may serve both the kubelet and dockerd.
func owns(runtime string, names []string, comm string, args []string) bool {
	crio := runtime == "crio" || path.Base(names[0]) == "crio.sock"
	namespace := "k8s.io" // of containerd, in which the CRI plugin keeps its containers
	if strings.HasPrefix(runtime, "cri-dockerd") {
		namespace = "moby"
	}
	switch {
	case names[0] == "":
		return true // nothing to tell them apart by
	case comm == "conmonrs":
		return crio
	case comm == "conmon":
		return crio && strings.HasPrefix(proc.ArgValue(args, "n"), "k8s_") && proc.ArgValue(args, "exit-command") == ""
	}
	address := proc.ArgValue(args, "address")
	same := func(name string) bool { return runPath(name) == runPath(address) }
	return slices.ContainsFunc(names, same) && proc.ArgValue(args, "namespace") == namespace
}

// runPath is the path of a socket for a comparison: /var/run is /run everywhere.
func runPath(p string) string { return strings.Replace(path.Clean(p), "/var/run/", "/run/", 1) }

// stuckShim is a shim or conmon and how it is stuck: T, F, or D and S with the thread that is.
type stuckShim struct {
	id    proc.ID
	state string
	tid   int
}

// stuckShims returns the shims that are stuck. One that looks asleep is read more closely
// in its turn, and as long as it was stuck in the last sample. A thread must be stuck in
// two samples without another one in between: a healthy one waits for a disk at times.
func (c *childrenSource) stuckShims(now time.Time) (out []facts.Child) {
	c.turn = (c.turn + 1) % max(1, len(c.shims))
	closely, found := map[proc.ID]bool{}, map[stuckShim]proc.Process{}
	for is := range c.stuck {
		closely[is.id] = true
	}
	for i, s := range c.shims {
		if state, tid := c.conditionOf(s, i == c.turn || closely[s.ID()]); state != "" {
			found[stuckShim{s.ID(), state, tid}] = s
		}
	}
	c.stuck = c.since.Update(now, slices.Collect(maps.Keys(found))...)
	for is, since := range c.stuck {
		if s := found[is]; is.tid == 0 || since.Before(now) {
			sandbox := s.ShimID(c.table.Args(is.id))
			out = append(out, facts.Child{PID: s.PID, Comm: s.Comm, State: is.state, Since: since, Sandbox: sandbox})
		}
	}
	return out
}

func (c *childrenSource) conditionOf(s proc.Process, closely bool) (state string, tid int) {
	switch state = proc.ThreadState(s.State); {
	case state == "T":
		return "T", 0
	case (state == "D" || closely) && c.isFrozen(s.PID): // by v2, its tasks look asleep
		if c.isFrozen(c.runtime) { // a service's freezer holds both, and the shim is not the cause
			return "", 0
		}
		return "F", 0
	case state == "D":
		return "D", s.PID
	case closely:
		return c.stuckThread(s.PID)
	}
	return "", 0
}

func (c *childrenSource) isFrozen(pid int) bool {
	m, err := c.tree.Of(pid)
	_, frozen := c.tree.Frozen(m)
	return err == nil && frozen
}

// stuckThread returns the first thread that is stuck, and its state: D, or S for one that
// sleeps without waiting for work; "" for none.
func (c *childrenSource) stuckThread(pid int) (state string, tid int) {
	dir := proc.Path(c.procfs, pid, "task")
	tids, _ := proc.Numbers(dir, maxShimThreads) // none of one that has ended
	for _, tid := range tids {
		s, err := proc.ReadStat(dir, tid)
		switch {
		case err != nil:
		case s.State == 'D', s.State == 'S' && !idles(dir, &facts.BlockedThread{TID: tid}):
			return string(s.State), tid
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
