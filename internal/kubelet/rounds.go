package kubelet

import (
	"slices"
	"time"

	"github.com/plegd/plegd/internal/facts"
)

// slowList is the duration from which both lists together are slow.
const slowList = 300 * time.Millisecond

// rounds models the relists of the kubelet where its lists are slow: up to 1.35 each inspection
// lists again; since 1.36 the kubelet relists a changed pod on demand, once a round
// (PLEGOnDemandRelist). plegd lists once a round, so its own last seen is younger.
type rounds struct {
	counted time.Time // start of plegd's last relist that was counted
	seen    time.Time // start of the kubelet's last round, zero where it is as plegd's
	busy    time.Time // its end
	changed int       // pods that have changed since
}

// follow counts the relist that has ended last.
func (k *rounds) follow(last *facts.RelistResult, before136 bool) {
	if last == nil || last.Err != nil || !last.Start.After(k.counted) {
		return
	}
	if first := k.counted.IsZero(); !first { // the first one inspects all pods, the kubelet did long ago
		k.changed += last.Inspected
	}
	k.counted = last.Start
	if last.Start.Before(k.busy) {
		return
	}
	lists, again := last.ListPodSandbox+last.ListContainers, k.changed
	if lists < slowList {
		again = 0
	} else if !before136 {
		again = min(again, 1)
	}
	if k.seen, k.busy, k.changed = last.Start, last.End.Add(time.Duration(again)*lists), 0; again == 0 {
		k.seen = time.Time{}
	}
}

// correct makes the modelled relist as old as this round. It returns the facts unchanged where plegd's own are older.
func (k *rounds) correct(m facts.Modelled, now time.Time) facts.Modelled {
	if k.seen.IsZero() || !k.seen.Before(m.LastSeen) {
		return m
	}
	m.LastSeen, m.BusySince, m.EndsBy = k.seen, k.busy, time.Time{} // its next lists are under way
	if now.Before(k.busy) {
		m.BusySince, m.EndsBy = k.seen, k.busy
	}
	return m
}

// followRounds corrects the kubelet's relists by its version. Where that is not known they are
// those of a newer kubelet, which is NotReady later, and LastSeenBefore136 of an older one.
func (s *Model) followRounds(f *facts.Facts, now time.Time) {
	version, known := []int(nil), false
	if k := f.Evidence.Kubelet; k != nil {
		version, known = facts.ParseVersion(k.Version)
	}
	s.newer.follow(f.Relist.Last, false)
	s.older.follow(f.Relist.Last, true)
	older := s.older.correct(f.Modelled, now)
	switch m := s.newer.correct(f.Modelled, now); {
	case known && slices.Compare(version, []int{1, 36}) < 0:
		f.Modelled = older
	case !known && older.LastSeen.Before(m.LastSeen):
		f.Modelled, f.Modelled.LastSeenBefore136 = m, older.LastSeen
	default:
		f.Modelled = m
	}
}
