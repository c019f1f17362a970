package evidence

import (
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/proc"
	"github.com/plegd/plegd/internal/health"
)

// maxShimThreads bounds the threads of a shim that are read.
const maxShimThreads = 64

// condition is how a shim or conmon is stuck: T, F, or D and S with the thread that is.
type condition struct {
	shim  proc.ID
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
	next := map[proc.ID]condition{}
	for i, s := range c.shims {
		if is := c.conditionOf(s.Stat, i == c.turn); is.state != "" {
			next[s.ID()] = is
		}
	}
	since := c.since.Update(now, slices.Collect(maps.Values(next))...)
	for _, s := range c.shims {
		is, stuck := next[s.ID()]
		if !stuck || is.tid != 0 && is != c.stuck[s.ID()] {
			continue
		}
		sandbox := sandboxOf(s.Comm, c.opts.Table.Args(s.ID()))
		out = append(out, health.Child{PID: s.PID, Comm: s.Comm, State: is.state, Since: since[is], Sandbox: sandbox})
	}
	c.stuck = next
	return out
}

func (c *childrenSource) conditionOf(s proc.Stat, closely bool) condition {
	known, is := c.stuck[s.ID()], condition{shim: s.ID()}
	closely = closely || known.state == "F" || known.tid != 0
	state, freezer := proc.ThreadState(s.State), "" // v2's, whose tasks look asleep
	if state == "D" {
		freezer = "freezer"
	}
	switch {
	case state == "T":
		is.state = "T"
	case (state == "D" || closely) && c.isFrozen(s.PID, freezer):
		if !c.isFrozen(c.runtime, freezer) { // a service's freezer holds both, and the shim is not the cause
			is.state = "F"
		}
	case state == "D":
		is.state, is.tid = "D", s.PID
	case closely:
		is.state, is.tid = c.threadState(s.PID, known.tid), known.tid
		if is.state == "" {
			is.state, is.tid = c.stuckThread(s.PID)
		}
	}
	return is
}

func (c *childrenSource) isFrozen(pid int, freezer string) bool {
	m, err := c.tree.Of(pid)
	if err != nil {
		return false
	}
	_, frozen := c.tree.FrozenBy(m, freezer)
	return frozen
}

// stuckThread returns the state of a thread that is stuck, "" for none.
func (c *childrenSource) stuckThread(pid int) (state string, tid int) {
	tids, _ := proc.Numbers(proc.Path(c.opts.ProcFS, pid, "task"), maxShimThreads) // none of one that has ended
	for _, tid := range tids {
		if state := c.threadState(pid, tid); state != "" {
			return state, tid
		}
	}
	return "", 0
}

// threadState is D for a thread in D, S for one that sleeps without waiting for work,
// "" for any other.
func (c *childrenSource) threadState(pid, tid int) string {
	dir := proc.Path(c.opts.ProcFS, pid, "task")
	s, err := proc.ReadStat(dir, tid)
	switch {
	case err != nil:
	case s.State == 'D':
		return "D"
	case s.State == 'S' && !idles(dir, &health.BlockedThread{TID: tid}):
		return "S"
	}
	return ""
}
