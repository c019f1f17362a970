package ledger

import (
	"maps"
	"slices"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

const (
	// staysUnready is how long a sandbox is not ready until its start counts as failed: two more passes.
	staysUnready = 2 * SuspectInterval
	// sandboxList stands for a directory where the list shows failed starts.
	sandboxList = "the list of sandboxes"
)

// noteUnready notes the pods that are listed for the first time, with a sandbox that is not ready and has no container, and
// reports whether there is one. Where several stay so, their starts have failed.
func (s *starts) noteUnready(moment time.Time, listed map[string]*cri.Entry, come []*cri.Entry) (isSeen bool) {
	for _, sandbox := range come {
		if isOld(sandbox, moment) || hasBegun(sandbox) || hasContainer(listed, sandbox.ID) {
			continue
		}
		isSeen = true
		s.last = moment
		if s.unready == nil {
			s.unready = map[string]time.Time{}
		}
		_, isNoted := s.unready[sandbox.PodUID]
		if !isNoted {
			s.unready[sandbox.PodUID] = moment
		}
	}
	maps.DeleteFunc(s.unready, func(_ string, seen time.Time) bool { return moment.Sub(seen) > failedWithin })
	if len(s.unready) < failedStarts || s.proven {
		return isSeen
	}
	if s.isReadyLater(listed) {
		s.unready = nil
		return isSeen
	}
	seen := slices.SortedFunc(maps.Values(s.unready), time.Time.Compare)
	if moment.Sub(seen[failedStarts-1]) >= staysUnready {
		s.proven = true
		s.dir = sandboxList
		s.since = seen[0]
	}
	return isSeen
}

// isOld reports whether a sandbox was made long before it is listed, as those that a runtime lists after a reboot.
func isOld(sandbox *cri.Entry, moment time.Time) bool {
	age, isKnown := sandbox.Age(moment)
	return isKnown && age > failedWithin
}

// isReadyLater reports whether a pod that was listed with a sandbox that was not ready has one that is.
func (s *starts) isReadyLater(listed map[string]*cri.Entry) bool {
	for _, e := range listed {
		_, wasUnready := s.unready[e.PodUID]
		if wasUnready && e.Sandbox && hasBegun(e) {
			return true
		}
	}
	return false
}

// hasContainer reports whether a container of a sandbox is listed.
func hasContainer(listed map[string]*cri.Entry, sandbox string) bool {
	for _, e := range listed {
		if !e.Sandbox && e.SandboxID == sandbox {
			return true
		}
	}
	return false
}
