package evidence

import (
	"strconv"
	"time"

	"github.com/plegd/plegd/internal/evidence/node/cgroup"
	"github.com/plegd/plegd/internal/evidence/node/proc"
)

// maxShimThreads bounds how many threads of a shim are looked at.
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
	case known != nil && known.state == "D" && c.threadBlocked(s.PID, known.tid):
		next.state, next.tid = "D", known.tid
	case closely:
		if tid := c.blockedThread(s.PID); tid != 0 {
			next.state, next.tid = "D", tid
		}
	}
	if next.state == "" {
		delete(c.shims, s.ID())
		return "", time.Time{}
	}
	if next.state == "D" {
		next.slices = c.slices(s.PID, next.tid)
	}
	// It is in the same state all the time if it was at the sample before, and
	// has not run in between.
	same := known != nil && known.state == next.state && known.seen == c.round-1 && known.tid == next.tid && known.slices == next.slices
	if same {
		next.since = known.since
	}
	c.shims[s.ID()] = next
	if next.state == "D" && !same {
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

// blockedThread returns a thread in D, 0 for none.
func (c *childrenSource) blockedThread(pid int) int {
	tids, err := proc.Numbers(proc.Path(c.procfs, pid, "task"), maxShimThreads)
	if err != nil {
		return 0
	}
	for _, tid := range tids {
		if c.threadBlocked(pid, tid) {
			return tid
		}
	}
	return 0
}

func (c *childrenSource) threadBlocked(pid, tid int) bool {
	b, err := c.reader.ReadRecord(proc.Path(c.procfs, pid, "task/") + strconv.Itoa(tid) + "/stat")
	if err != nil {
		return false
	}
	s, err := proc.ParseStat(b)
	return err == nil && s.State == 'D'
}

// slices is how often a thread has been on a CPU, 0 where that is not kept.
func (c *childrenSource) slices(pid, tid int) uint64 {
	b, err := c.reader.ReadRecord(proc.Path(c.procfs, pid, "task/") + strconv.Itoa(tid) + "/schedstat")
	if err != nil {
		return 0
	}
	s, _ := proc.ParseSchedstat(b)
	return s.Slices
}
