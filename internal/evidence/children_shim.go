package evidence

import (
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// maxShimThreads bounds the threads of a shim that are read.
const maxShimThreads = 64

// shimState tells how a shim is stuck, and since when; "" when it is not. One
// that looks asleep is looked at more closely when it is its turn, and as long
// as it was stuck before.
func (c *childrenSource) shimState(s proc.Stat, now time.Time, closely bool) (state string, since time.Time) {
	known := c.shims[s.ID()]
	next := &shim{since: now, seen: c.round}
	switch state := proc.ThreadState(s.State); {
	case state == "T":
		next.state = "T"
	case state == "D":
		next.state, next.tid = "D", s.PID
		if c.isFrozen(s.PID, c.tree.FrozenV1) {
			next.state, next.tid = c.frozenShim(c.tree.FrozenV1), 0
		}
	case (closely || known != nil && known.state == "F") && c.isFrozen(s.PID, c.tree.FrozenV2):
		next.state = c.frozenShim(c.tree.FrozenV2)
	case known != nil && known.tid != 0 && c.threadState(s.PID, known.tid) != "":
		next.state, next.tid = c.threadState(s.PID, known.tid), known.tid
	case closely:
		next.tid, next.state = c.stuckThread(s.PID)
	}
	if next.state == "" {
		delete(c.shims, s.ID())
		return "", time.Time{}
	}
	same := known != nil && known.state == next.state && known.seen == c.round-1 && known.tid == next.tid
	if same {
		next.since = known.since
	}
	c.shims[s.ID()] = next
	if next.tid != 0 && !same {
		return "", time.Time{} // everybody waits for a disk now and then
	}
	return next.state, next.since
}

// frozenShim is the state of a shim in a frozen cgroup: "" while the runtime is
// frozen too. A service's freezer holds both, and the shim is not the cause.
func (c *childrenSource) frozenShim(frozen func(cgroup.Paths) (string, bool)) string {
	if c.isFrozen(c.runtime, frozen) {
		return ""
	}
	return "F"
}

// isFrozen reports whether the cgroup of a process is frozen.
func (c *childrenSource) isFrozen(pid int, frozen func(cgroup.Paths) (string, bool)) bool {
	m, err := c.tree.Of(pid)
	if err != nil {
		return false
	}
	_, is := frozen(m)
	return is
}

// stuckThread returns a thread that is stuck and its state, 0 for none.
func (c *childrenSource) stuckThread(pid int) (tid int, state string) {
	tids, err := proc.Numbers(proc.Path(c.procfs, pid, "task"), maxShimThreads)
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
	dir := proc.Path(c.procfs, pid, "task")
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
