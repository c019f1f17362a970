package evidence

import (
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// maxShimThreads bounds the threads of a shim that are read.
const maxShimThreads = 64

// shim is what is remembered of a shim or conmon that looks stuck.
type shim struct {
	state string
	since time.Time
	tid   int // the stuck thread
	round int // of the sample
}

// shimState returns how a shim is stuck and since when; "" where it is not. One that
// looks asleep is read more closely in its turn, and as long as it was stuck before.
func (c *childrenSource) shimState(s proc.Stat, now time.Time, closely bool) (state string, since time.Time) {
	known := c.shims[s.ID()]
	next := &shim{since: now, round: c.round}
	frozen := func(by func(cgroup.Paths) (string, bool)) bool { return c.isFrozen(s.PID, by) }
	switch state := proc.ThreadState(s.State); {
	case state == "T":
		next.state = "T"
	case state == "D":
		next.state, next.tid = "D", s.PID
		if frozen(c.tree.FrozenV1) {
			next.state, next.tid = c.frozenState(c.tree.FrozenV1), 0
		}
	case (closely || known != nil && known.state == "F") && frozen(c.tree.FrozenV2):
		next.state = c.frozenState(c.tree.FrozenV2)
	case known != nil && known.tid != 0 && c.threadState(s.PID, known.tid) != "":
		next.state, next.tid = c.threadState(s.PID, known.tid), known.tid
	case closely:
		next.tid, next.state = c.stuckThread(s.PID)
	}
	if next.state == "" {
		delete(c.shims, s.ID())
		return "", time.Time{}
	}
	same := known != nil && known.state == next.state && known.round == c.round-1 && known.tid == next.tid
	if same {
		next.since = known.since
	}
	c.shims[s.ID()] = next
	if next.tid != 0 && !same {
		return "", time.Time{} // a healthy one waits for a disk now and then
	}
	return next.state, next.since
}

// frozenState is the state of a shim in a frozen cgroup: "" while the runtime is frozen
// too. A service's freezer holds both, and the shim is not the cause.
func (c *childrenSource) frozenState(by func(cgroup.Paths) (string, bool)) string {
	if c.isFrozen(c.runtime, by) {
		return ""
	}
	return "F"
}

func (c *childrenSource) isFrozen(pid int, by func(cgroup.Paths) (string, bool)) bool {
	m, err := c.tree.Of(pid)
	if err != nil {
		return false
	}
	_, is := by(m)
	return is
}

// stuckThread returns a thread that is stuck and its state, 0 for none.
func (c *childrenSource) stuckThread(pid int) (tid int, state string) {
	tids, err := proc.Numbers(proc.Path(c.opts.ProcFS, pid, "task"), maxShimThreads)
	if err != nil {
		return 0, ""
	}
	for _, tid := range tids {
		if state := c.threadState(pid, tid); state != "" {
			return tid, state
		}
	}
	return 0, ""
}

// threadState is D for a thread in D, S for one that sleeps without waiting for work,
// "" for any other.
func (c *childrenSource) threadState(pid, tid int) string {
	dir := proc.Path(c.opts.ProcFS, pid, "task")
	b, err := c.reader.ReadRecord(dir + "/" + strconv.Itoa(tid) + "/stat")
	if err != nil {
		return ""
	}
	switch s, err := proc.ParseStat(b); {
	case err != nil:
	case s.State == 'D':
		return "D"
	case s.State == 'S' && asleep(&c.reader, dir, tid, time.Time{}) != nil:
		return "S"
	}
	return ""
}
