package daemon

import (
	"cmp"
	"slices"
	"sync"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/evidence/chain"
	"github.com/plegd/plegd/internal/health"
)

// known are the containers and sandboxes of the last lists that were answered.
type known struct {
	mu         sync.Mutex
	containers []*cri.Container
	sandboxes  []*cri.Sandbox
}

func (k *known) listed(containers []*cri.Container) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.containers = append(k.containers[:0], containers...)
}

func (k *known) listedSandboxes(sandboxes []*cri.Sandbox) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sandboxes = append(k.sandboxes[:0], sandboxes...)
}

// targets returns the containers, or the sandboxes, as those that may be asked
// for: those of the sandboxes named first at first, then the newest. uid limits
// them to one pod, "" for all.
func (k *known) targets(sandboxes bool, uid string, first []string) []chain.Target {
	type entry struct {
		chain.Target
		created int64
	}
	var all []entry
	// The relist waits for the lock: no longer than it takes to copy the list.
	k.mu.Lock()
	knownSandboxes, knownContainers := slices.Clone(k.sandboxes), slices.Clone(k.containers)
	k.mu.Unlock()
	if sandboxes {
		for _, s := range knownSandboxes {
			if uid == "" || s.PodUID == uid {
				all = append(all, entry{chain.Target{Sandbox: true, ID: s.ID, SandboxID: s.ID, Namespace: s.Namespace, Pod: s.Name}, s.CreatedAt})
			}
		}
	} else {
		for _, c := range knownContainers {
			if uid == "" || c.PodUID == uid {
				all = append(all, entry{chain.Target{ID: c.ID, SandboxID: c.SandboxID, Namespace: c.PodNamespace, Pod: c.PodName, Container: c.Name}, c.CreatedAt})
			}
		}
	}
	rank := func(e entry) int {
		if slices.Contains(first, e.SandboxID) || slices.Contains(first, e.ID) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.created, a.created)) })
	out := make([]chain.Target, 0, len(all))
	for _, e := range all {
		out = append(out, e.Target)
	}
	return out
}

// pod returns the namespace and name of the pod that a sandbox or container belongs to, ""
// where it is not known.
func (k *known) pod(id string) string {
	if namespace, name, _ := k.find(id); name != "" {
		return namespace + "/" + name
	}
	return ""
}

// find returns the pod that a sandbox or container belongs to.
func (k *known) find(id string) (namespace, name, uid string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sandboxes {
		if s.ID == id {
			return s.Namespace, s.Name, s.PodUID
		}
	}
	for _, c := range k.containers {
		if c.ID == id {
			return c.PodNamespace, c.PodName, c.PodUID
		}
	}
	return "", "", ""
}

// withPods returns the children with the pods that the stuck ones serve.
func (k *known) withPods(c *health.Children) *health.Children {
	if c == nil || len(c.Stuck) == 0 {
		return c
	}
	out := *c
	out.Stuck = slices.Clone(c.Stuck)
	for i := range out.Stuck {
		s := &out.Stuck[i]
		_, _, s.PodUID = k.find(s.Sandbox)
	}
	return &out
}
