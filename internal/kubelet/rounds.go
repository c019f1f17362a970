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
	ends   window    // bounds the end of that round: a list more or less
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
	r.ends = exactly(last.End.Add(time.Duration(r.remain)*cost)).plus(-cost, cost)
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

// estimate returns the start of the kubelet's relist under way by its estimate, zero where it is as plegd's, and when
// its rule fails for that; never where the relist ends in time. The kubelet's own last seen ends every argument: an
// estimate that is older does not count.
func (r *relists) estimate(f *facts.Facts) (start time.Time, fails window) {
	version, known := kubeletVersion(f)
	if !known {
		older, olderFails := r.older.estimate(f)
		newer, newerFails := r.newer.estimate(f)
		if older.IsZero() || !newer.IsZero() && newer.Before(older) {
			return newer, newerFails
		}
		olderFails.latest = time.Time{} // it may be a newer one
		return older, olderFails
	}
	if before136(version) {
		return r.older.estimate(f)
	}
	return r.newer.estimate(f)
}

// estimate does the same for one kind of kubelet. Where it is open whether the relist ends in time, so is by when the
// rule fails.
func (r *rounds) estimate(f *facts.Facts) (start time.Time, fails window) {
	seen := r.seen
	if k := f.Evidence.Kubelet; k != nil && !seen.IsZero() {
		seen = facts.Later(seen, k.LastSeen)
	}
	if seen.IsZero() || seen.After(facts.LastSeen(f)) {
		return time.Time{}, window{}
	}
	limit := seen.Add(f.Config.RelistThreshold)
	switch {
	case r.ends.latest.Before(limit):
	case r.ends.earliest.After(limit):
		fails = exactly(limit)
	default:
		fails.earliest = limit
	}
	if seen.Before(facts.LastSeen(f)) || !fails.earliest.IsZero() {
		start = seen
	}
	return start, fails
}

func before136(version []int) bool { return slices.Compare(version, []int{1, 36}) < 0 }

// kubeletVersion returns the kubelet's version where it is known.
func kubeletVersion(f *facts.Facts) ([]int, bool) {
	if f.Evidence.Kubelet == nil {
		return nil, false
	}
	return facts.ParseVersion(f.Evidence.Kubelet.Version)
}
