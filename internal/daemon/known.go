package daemon

import (
	"cmp"
	"slices"

	"github.com/plegd/plegd/internal/evidence/chain"
	"github.com/plegd/plegd/internal/health"
)

// known is a sandbox or a container of the last lists.
type known struct {
	chain.Target

	uid       string // of its pod
	createdAt int64
}

// known returns what the last lists held.
func (r *runtime) known() (sandboxes, containers []known) {
	pods, all := r.LastLists()
	for _, s := range pods {
		t := chain.Target{Sandbox: true, ID: s.ID, SandboxID: s.ID, Namespace: s.Namespace, Pod: s.Name}
		sandboxes = append(sandboxes, known{t, s.PodUID, s.CreatedAt})
	}
	for _, c := range all {
		t := chain.Target{ID: c.ID, SandboxID: c.SandboxID, Namespace: c.PodNamespace, Pod: c.PodName, Container: c.Name}
		containers = append(containers, known{t, c.PodUID, c.CreatedAt})
	}
	return sandboxes, containers
}

// targets returns the containers, or the sandboxes, of the last lists that may be asked
// for: those of the sandboxes named first at first, then the newest. uid limits
// them to one pod, "" for all.
func (r *runtime) targets(sandboxes bool, uid string, first []string) (out []chain.Target) {
	all, containers := r.known()
	if !sandboxes {
		all = containers
	}
	rank := func(k known) int {
		if slices.Contains(first, k.SandboxID) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b known) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.createdAt, a.createdAt))
	})
	for _, k := range all {
		if uid == "" || k.uid == uid {
			out = append(out, k.Target)
		}
	}
	return out
}

// podOf returns the pod that a sandbox or container of the last lists belongs to: its
// namespace and name, and its UID, "" where it is not known.
func (r *runtime) podOf(id string) (name, uid string) {
	for _, k := range slices.Concat(r.known()) {
		if k.ID == id && k.Pod != "" {
			return k.Namespace + "/" + k.Pod, k.uid
		}
	}
	return "", ""
}

// withPods returns the children with the pods that the stuck ones serve.
func (r *runtime) withPods(c *health.Children) *health.Children {
	if c == nil || len(c.Stuck) == 0 {
		return c
	}
	out := *c
	out.Stuck = slices.Clone(c.Stuck)
	for i := range out.Stuck {
		_, out.Stuck[i].PodUID = r.podOf(out.Stuck[i].Sandbox)
	}
	return &out
}
