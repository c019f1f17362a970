package evidence

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
	"github.com/plegd/plegd/internal/proc"
)

const (
	// preparingAge is from when a command that runs before the runtime is reported.
	preparingAge = 3 * time.Second
	// maxNewer bounds the processes that were started since the runtime has ended and whose cgroup is read.
	maxNewer = 256
)

// preparing returns what runs in the place of a process that has ended before the next one can start, as ExecStartPre of
// its unit: the oldest process of those that were started there since. nil for none. Shims are left out: the runtime may have
// started one just before its end. What they start has a parent there.
func (p *Process) preparing(ctx context.Context, moment time.Time) *facts.Child {
	group := proc.ParseCgroups([]byte(p.place.cgroup)).Main()
	if group == "" || group == "/" {
		return nil
	}
	all, err := p.hop.table.Processes(ctx, familyInterval)
	if err != nil {
		p.unread.Add("processes", err)
		return nil
	}
	newer := []proc.Process{}
	for _, candidate := range all.ByPID {
		if p.isNewer(candidate) && candidate.Comm != p.last.Comm && !family.NamedShim(candidate) {
			newer = append(newer, candidate)
		}
	}
	slices.SortFunc(newer, func(a, b proc.Process) int { return cmp.Compare(a.Start, b.Start) })
	up := p.up()
	for _, candidate := range newer[:min(len(newer), maxNewer)] {
		begun := proc.StartedAt(moment, up, candidate.Start)
		isOld := moment.Sub(begun) >= preparingAge
		if isOld && p.isHere(candidate.PID) && !p.isHere(candidate.PPID) {
			return &facts.Child{PID: candidate.PID, Comm: candidate.Comm, State: proc.ThreadState(candidate.State), Since: begun}
		}
	}
	return nil
}

// isHere reports whether a process is in the cgroup of the one that has ended.
func (p *Process) isHere(pid int) bool {
	cgroup, err := p.hop.cgroupOf(pid)
	p.unread.Add("cgroup", err)
	return cgroup == p.place.cgroup
}
