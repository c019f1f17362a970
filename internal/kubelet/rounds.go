package kubelet

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// slowList is the duration from which both lists together are slow.
const slowList = 300 * time.Millisecond

// rounds estimates the relists of a kubelet whose lists are slow, from plegd's own relists. Up to 1.35 the kubelet
// lists again in each inspection; since 1.36 it lists again for a pod that it has synced itself, once a round
// (PLEGOnDemandRelist). plegd lists once a round, so its own last seen is younger. The estimate is bounded: the lists
// that remain cost as much as plegd's newest list, and plegd's own lists that end count them down.
type rounds struct {
	start  time.Time // start of plegd's last relist that was counted
	end    time.Time // its end
	seen   time.Time // start of the kubelet's round under way, zero where it is as plegd's
	busy   time.Time // end of that round
	remain int       // lists that the round has yet to make
	queued int       // lists that the next round makes for pods that have changed since
}

// follow counts the relist that has ended last. lists is how many more lists it causes in a kubelet.
func (r *rounds) follow(last *facts.RelistResult, lists int) {
	if last == nil || last.Err != nil || !last.Start.After(r.start) {
		return
	}
	if !r.start.IsZero() { // the first one inspects all pods, which the kubelet did long ago
		r.queued += lists
	}
	passed := last.End.Sub(r.end)
	r.start = last.Start
	r.end = last.End
	cost := last.ListPodSandbox + last.ListContainers
	if r.remain > 0 { // else the kubelet has listed at the same time as plegd
		r.remain = max(0, r.remain-max(1, int(passed/max(cost, time.Millisecond))))
	} else {
		r.startRound(last, cost)
	}
	r.busy = last.End.Add(time.Duration(r.remain) * cost)
}

// startRound starts the kubelet's next round with a relist of plegd's. Where lists are quick it is as plegd's.
func (r *rounds) startRound(last *facts.RelistResult, cost time.Duration) {
	r.seen = time.Time{}
	if cost >= slowList && r.queued > 0 {
		r.seen = last.Start
		r.remain = r.queued
	}
	r.queued = 0
}

// lastSeen returns the start of the kubelet's last round by the estimate, zero where it is as plegd's.
func (r *rounds) lastSeen() time.Time { return r.seen }

// relists are the two estimates: of kubelets before 1.36, and since.
type relists struct{ older, newer rounds }

// follow counts plegd's last relist in both.
func (r *relists) follow(f *facts.Facts) {
	last := f.Relist.Last
	if last == nil {
		return
	}
	r.older.follow(last, last.Inspected)
	r.newer.follow(last, onDemand(f, last))
}

// onDemand is how many more lists a relist causes in a kubelet since 1.36: one for all pods in which something has
// started. The kubelet does not list again for a pod that ends, is removed or waits in back-off (kubelet.go, SyncPod).
func onDemand(f *facts.Facts, last *facts.RelistResult) int {
	if k := f.Evidence.KubeletProcess; k != nil && k.OnDemandRelist != nil && !*k.OnDemandRelist {
		return 0
	}
	return min(last.Started, 1)
}

// estimate adds to plegd's own relists what the kubelet's may be by their estimate. The kubelet's own last seen ends
// every argument: an estimate that is older does not count.
func (r *relists) estimate(f *facts.Facts) facts.Modelled {
	out := f.Modelled
	older := r.older.lastSeen()
	newer := r.newer.lastSeen()
	if older.IsZero() && newer.IsZero() {
		return out
	}
	seen := facts.LastSeen(f)
	late := func(estimate time.Time) time.Time {
		if k := f.Evidence.Kubelet; k != nil && !estimate.IsZero() {
			estimate = facts.Later(estimate, k.LastSeen)
		}
		if !estimate.Before(seen) {
			return time.Time{}
		}
		return estimate
	}
	version, known := kubeletVersion(f)
	switch {
	case !known:
		out.Estimated = facts.Earliest(late(older), late(newer))
		out.LastSeenBefore136 = out.Estimated
	case before136(version):
		out.Estimated = late(older)
	default:
		out.Estimated = late(newer)
	}
	return out
}

func before136(version []int) bool { return slices.Compare(version, []int{1, 36}) < 0 }

// kubeletVersion returns the kubelet's version where it is known.
func kubeletVersion(f *facts.Facts) ([]int, bool) {
	if f.Evidence.Kubelet == nil {
		return nil, false
	}
	return facts.ParseVersion(f.Evidence.Kubelet.Version)
}
