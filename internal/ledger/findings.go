package ledger

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/plegd/plegd/internal/chain"
	"github.com/plegd/plegd/internal/facts"
)

// maxFindings bounds the findings, the oldest first.
const maxFindings = 4

// The reasons that the ledger proves, as internal/health has them.
const (
	shimStuck        = "ShimStuck"
	helperStuck      = "RuntimeHelperStuck"
	storageStall     = "RuntimeStorageStall"
	runtimeStarved   = "RuntimeStarved"
	peerStuck        = "RuntimePeerStuck"
	podsLost         = "PodsLost"
	inspectionStall  = "PodInspectionStall"
	podStartsFailing = "PodStartsFailing"
	podStopsFailing  = "PodStopsFailing"

	kernelLimitReached = "KernelLimitReached"
)

// findings follows the obligations that are old enough, the oldest first.
func (p *pass) findings(ctx context.Context) (out []facts.Finding) {
	oldest := slices.SortedFunc(maps.Values(p.owed), func(a, b *obligation) int {
		return cmp.Or(a.begun.Compare(b.begun), cmp.Compare(a.id, b.id), cmp.Compare(a.pid, b.pid))
	})
	out = append(p.listFinding(oldest, lostPod, podsLost), p.listFinding(oldest, unserved, shimStuck)...)
	out = append(out, p.listFinding(oldest, unstopped, podStopsFailing)...)
	out = slices.Concat(out, p.unnoticedFinding(ctx, oldest), p.startsFinding(ctx), p.failedContainers(ctx), p.deadMountFinding(), p.failedCreates(), p.delayFindings())
	out = append(out, p.leak...)
	for _, o := range oldest {
		if len(out) >= maxFindings {
			break
		}
		if p.age(o) < o.followedFrom() || o.waiter == 0 || o.debtor == 0 && !o.kind.needsNoDebtor() {
			continue
		}
		if o.isClients && !p.workStops() { // as of a client of events, for which nothing waits
			continue
		}
		c := p.chainOf(ctx, o)
		reason := p.reasonOf(o, &c)
		if reason != "" {
			out = append(out, facts.Finding{Reason: reason, Since: o.begun, Chain: c})
		}
	}
	return out
}

// workStops reports whether something of the runtime's is late, and nothing was started or removed lately.
func (p *pass) workStops() bool {
	return p.Suspects() && p.moment.Sub(p.worked) >= limit
}

// chainOf returns the chain that begins with an obligation.
func (p *pass) chainOf(ctx context.Context, o *obligation) facts.Chain {
	debt := p.debtOf(o)
	switch o.kind {
	case busyPath:
		return o.explorer.Busy(ctx, debt, o.name)
	case unanswered:
		return o.explorer.Unanswered(ctx, debt, o.name)
	case goneServer:
		return o.explorer.Gone(ctx, debt, o.name)
	case unstarted:
		return p.chainOfStarts(ctx, o)
	default:
		return o.explorer.Owed(ctx, debt)
	}
}

// debtOf returns an obligation as the chain has it.
func (p *pass) debtOf(o *obligation) chain.Debt {
	return chain.Debt{
		Waiter: o.waiter, Debtor: o.debtor, Evidence: o.evidence, Begun: o.begun, IsHelper: o.kind == resting,
		RuntimePID: p.pids[0], DaemonPID: p.daemonPID(), Pod: p.Pod,
	}
}

// symptomOf returns a symptom as the chain has it.
func (p *pass) symptomOf(s facts.Symptom) chain.Symptom {
	return chain.Symptom{Symptom: s, RuntimePID: p.pids[0], DaemonPID: p.daemonPID(), Pod: p.Pod}
}

// reasonOf returns the reason that an obligation proves, "" while it may be one by design: of a
// peer that merely sleeps for a while, or that was there before plegd.
func (p *pass) reasonOf(o *obligation, c *facts.Chain) string {
	if len(c.Links) < 2 {
		return ""
	}
	if o.kind == unstarted {
		return reasonOfStarts(c)
	}
	debtor := &c.Links[1]
	isHeld := debtor.State.StandsStill()
	switch {
	case o.kind == resting && (o.stands || p.isStoppedBehind(c)):
		return helperStuck
	case o.kind == resting:
		return ""
	case o.kind == killed:
		return shimStuck
	case o.kind == busyPath:
		return inspectionStall
	case o.kind == unanswered, o.kind == goneServer:
		return peerStuck
	case !isHeld && (o.known && o.kind != openPipe || p.age(o) < idleLimit):
		return ""
	case debtor.Kind == facts.KindShim:
		return shimStuck
	case debtor.Kind == facts.KindHelper:
		return helperStuck
	}
	return peerStuck
}
