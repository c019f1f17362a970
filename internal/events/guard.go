package events

import (
	"fmt"
	"slices"

	"github.com/plegd/plegd/internal/facts"
)

// Unsafe says why subscribing to a runtime's events does harm even by lease, and
// what to do; "" where it does none.
//
// containerd 1.7 gives all its subscribers one queue (pkg/cri/sbserver,
// containerEventsChan): each event goes to one of them, so every event that
// plegd gets is one that the kubelet does not. 1.6 has no events, and says so
// itself; 2.x has a queue for each.
func Unsafe(r facts.Runtime) string {
	if r.Name != "containerd" {
		return ""
	}
	const remedy = "--events=off ends this message, containerd 2.x ends its cause, and --events-allow-unsafe is for a " +
		"node whose kubelet uses no events"
	v, ok := facts.ParseVersion(r.Version)
	if !ok {
		return fmt.Sprintf("containerd says that it is version %q: one of 1.7 would hand plegd the kubelet's events; %s",
			r.Version, remedy)
	}
	if v[0] == 1 && slices.Compare(v, []int{1, 7}) >= 0 {
		return fmt.Sprintf("containerd %s hands each event to only one of its subscribers, so plegd would take the "+
			"kubelet's; %s", r.Version, remedy)
	}
	return ""
}
