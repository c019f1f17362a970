package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/facts"
	"github.com/plegd/plegd/internal/family"
)

const (
	// slowStart is the age from which a start is slow: most end within a second.
	slowStart = time.Second
	// awaitedFor is longer than a kubelet waits for a start (4 min): what is there for longer is none, or known to hang.
	awaitedFor = 10 * time.Minute
)

// pending returns the entries of starts that are under way, and when they were first seen: of what is not listed yet, and of
// containers that are created and do not run. The name of a network namespace is in no list: one counts until a start has
// succeeded, which may be its own.
func (s *starts) pending(moment time.Time) map[string]time.Time {
	out := map[string]time.Time{}
	for _, d := range s.dirs {
		came := d.awaited
		if d.path == namespaces {
			came = d.came
		}
		for name, seen := range came {
			if moment.Sub(seen) < awaitedFor {
				out[name] = seen
			}
		}
	}
	return out
}

// hasEnded reports whether the start of what is listed has ended, false for what is not.
func hasEnded(e *cri.Entry) bool {
	return e != nil && (e.Sandbox || e.State != cri.StateCreated)
}

// areSlow reports whether a start that is under way is slow.
func (s *starts) areSlow(moment time.Time) bool {
	return s.hasPending(func(seen time.Time) bool { return moment.Sub(seen) >= slowStart })
}

// isUnderWay reports whether a start is under way that may end at any moment.
func (s *starts) isUnderWay(moment time.Time) bool {
	return s.hasPending(func(seen time.Time) bool { return moment.Sub(seen) < idleLimit })
}

// hasPending reports whether a start is under way that was first seen at a time as wanted.
func (s *starts) hasPending(isWanted func(seen time.Time) bool) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(s.underWay)), isWanted)
}

// hangingStarts notes the starts that do not end: by their entries, and by the kubelet's metrics, which show pods that wait for
// a sandbox while no call that starts one ends.
func (p *pass) hangingStarts() {
	begun := p.StartsWait()
	if p.moment.Sub(begun) >= awaitedFor {
		begun = time.Time{}
	}
	for _, seen := range p.started.underWay {
		begun = facts.Earliest(begun, seen)
	}
	if begun.IsZero() || p.moment.Sub(begun) < limit {
		return
	}
	o := p.keep(obligation{identity: identity{kind: unstarted}, waiter: p.pids[0]})
	o.begun = begun
}

// chainOfStarts returns the chain from what keeps starts from ending. It is followed again at each Interval.
func (p *pass) chainOfStarts(ctx context.Context, o *obligation) facts.Chain {
	if !p.moment.Before(o.due) {
		o.due = p.moment.Add(Interval)
		o.followed = p.followStarts(ctx, o)
	}
	return o.followed
}

// followStarts follows the shims of the starts, and the runtime where none of them leads to what hangs.
func (p *pass) followStarts(ctx context.Context, o *obligation) facts.Chain {
	for _, shim := range p.shimsOfStarts() {
		debt := p.debtOf(o)
		debt.Debtor = shim
		debt.Evidence = fmt.Sprintf("waits for pid %d to start a container", shim)
		c := o.explorer.Owed(ctx, debt)
		if provesHang(&c) {
			return c
		}
	}
	return o.explorer.Explore(ctx, p.symptomOf(facts.Symptom{Process: p.pids[0], Since: o.begun, Starts: true}))
}

// shimsOfStarts returns the shims of the starts that are under way.
func (p *pass) shimsOfStarts() (pids []int) {
	for _, pid := range slices.Sorted(maps.Keys(p.shims)) {
		shim := p.shims[pid]
		_, isStarting := p.started.underWay[family.ShimID(shim, p.Table.Args(shim.ID()))]
		if isStarting && len(pids) < maxFollowed {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reasonOfStarts returns the reason that a chain from a start proves that does not end, "" for none.
func reasonOfStarts(c *facts.Chain) string {
	switch {
	case !provesHang(c):
		return ""
	case c.Link(facts.KindHelper) != nil:
		return helperStuck
	case c.Link(facts.KindShim) != nil:
		return shimStuck
	}
	return podStartsFailing
}

// provesHang reports whether a chain ends at something that does not get on by itself, or has the lock that is waited for, and is
// not the process that it begins with.
func provesHang(c *facts.Chain) bool {
	last := c.Culprit()
	if last == nil || len(c.Links) < 2 || !isOthers(last) {
		return false
	}
	hasLock := c.Links[len(c.Links)-2].State == facts.LinkLocked
	isStill := last.State.StandsStill() || last.State == facts.LinkUnanswered
	return hasLock || c.Unknown == "" && isStill
}
