package chain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/proc"
)

// leadsTo reports whether a descriptor leads to one of some places.
func leadsTo(places ...string) func(string) bool {
	return func(leads string) bool { return slices.Contains(places, leads) }
}

// heldBy completes a wait with the process that holds a descriptor for which leads is true by
// where it leads, and keep by its fdinfo; keep may be nil.
func (f *waiting) heldBy(ctx context.Context, out wait, what string, leads func(string) bool,

	keep func(proc.FDInfo) bool) wait {
	pids, err := proc.Holders(ctx, f.procfs, func(pid, fd int, place string) bool {
		return leads(place) && (keep == nil || keep(proc.ReadFDInfo(f.procfs, pid, fd)))
	})
	return f.heldByOne(ctx, out, what, pids, err)
}

// heldByOne completes a wait with one of the processes that hold something; the error is why some could not be read. Of
// several, one that waits itself, one that is younger than the fault, and pid 1, which keeps the sockets that systemd made,
// do not count; else the only one that stands still does, or where none does the first one that a CPU quota holds up. It is
// the process itself where no other one holds it.
func (f *waiting) heldByOne(ctx context.Context, out wait, what string, pids []int, err error) wait {
	named := f.holdersToName(ctx, pids)
	switch {
	case len(named) == 1:
		out.next = named[0]
	case len(named) > 1:
		out.unknown = fmt.Sprintf("%d processes hold the other end of %s", len(named), what)
	case err != nil:
		f.unseenIf("the descriptors of other processes", err)
		out.unknown = fmt.Sprintf("the holder of the other end of %s cannot be read (%s)", what, f.unseen)
	case len(pids) > 0:
		out.next = f.pid
	default:
		out.unknown = "no process that plegd can see holds the other end of " + what
	}
	return out
}

// holdersToName returns those of the holders of something that may be named for it. Where none of them alone is held
// up, a holder does not count from which another one descends, as a shell that waits for a program.
func (f *waiting) holdersToName(ctx context.Context, pids []int) []int {
	named := without(pids, func(pid int) bool { return pid == f.pid || pid == 1 && len(pids) > 1 })
	older := without(named, func(pid int) bool {
		p, err := proc.ReadStat(f.procfs, pid)
		return err == nil && f.isYounger(p)
	})
	if len(older) > 0 {
		named = older
	}
	if len(named) < 2 {
		return named
	}
	held := f.heldUp(named)
	if len(held) == 1 {
		return held
	}
	all := f.processes(ctx)
	return without(named, func(pid int) bool {
		return slices.ContainsFunc(named, func(relative int) bool {
			return relative != pid && slices.Contains(all.Ancestors(relative), pid)
		})
	})
}

// heldUp returns those of some processes that stand still, or where none does the first one that a CPU quota holds up.
func (f *waiting) heldUp(pids []int) []int {
	held := without(pids, func(pid int) bool {
		p, err := proc.ReadStat(f.procfs, pid)
		_, frozen := f.frozen(pid)
		return err != nil || !frozen && strings.IndexByte("TtD", p.State) < 0
	})
	if len(held) > 0 {
		return held
	}
	starved := f.starved(pids)
	if starved != 0 {
		return []int{starved}
	}
	return nil
}

// without returns the pids for which drop is false.
func without(pids []int, drop func(pid int) bool) []int {
	return slices.DeleteFunc(slices.Clone(pids), drop)
}

// greediestClient is the wait of a process that has used up its descriptors, if half of them are
// connections of one client; ok is false for any other process.
func (f *waiting) greediestClient(ctx context.Context) (out wait, ok bool) {
	p := f.symptom.Locked
	if p == nil || p.PID != f.pid || !p.FDsExhausted() {
		return wait{}, false
	}
	peers := map[string]bool{}
	for _, c := range f.last.sockets {
		if c.server && c.peer != 0 {
			peers[socketLink(c.peer)] = true
		}
	}
	counts := map[int]int{}
	_, err := proc.Holders(ctx, f.procfs, func(pid, _ int, leads string) bool {
		if peers[leads] && pid != f.pid {
			counts[pid]++
		}
		return false
	})
	f.unseenIf("the descriptors of other processes", err)
	for pid, count := range counts {
		if 2*count >= p.MaxFDs {
			evidence := fmt.Sprintf("%d of its %d descriptors are connections of pid %d", count, p.MaxFDs, pid)
			return f.client(ctx, wait{state: facts.LinkPeer, evidence: evidence}, pid), true
		}
	}
	return wait{}, false
}

// client completes a wait for a process that keeps connections open. What its threads wait for is not why
// it keeps them, unless the process stands still.
func (f *waiting) client(ctx context.Context, out wait, pid int) wait {
	if p, err := proc.ReadStat(f.procfs, pid); err == nil && !f.standsStill(ctx, pid) {
		out.key = fmt.Sprintf("pid %d", pid)
		out.link = f.linkOf(ctx, p)
		out.link.State = facts.LinkAsleep
		out.link.Evidence = "keeps them open"
		return out
	}
	out.next = pid
	return out
}
